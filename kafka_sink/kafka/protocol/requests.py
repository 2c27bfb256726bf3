"""Requests as bytes, and responses from bytes. The requests are in `apis`.

The only module that uses kio, which has a class for every version of every message. kio is imported with the first
request, not with this module: it takes 60 ms and 7 MB, which the driver never needs.

kio writes requests into a list, so the bytes of record batches are inserted without a copy. `message_reader` reads
responses (it says why). Then they are checked against their request: if a response lacks a partition, or names one
twice, the result of the request is unknown.

Source: https://kafka.apache.org/protocol; clients/src/main/resources/common/message/*.json in Kafka.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, make_dataclass
from types import SimpleNamespace
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.lazy_import import import_lazily
from kafka_sink.kafka.protocol.api import Api, Request, Response
from kafka_sink.kafka.protocol.apis.handshake import ApiVersionsRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.message_reader import Budget, read_message

Buffer = bytes | memoryview


def select_version(request: Request, ranges: Mapping[int, tuple[int, int]]) -> int | None:
    """Return the highest version for `request` that is in the broker's `ranges`, or None."""
    lowest, highest = ranges.get(request.api.key, (0, -1))
    our_lowest, our_highest = request.versions()
    version = min(our_highest, highest)
    return version if version >= max(our_lowest, lowest) else None


# kio writes field by field. Below this size, copying buffers together is cheaper than one iovec each.
_SPLICE_BYTES = 4096


def encode_request(request: Request, *, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
    """Return the whole frame, with its size in front. Large buffers of the request are not copied. They must not change
    until the request is answered or its connection is closed."""
    message = request.to_kio(_kio_module(request.api, version, "request"), version)
    message_type: type = type(message)
    written: list[Buffer] = [_header(message_type, request.api.key, version, correlation_id, client_id)]
    _kio_writer(message_type)(SimpleNamespace(write=written.append), message)
    size = sum(map(len, written))
    return _join_small([size.to_bytes(4, "big"), *written])


def _header(message_type: Any, key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the request header of version 1, or of version 2, which ends with tagged fields: none (KIP-482). kio takes
    5 us for it, as long as for most requests."""
    name = client_id.encode()
    tags = b"\0" if message_type.__header_schema__.__flexible__ else b""
    return struct.pack(">hhih", key, version, correlation_id, len(name)) + name + tags


def _join_small(buffers: Sequence[Buffer]) -> list[Buffer]:
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _SPLICE_BYTES:
            small.append(buffer)
        else:
            joined += [b"".join(small), buffer]
            small = []
    return [*joined, b"".join(small)] if small else joined


def decode_response(
    request: Request, version: int, frame: bytes, is_late: Callable[[], bool] = lambda: False
) -> Response:
    """Return the response to `request` in `frame` (header included, size excluded). The caller checks the correlation
    id. `is_late`: True once reading has taken too long.

    Raises ProtocolError, which names API and version, for anything that is not exactly such a response.
    """
    try:
        return _decoded(request, version, frame, Budget(request.most(), is_late))
    except ProtocolError as error:
        raise ProtocolError(f"{request.api.name} version {version}: {error.detail}") from None


def _decoded(request: Request, version: int, frame: bytes, budget: Budget) -> Response:
    api = request.api
    message_type = _response_type(api, version)
    _, position = read_message(message_type.__header_schema__, frame, 0, budget)
    is_too_new = version == request.versions()[1] and frame[position : position + 2] == _UNSUPPORTED_VERSION
    if isinstance(request, ApiVersionsRequest) and is_too_new:
        # Such a response has version 0, whatever was requested (KIP-511).
        version = 0
        message_type = _response_type(api, version)
    message, position = read_message(message_type, frame, position, budget)
    if version < api.client_throttles_from:
        message["throttle_time"] = 0
    if position != len(frame):
        raise ProtocolError(f"{len(frame) - position} bytes follow a {api.name} answer")
    response = request.response(message)
    request.check(response)
    return response


_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _response_type(api: Api, version: int) -> Any:
    return getattr(_kio_module(api, version, "response"), f"{api.name}Response")


@functools.cache
def _kio_module(api: Api, version: int, direction: str) -> Any:
    if (api.name, version) == ("ApiVersions", 5):
        # kio 0.6 ends with version 4. The response of version 5 has the same fields.
        version_4 = _kio_module(api, 4, direction)
        return version_4 if direction == "response" else _api_versions_5(version_4.ApiVersionsRequest)
    return import_lazily(f"kio.schema.{api.kio_package}.v{version}.{direction}")


def _api_versions_5(version_4: type) -> Any:
    """Return a module with the request of version 5 (KIP-1242; ApiVersionsRequest.json in Kafka 4.4)."""
    added = (
        ("cluster_id", str | None, field(metadata={"kafka_type": "string"})),
        ("node_id", int, field(metadata={"kafka_type": "int32"})),
    )
    name = version_4.__name__
    request = make_dataclass(name, added, bases=(version_4,), frozen=True, slots=True, kw_only=True)
    return SimpleNamespace(**{name: request})


@functools.cache
def _kio_writer(entity_type: type) -> Callable[[Any, Any], None]:
    writer: Callable[[Any, Any], None] = import_lazily("kio.serial").entity_writer(entity_type)
    return writer
