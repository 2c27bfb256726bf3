"""Records of a schema registry, as executors decode them: the framing, Avro by the kernel and without it, JSON and
Protobuf.

Writers' schemas are known by the ids 1 to 3. Those of 2 and 3 are older, and 3 needs fastavro. No registry is asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from kafka_sink.errors import RecordUndecodable
from kafka_sink.registry import avro_reading, json_reading, protobuf_reading, protoc
from kafka_sink.registry.decoding import Decoder, Reading, Writer
from kafka_sink.registry.references import Written

INNER = {"type": "record", "name": "Inner", "fields": [
    {"name": "x", "type": ["null", "int"], "default": None},
    {"name": "tags", "type": {"type": "map", "values": "string"}},
]}  # fmt: skip
AVRO = json.dumps({"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}, {"name": "ratio", "type": "double"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"], "default": "a"}},
    {"name": "inner", "type": ["null", INNER]}, {"name": "lines", "type": {"type": "array", "items": "Inner"}},
]})  # fmt: skip
OLD_AVRO = json.dumps({"type": "record", "name": "r", "fields": [
    {"name": "gone", "type": {"type": "array", "items": "string"}}, {"name": "id", "type": "int"},
    {"name": "text", "type": "bytes"}, {"name": "ratio", "type": "float"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["b"]}},
    {"name": "inner", "type": INNER}, {"name": "lines", "type": {"type": "array", "items": "Inner"}},
]})  # fmt: skip
OTHER_AVRO = OLD_AVRO.replace('["b"]', '["c", "b"]')
JSON = json.dumps({"type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"}, "text": {"type": ["null", "string"]}, "ratio": {"type": "number"},
    "at": {"type": "string", "format": "date-time"}, "data": {"type": "string", "contentEncoding": "base64"},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "tags": {"type": "object", "additionalProperties": {"type": "string"}}, "any": {},
}})  # fmt: skip
PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message M { int64 id = 1; optional string text = 2; double ratio = 3; repeated sint32 many = 4; Kind kind = 5;
    repeated M2 lines = 6; map<string, int64> counts = 7; google.protobuf.Timestamp at = 8;
    google.protobuf.Value any = 9; oneof either { bytes data = 10; fixed64 number = 11; }
    message M2 { int32 x = 1; } enum Kind { A = 0; B = 1; } }"""

_INNER = b"\x02\x0e" + b"\x02\x02k\x04vv\x00"
IN_AVRO = (
    b"\x0e" + b"\x02\x04ab" + bytes(8) + b"\x04\x01\x02" + b"\x02" + b"\x02" + b"\x02" + _INNER + b"\x04" + _INNER * 2
    + b"\x00"
)  # fmt: skip
IN_OLD_AVRO = (
    b"\x02\x02g\x00" + b"\x0e" + b"\x04ab" + bytes(4) + b"\x04\x01\x02" + b"\x02" + b"\x00" + _INNER
    + b"\x03\x12" + _INNER * 2 + b"\x00"
)  # fmt: skip
IN_JSON = json.dumps({
    "id": 7, "text": None, "ratio": 1e300, "at": "2024-02-29T12:00:00.5+01:00", "data": "YWI=", "lines": [{"x": 1}, {}],
    "tags": {"k": "v"}, "any": [{"a": None}],
}).encode()  # fmt: skip
IN_PROTO = (
    b"\x00\x08\x07\x12\x01a\x19" + bytes(8) + b"\x22\x02\x02\x03\x28\x01\x32\x02\x08\x05\x3a\x05\x0a\x01k\x10\x02"
    + b"\x42\x02\x08\x09\x4a\x03\x1a\x01v\x52\x01d\xf8\x01\x01"
)  # fmt: skip


class Differ(Exception):
    """The kernel and fastavro see different things in the same bytes."""


def decode() -> Callable[[bytes], object]:
    """Return the decoder of a form, chosen by the first byte; of a record of Avro it runs both."""
    proto = base64.b64encode(protoc.compiled(PROTO)).decode()
    forms = (
        _decoders(avro_reading.Reader, AVRO, {1: AVRO, 2: OLD_AVRO, 3: OTHER_AVRO}),
        _decoders(json_reading.Reader, JSON, {})[:1],
        _decoders(protobuf_reading.Reader, proto, {1: proto})[:1],
    )

    def decoded(data: bytes) -> None:
        choice = data[0] if data else 0
        record = data[1:]
        # The id in a header, behind the byte of its length.
        header = record[1 : 1 + record[0]] if choice & 4 and record else None
        if header is not None:
            record = record[1 + len(header) :]
        seen = [_seen(decoder, record, header) for decoder in forms[choice % 4 % len(forms)]]
        for array, reason in seen[1:]:
            is_equal = array.equals(seen[0][0]) or repr(array.to_pylist()) == repr(seen[0][0].to_pylist())  # NaN
            if not is_equal or reason != seen[0][1]:
                raise Differ(f"{seen}")
        if seen[0][1] is not None:
            raise RecordUndecodable(reason=seen[0][1])

    return decoded


def seeds() -> list[bytes]:
    framed = [(0, 1, IN_AVRO), (0, 2, IN_OLD_AVRO), (0, 3, IN_OLD_AVRO), (1, 1, IN_JSON), (2, 1, IN_PROTO)]
    return [bytes([form, 0, 0, 0, 0, writer]) + data for form, writer, data in framed] + [
        bytes([form | 4, 5, 0, 0, 0, 0, writer]) + data for form, writer, data in framed[:2]
    ]


def _seen(decoder: Decoder, record: bytes, header: bytes | None) -> tuple[pa.Array, str | None]:
    batch: Any = SimpleNamespace(data=pa.array([record], pa.binary()), headers=pa.array([header], pa.binary()))
    array, reasons = decoder.decoded(batch)
    array.validate(full=True)
    return array, reasons.get(0)


def _decoders(reader: Any, text: str, writers: Mapping[int, str]) -> list[Decoder]:
    """With what a program of the kernel's decodes, and without it."""
    found = []
    for has_program in (True, False):
        decoder = Decoder(Reading("", lambda: reader(Written(text)), {"url": "http://idp"}, "orders-value", False))
        of: dict[int | str, Writer] = {}
        for schema_id, written in writers.items() or {0: text}.items():
            writer = decoder.reader.writer(Written(written))
            of[schema_id] = writer if has_program else replace(writer, program=None)
        decoder.writers = SimpleNamespace(get=lambda schema_id, of=of: of.get(_known(schema_id), "the id is unknown"))  # type: ignore[assignment]
        found.append(decoder)
    return found


def _known(schema_id: int | str) -> int:
    """Most of the ids that the fuzzer makes up are known."""
    return schema_id % 4 if isinstance(schema_id, int) else 1
