"""Kafka's bytes in and out, by kio: the requests a broker reads and the answers it writes.

This module uses no code of the client under test: kio reads its requests and writes its answers.

Source: https://kafka.apache.org/protocol; ApiVersionsRequest in Kafka and KIP-511 for the answer to a version that is
too new.
"""

import dataclasses
import functools
import importlib
import io
import re
import struct
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import kio.serial
from kio.serial.errors import SerialError
from kio.static.primitive import i32, i64

from model.settings import API_NAMES, API_VERSIONS, DESCRIBE_TRANSACTIONS

# kio's packages are named after the API, in snake case.
_PACKAGES = {api_key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for api_key, name in API_NAMES.items()}
# API key, version and correlation id: the same in every version of the header.
_HEADER_START = struct.Struct(">hhi")


class NotARequest(Exception):
    """Bytes for which a broker closes the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """`message` is kio's entity; None for an ApiVersions request of a version that is too new to be read."""

    api_key: int
    version: int
    correlation_id: int
    message: Any


def decode_request(frame: bytes, api_versions: Mapping[int, tuple[int, int]]) -> Request:
    """`frame`: one request without its length. Raises NotARequest for an API or a version that the broker does not
    speak, and for bytes that are no request."""
    if len(frame) < _HEADER_START.size:
        raise NotARequest(f"{len(frame)} bytes")
    api_key, version, correlation_id = _HEADER_START.unpack_from(frame)
    lowest, highest = api_versions.get(api_key, (0, -1))
    if not lowest <= version <= highest:
        if api_key == API_VERSIONS:
            return Request(api_key, version, correlation_id, None)
        raise NotARequest(f"API {api_key} version {version}")
    message_type = request_type(api_key, version)
    try:
        _, header_size = _reader(message_type.__header_schema__)(frame, 0)
        message, size = _reader(message_type)(frame, header_size)
    except (SerialError, ValueError) as error:
        raise NotARequest(str(error)) from error
    if header_size + size != len(frame):
        raise NotARequest(f"{len(frame) - header_size - size} bytes follow the request")
    return Request(api_key, version, correlation_id, message)


def encode_response(request: Request, message: Any) -> bytes:
    """The frame, without its length. `message`: kio's entity of the request's API."""
    message_type: Any = type(message)
    header_type = message_type.__header_schema__
    buffer = io.BytesIO()
    kio.serial.entity_writer(header_type)(buffer, header_type(correlation_id=request.correlation_id))
    kio.serial.entity_writer(message_type)(buffer, message)
    return buffer.getvalue()


def build(entity_type: Any, **fields: Any) -> Any:
    """An entity of kio's from the fields that its version has; the others are left out."""
    return _filled(entity_type, fields)


def request_of(api_key: int, version: int, **fields: Any) -> Any:
    """kio's request of plain values: a dict for an entity. What the version does not have is left out."""
    return _filled(request_type(api_key, version), fields)


def response_of(api_key: int, version: int, **fields: Any) -> Any:
    return _filled(getattr(kio_module(api_key, version, "response"), f"{API_NAMES[api_key]}Response"), fields)


def by_topic(
    partitions: Iterable[tuple[Any, Any]], topic: str = "name", listed: str = "partitions"
) -> list[dict[str, Any]]:
    """Of topics and what is said of one partition of each. `topic`, `listed`: how a message names the two."""
    topics: dict[Any, list[Any]] = {}
    for name, each in partitions:
        topics.setdefault(name, []).append(each)
    return [{topic: name, listed: found} for name, found in topics.items()]


def _filled(entity_type: Any, values: Mapping[str, Any]) -> Any:
    known = _entities(entity_type)
    return entity_type(**{name: _value(known[name], value) for name, value in values.items() if name in known})


def _value(entity_type: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _filled(entity_type, value)
    if isinstance(value, list | tuple):
        return tuple([_filled(entity_type, each) if isinstance(each, dict) else each for each in value])
    return value


@functools.cache
def _entities(entity_type: Any) -> dict[str, Any]:
    """By field the entity that it has, or has several of; None for a plain one."""
    return {name: _entity(each.type) for name, each in entity_type.__dataclass_fields__.items()}


def _entity(declared: Any) -> Any:
    for each in (declared, *typing.get_args(declared)):
        if typing.get_origin(each) is tuple:
            return typing.get_args(each)[0]
        if dataclasses.is_dataclass(each):
            return each
    return None


@functools.cache
def kio_module(api_key: int, version: int, direction: str) -> Any:
    """kio's classes of one version of a request or response. ApiVersions 5 is answered with the fields of version 4."""
    version = min(version, 4) if api_key == API_VERSIONS else version
    return importlib.import_module(f"kio.schema.{_PACKAGES[api_key]}.v{version}.{direction}")


@functools.cache
def request_type(api_key: int, version: int) -> Any:
    """Return the class that decodes a request: kio's, but ApiVersions 5, which kio lacks, has two fields more."""
    if (api_key, version) != (API_VERSIONS, 5):
        return getattr(kio_module(api_key, version, "request"), f"{API_NAMES[api_key]}Request")
    cluster_id: Any = ("cluster_id", str | None, field(metadata={"kafka_type": "string"}))
    node_id = ("node_id", i32, field(metadata={"kafka_type": "int32"}))
    return _variant_of(request_type(api_key, 4), cluster_id, node_id)


@functools.cache
def response_type(api_key: int, version: int) -> Any:
    """Return the class that decodes an answer: kio's, but DescribeTransactions has its start time as an int in ms.
    kio decodes no time before 1970, and the start time is -1 for a transaction that never began."""
    kio_version = kio_module(api_key, version, "response")
    kio_type = getattr(kio_version, f"{API_NAMES[api_key]}Response")
    if api_key != DESCRIBE_TRANSACTIONS:
        return kio_type
    started = ("transaction_start_time", i64, field(metadata={"kafka_type": "int64"}))
    state: Any = _variant_of(kio_version.TransactionState, started)
    return _variant_of(kio_type, ("transaction_states", tuple.__class_getitem__((state, ...))))


def _variant_of(kio_type: Any, *changed: tuple[Any, ...]) -> Any:
    return make_dataclass(kio_type.__name__, changed, bases=(kio_type,), frozen=True, slots=True, kw_only=True)


@functools.cache
def _reader(entity_type: Any) -> Any:
    return kio.serial.entity_reader(entity_type)
