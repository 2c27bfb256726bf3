"""Answers that are one array of as many elements as fit, each as small as it can be: most memory per byte.

A fuzzer seldom makes one element of three bytes into a thousand; a hostile peer does it at once.
"""

from __future__ import annotations

import importlib
import struct
import typing
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any

from fuzz.answers import inner_type
from kafka_sink.kafka.protocol.api import Api

# By kio's names of the wire types; the others have a length.
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8, "timedelta_i64": 8,
    "datetime_i64": 8, "uuid": 16,
}  # fmt: skip


def largest_arrays(api: Api, version: int, size: int) -> Iterator[tuple[str, bytes]]:
    """For each array of the API's answer, at any depth: where it is, and a frame of about `size` bytes."""
    message_type = response_type(api, version)
    header = b"\0\0\0\0" + _tags(message_type.__header_schema__, b"")
    for path, message in _full(message_type, size):
        yield f"{api.name}{path}", header + message


def response_type(api: Api, version: int) -> Any:
    module = importlib.import_module(f"kio.schema.{api.kio_package}.v{version}.response")
    return getattr(module, f"{api.name}Response")


def _full(message_type: Any, size: int) -> Iterator[tuple[str, bytes]]:
    for chosen in fields(message_type):
        for path, value in _full_value(message_type, chosen, size):
            yield f".{chosen.name}{path}", _message(message_type, chosen, value)


def _full_value(message_type: Any, field: Field[Any], size: int) -> Iterator[tuple[str, bytes]]:
    of_type = inner_type(field.type)
    if is_dataclass(of_type):
        yield from _full(of_type, size)
    if typing.get_origin(of_type) is not tuple:
        return
    element_type = inner_type(typing.get_args(of_type)[0])
    if is_dataclass(element_type):
        smallest = _message(element_type)
        for path, element in _full(element_type, size):
            yield path, _count(message_type, 1) + element
    else:
        smallest = _empty(message_type, field.metadata["kafka_type"])
    count = size // len(smallest)
    yield f" ({count:,} of {len(smallest)} bytes)", _count(message_type, count) + count * smallest


def _message(message_type: Any, chosen: Field[Any] | None = None, value: bytes = b"") -> bytes:
    """All fields as short as they can be, but one."""
    plain, tagged = b"", b""
    for field in fields(message_type):
        if "tag" in field.metadata:
            if field is chosen:
                tagged = bytes([field.metadata["tag"]]) + _varint(len(value)) + value
        else:
            plain += value if field is chosen else _shortest(message_type, field)
    return plain + _tags(message_type, tagged)


def _shortest(message_type: Any, field: Field[Any]) -> bytes:
    of_type = inner_type(field.type)
    if is_dataclass(of_type):
        return _message(of_type)
    if typing.get_origin(of_type) is tuple:
        return _count(message_type, 0)
    return _empty(message_type, field.metadata["kafka_type"])


def _empty(message_type: Any, kafka_type: str) -> bytes:
    if kafka_type in _SIZES:
        return bytes(_SIZES[kafka_type])
    if message_type.__flexible__:
        return _varint(1)
    return bytes(2 if kafka_type == "string" else 4)


def _count(message_type: Any, count: int) -> bytes:
    return _varint(count + 1) if message_type.__flexible__ else struct.pack(">i", count)


def _tags(message_type: Any, tagged: bytes) -> bytes:
    return bytes([bool(tagged)]) + tagged if message_type.__flexible__ else b""


def _varint(number: int) -> bytes:
    written = b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])
