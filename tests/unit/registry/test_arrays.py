"""Arrays of decoded values: what a few bytes may become is bounded, in each form."""

import base64
import json
from typing import Any

import pytest
from google.protobuf import text_format

from kafka_sink.registry import arrays, avro_reading, json_reading, protobuf_reading, protoc
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.references import Written
from registry_rows import message_class

COUNT, FIELDS = 1_000, 100


def _avro(kind: str) -> tuple[Writer, bytes]:
    wide = {"type": "record", "name": "Wide", "fields": [{"name": f"f{i}", "type": "string"} for i in range(FIELDS)]}
    of_items = (
        {"type": "array", "items": ["null", wide]} if kind == "array" else {"type": "map", "values": ["null", wide]}
    )
    written = Written(json.dumps({"type": "record", "name": "r", "fields": [{"name": "all", "type": of_items}]}))
    keys = [b"" if kind == "array" else b"\x08%04d" % i for i in range(COUNT)]
    return avro_reading.Reader(written).writer(written), b"\xd0\x0f" + b"".join(key + b"\0" for key in keys) + b"\0"


def _json(kind: str) -> tuple[Writer, bytes]:
    wide = {"type": "object", "properties": {f"f{i}": {"type": "integer"} for i in range(FIELDS)}}
    of_items: dict[str, Any] = {"type": "array", "items": wide} if kind == "array" else {"additionalProperties": wide}
    whole = {"type": "object", "properties": {"all": of_items}}
    items: Any = [{}] * COUNT if kind == "array" else {f"k{i}": {} for i in range(COUNT)}
    return json_reading.Reader(Written(json.dumps(whole))).writer(None), json.dumps({"all": items}).encode()


def _protobuf(kind: str) -> tuple[Writer, bytes]:
    fields = " ".join(f"int32 f{i} = {i};" for i in range(1, FIELDS + 1))
    all_of = "repeated Wide all = 1;" if kind == "array" else "map<int32, Wide> all = 1;"
    text = f'syntax = "proto3"; message M {{ {all_of} }} message Wide {{ {fields} }}'
    file = base64.b64encode(protoc.compiled(text)).decode()
    body = "all {}" * COUNT if kind == "array" else "".join(f"all {{ key: {i} value {{}} }}" for i in range(COUNT))
    written = Written(file)
    data = text_format.Parse(body, message_class(file)()).SerializeToString()
    return protobuf_reading.Reader(written).writer(written), data


@pytest.mark.parametrize("form", [_avro, _json, _protobuf])
@pytest.mark.parametrize("kind", ["array", "map"])
def test_structs_of_many_fields_in_one_record_have_a_bound(
    form: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 1 MB had gigabytes of nulls: an item of one byte has all fields of its struct."""
    writer, data = form(kind)
    assert len(writer.make([writer.parse(data, 0)])[0]["all"]) == COUNT
    monkeypatch.setattr(arrays, "MOST_STRUCTS_BYTES", COUNT * FIELDS * 4 - 1)
    with pytest.raises(BadRecord, match="the structs in its arrays or maps take more than"):
        writer.make([writer.parse(data, 0)])


@pytest.mark.parametrize("defect", [AttributeError, NameError, AssertionError, TypeError, KeyError])
def test_a_defect_of_a_conversion_is_no_value_that_does_not_fit(defect: type[Exception]) -> None:
    def fails(values: list[Any]) -> Any:
        raise defect

    with pytest.raises(defect):
        arrays.Leaf("f", fails)([1])
