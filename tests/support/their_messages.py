"""Kafka's messages as another client reads and writes them: kafka-python, and not kio, which the product uses."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.requests import decode_response, encode_request

CORRELATION_ID = 77


def theirs(request: Request, direction: str) -> Any:
    for module in ("producer", "consumer", "metadata", "admin", "sasl"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), request.api.name + direction, None)
        if found is not None:
            return found
    raise AssertionError(request)


def encoded(request: Request, version: int, client_id: str = "zoë-日本") -> bytes:
    return b"".join(encode_request(request, version=version, correlation_id=CORRELATION_ID, client_id=client_id))


def as_they_read(request: Request, version: int, client_id: str = "zoë-日本") -> Any:
    """Return their message of our request."""
    frame = encoded(request, version, client_id)
    message = theirs(request, "Request").decode(frame, version=version, header=True, framed=True)
    header = message.header
    assert (header.request_api_version, header.correlation_id, header.client_id) == (version, CORRELATION_ID, client_id)
    return message


def lacks(message: Any, expected: Any) -> Any:
    """Return what of `expected` a message has otherwise: None if nothing. A dict names the fields that matter."""
    if isinstance(expected, Mapping):
        found = {name: lacks(getattr(message, name), value) for name, value in expected.items()}
        return {name: value for name, value in found.items() if value is not None} or None
    if isinstance(expected, list):
        if len(message) != len(expected):
            return f"{len(message)} elements"
        return [each for each in map(lacks, message, expected) if each is not None] or None
    return None if message == expected else message


def written(request: Request, version: int, fields: Mapping[str, Any]) -> bytes:
    """Return their bytes of an answer with these fields, without its size."""
    message = _filled(theirs(request, "Response"), version, fields)
    # The header of an answer to ApiVersions never has tags.
    tagged = request.api.name != "ApiVersions" and message.flexible_version_q(version)
    return CORRELATION_ID.to_bytes(4, "big") + b"\0" * tagged + bytes(message.encode(version=version))


def answered(request: Request, version: int, **fields: Any) -> Any:
    """Return what we make of their answer."""
    return decode_response(request, version, written(request, version, fields))


def _filled(message_type: Any, version: int, fields: Mapping[str, Any]) -> Any:
    def value(name: str, given: Any) -> Any:
        if isinstance(given, list) and given and isinstance(given[0], Mapping):
            element_type = message_type.fields[name].data_class
            return [_filled(element_type, version, element) for element in given]
        if isinstance(given, Mapping):
            return _filled(message_type.fields[name].data_class, version, given)
        return given

    return message_type(version=version, **{name: value(name, given) for name, given in fields.items()})


# What tells a part of an answer from the others, and lists that may have any parts.
_NAMES = {
    "key", "name", "topic", "group_id", "partition", "partition_index", "index", "transactional_id", "resource_name",
}  # fmt: skip
_FREE = {"configs", "active_producers", "synonyms", "members", "record_errors"}


def to_other_questions(said: Any) -> Iterator[Any]:
    """Yield the answer with one of its parts left out, there twice, or of another name."""
    if isinstance(said, Mapping):
        for name, value in said.items():
            if name not in _FREE:
                yield from ({**said, name: other} for other in to_other_questions(value))
    elif isinstance(said, list) and said and isinstance(said[0], Mapping):
        for place, part in enumerate(said):
            before, behind = said[:place], said[place + 1 :]
            yield [*before, *behind]
            yield [*said, part]
            for name in _NAMES & part.keys():
                value = part[name]
                yield [*before, {**part, name: value + 70 if isinstance(value, int) else f"{value}x"}, *behind]
            yield from ([*before, other, *behind] for other in to_other_questions(part))


def name_of(value: object) -> str | None:
    """Return the id of a case."""
    return type(value).__name__ if hasattr(value, "__dataclass_fields__") else None
