"""Programs of the kernel for Avro: what they take is what Python's decoder makes of it, whatever the bytes are."""

import datetime as dt
import functools
import io
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import event, given
from hypothesis import strategies as st

from avro_schemas import pairs
from kafka_sink.records.kernel import KERNEL, fallback
from kafka_sink.registry import arrays, avro_program
from kafka_sink.registry.avro_reading import Reader
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.references import Written

if KERNEL.decode_avro is None:
    pytest.skip("the kernel was not compiled", allow_module_level=True)

HEAD = b"\0\0\0\0\7"


def record(*types: Any, name: str = "r", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate(types)],
        **more,
    }


def writer_of(written: Any, to: Any) -> Writer:
    return Reader(Written(json.dumps(to))).writer(Written(json.dumps(written)))


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    parsed, found = parse_schema(json.loads(json.dumps(schema))), []
    for value in values:
        data = io.BytesIO()
        schemaless_writer(data, parsed, value)
        found.append(HEAD + data.getvalue())
    return found


def reference(writer: Writer, data: bytes) -> Any:
    """Return what Python's decoder makes of a record, or None if it refuses the record."""
    try:
        return Shown(writer.make([writer.parse(data, len(HEAD))]))
    except Exception:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """An array of one value. NaN equals NaN. What is below a null makes no difference."""

    array: pa.Array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shown) or self.array.equals(other.array):
            return isinstance(other, Shown)
        try:
            return repr(self.array.to_pylist()) == repr(other.array.to_pylist())
        except (OverflowError, ValueError):  # Python has not all times
            return str(self.array) == str(other.array)


def by_program(writer: Writer, records: list[bytes]) -> list[Any]:
    """Return what the kernel makes of the records, None for those that it refuses."""
    assert writer.program is not None
    rows, starts = np.arange(len(records)), np.full(len(records), len(HEAD))
    found: list[Any] = []
    for array, is_read in writer.program.decoded(pa.array(records, pa.binary()), rows, starts):
        array.validate(full=True)
        values = (Shown(array.slice(row, 1)) for row in range(len(array)))
        found.extend(next(values) if one else None for one in is_read)
    return found


def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Return a record with a mistake: cut off, longer, or with other bytes."""
    mutable = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(len(HEAD), len(mutable)))
        more = draw(st.binary(max_size=3) | st.sampled_from([b"\xff" * 9 + b"\1", b"\1", b"\x80\x80\1", b"\x80\0"]))
        mutable[place : place + draw(st.integers(0, 3))] = more
    return bytes(mutable)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Writer, list[bytes], list[bytes]]:
    """A writer with records of it, and the same with mistakes."""
    pair = draw(pairs())
    good = encoded(pair.writer, draw(st.lists(pair.values, min_size=1, max_size=5)))
    return writer_of(pair.writer, pair.reader), good, [changed(draw, one) for one in good]


@given(cases())
def test_what_the_kernel_takes_is_what_pythons_decoder_makes(case: tuple[Writer, list[bytes], list[bytes]]) -> None:
    writer, good, bad = case
    if writer.program is None:
        return event("no program")
    assert by_program(writer, good) == [reference(writer, one) for one in good]
    for records in (bad, [one for pair in zip(good, bad, strict=True) for one in pair]):
        for found, one in zip(by_program(writer, records), records, strict=True):
            assert found is None or found == reference(writer, one)
    return event("a program")


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": of, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
INNER = record("string", ["null", "long"], name="Inner")
KINDS = [
    "boolean", "int", "long", "float", "double", "bytes", "string", ENUM, FOUR, INNER,
    logical("int", "date"), logical("int", "time-millis"), logical("long", "time-micros"),
    logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), logical("long", "timestamp-nanos"),
    logical("long", "local-timestamp-micros"), logical("string", "uuid"),
    logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=38, scale=0),
    logical("fixed", "decimal", name="F", size=4, precision=9, scale=2),
    {"type": "array", "items": "long"}, {"type": "array", "items": ["null", INNER]},
    {"type": "map", "values": ["null", "string"]}, {"type": "map", "values": {"type": "array", "items": INNER}},
]  # fmt: skip
BYTES = st.binary(max_size=12) | st.lists(
    st.sampled_from([b"\0", b"\1", b"\2", b"\4", b"\x80", b"\xff", b"a", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90"]),
    max_size=10,
).map(b"".join)


@functools.cache
def of_kind(number: int, form: str) -> Writer:
    kind = KINDS[number]
    written = record({"null first": ["null", kind], "null last": [kind, "null"]}.get(form, kind), "int")
    fields = written["fields"][form == "left out" :]
    return writer_of(written, {**written, "fields": fields})


@given(
    st.sampled_from(range(len(KINDS))),
    st.sampled_from(["kept", "null first", "null last", "left out"]),
    st.lists(BYTES, min_size=1, max_size=20),
)
def test_any_bytes_of_each_type_are_taken_as_by_pythons_decoder_or_refused(
    number: int, form: str, data: list[bytes]
) -> None:
    writer = of_kind(number, form)
    records = [HEAD + each for each in data]
    for found, each in zip(by_program(writer, records), records, strict=True):
        assert found is None or found == reference(writer, each)


BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)


@pytest.mark.parametrize(
    ("written", "to", "payload", "expected"),
    [
        ("long", "long", b"\xff" * 9 + b"\1", -(2**63)), ("int", "long", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("int", "float", b"\x82\x80\x80\x10", float(2**24)), ("float", "double", struct.pack("<f", 0.5), 0.5),
        ("string", "string", b"\x0c\xf0\x9f\x90\x8d\xc3\xa9", "\U0001f40d\u00e9"), ("string", "bytes", b"\2a", b"a"),
        ("bytes", "string", b"\2a", "a"), (ENUM, ENUM, b"\2", "B"), (FOUR, FOUR, b"abcd", b"abcd"),
        (["null", "long"], ["null", "long"], b"\0", None), (["long", "null"], "long", b"\0\2", 1),
        ("long", ["null", "long"], b"\2", 1), (["null", INNER], ["null", INNER], b"\0", None),
        (["null", INNER], ["null", INNER], b"\2\2a\0", {"f0": "a", "f1": None}),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-nanos"), b"\1", -1),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), b"\1", BEFORE_1970),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "long"}, b"\3\4\2\1\2\4\0", [1, -1, 2]),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "long"}, b"\2\2k\2\0", [("k", 1)]),
    ],
)  # fmt: skip
def test_usual_values_are_taken(written: Any, to: Any, payload: bytes, expected: Any) -> None:
    writer = writer_of(record(written), record(to))
    assert [reference(writer, HEAD + payload)] == by_program(writer, [HEAD + payload])
    ((array, _),) = writer.program.decoded(
        pa.array([payload], pa.binary()), np.zeros(1, np.int64), np.zeros(1, np.int64)
    )
    assert array.to_pylist() == [{"f0": expected}]


NUMBER = logical("bytes", "decimal", precision=2, scale=0)


@pytest.mark.parametrize(
    ("written", "to", "payload"),
    [
        ("boolean", "boolean", b"\2"), ("long", "long", b"\xff" * 9 + b"\2"), ("long", "long", b"\xff" * 10 + b"\1"),
        ("int", "int", b"\x80\x80\x80\x80\x10"), (ENUM, ENUM, b"\4"), (ENUM, ENUM, b"\1"), (FOUR, FOUR, b"abc"),
        (["null", "long"], "long", b"\0"), (["null", "long"], ["null", "long"], b"\4\2"),
        (["null", "long"], ["null", "long"], b"\1\2"), (NUMBER, NUMBER, b"\2\x64"), (NUMBER, NUMBER, b"\2\x9c"),
        ("string", "string", b"\2\xff"), ("string", "string", b"\6\xed\xa0\x80"), ("string", "string", b"\4\xc0\x80"),
        ("string", "string", b"\6\xe0\x80\x80"), ("string", "string", b"\x08\xf4\x90\x80\x80"),
        ("string", "string", b"\4\xc3a"), ("string", "string", b"\1a"), ("bytes", "bytes", b"\4a"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), b"\xff" * 9 + b"\1"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "long"}, b"\xff" * 9 + b"\1\0"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "long"}, b"\2\2"),
    ],
)  # fmt: skip
def test_what_no_writer_writes_is_left_to_pythons_decoder(written: Any, to: Any, payload: bytes) -> None:
    writer = writer_of(record(written), record(to))
    assert by_program(writer, [HEAD + payload]) == [None]


def test_bytes_behind_the_end_are_refused() -> None:
    writer = writer_of(record("long"), record("long"))
    assert by_program(writer, [HEAD + b"\2\0", HEAD + b"\2"]) == [None, reference(writer, HEAD + b"\2")]


def test_a_record_that_is_refused_leaves_nothing_among_the_others() -> None:
    whole = record("string", ["null", INNER], {"type": "array", "items": ["null", "string"]}, "boolean", ENUM, "long")
    good = HEAD + b"\2a" + b"\2\2b\2\4" + b"\4\2\2c\0\0" + b"\1" + b"\2" + b"\2"
    writer = writer_of(whole, whole)
    expected = reference(writer, good)
    assert expected is not None
    records = [good, *(good[:end] for end in range(len(HEAD), len(good))), good, good + b"\0", good]
    found = by_program(writer, records)
    assert [one for one in found if one is not None] == [expected] * 3
    assert [place for place, one in enumerate(found) if one is not None] == [0, len(records) - 3, len(records) - 1]


def test_lengths_that_the_bytes_claim_allocate_nothing() -> None:
    whole = record({"type": "array", "items": "long"}, {"type": "map", "values": "string"}, "string", "bytes")
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
    writer = writer_of(whole, whole)
    records = [HEAD + start + huge for start in (b"", b"\0", b"\0\0", b"\0\0\0", b"\2\2\0\2")] * 50
    assert by_program(writer, records) == [None] * len(records)


def test_a_default_is_made_once_a_record_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_program, "MOST_REPEATED_BYTES", 100)
    monkeypatch.setattr(arrays, "MOST_REPEATED_BYTES", 100)
    new = {"name": "new", "type": "string", "default": "x" * 20}
    to = record("long")
    to["fields"].append(new)
    writer = writer_of(record("long"), to)
    assert by_program(writer, [HEAD + b"\2"] * 10) == [reference(writer, HEAD + b"\2")] * 10


def test_a_map_with_a_key_twice_or_with_many_keys_is_refused() -> None:
    whole = record({"type": "map", "values": "long"})
    writer = writer_of(whole, whole)
    twice = HEAD + b"\4\2k\2\2k\4\0"
    many = HEAD + b"\x42" + b"".join(b"\2" + bytes([65 + key]) + b"\2" for key in range(33)) + b"\0"
    assert by_program(writer, [twice, many]) == [None, None]
    assert reference(writer, many) is not None


def test_structs_in_arrays_have_a_bound_in_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record({"type": "array", "items": ["null", record("long", "long", name="Two")]})
    monkeypatch.setattr(avro_program, "MOST_STRUCTS_BYTES", 80)
    monkeypatch.setattr(arrays, "MOST_STRUCTS_BYTES", 80)
    writer = writer_of(whole, whole)
    ten, more = HEAD + b"\x14" + bytes(11), HEAD + b"\x16" + bytes(12)
    assert by_program(writer, [ten, more, ten]) == [reference(writer, ten), None, reference(writer, ten)]
    assert reference(writer, ten) is not None and reference(writer, more) is None


def test_an_int_of_more_than_32_bits_is_refused() -> None:
    for to in ("long", "float", "double"):
        writer = writer_of(record("int"), record(to))
        wide = [HEAD + b"\x80\x80\x80\x80\x10", HEAD + b"\x81\x80\x80\x80\x10"]
        assert by_program(writer, wide) == [None, None] == [reference(writer, one) for one in wide]


DURATION = logical("fixed", "duration", name="D", size=12)
DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
WITH_DEFAULT = {**INNER, "fields": [*INNER["fields"], {"name": "new", "type": "int", "default": 1}]}


@pytest.mark.parametrize(
    ("written", "to"),
    [
        (["int", "string"], ["int", "string"]), (["null", "int", "string"], ["null", "string"]),
        ("int", ["string", "int"]), (DURATION, DURATION), (DECIMAL, {**DECIMAL, "precision": 7, "scale": 4}),
        (ENUM, {**ENUM, "symbols": ["A"]}), (["null", "string"], ["null", "int"]),
        ({"type": "array", "items": INNER}, {"type": "array", "items": WITH_DEFAULT}),
    ],
)  # fmt: skip
def test_schemas_outside_of_the_subset_have_no_program(written: Any, to: Any) -> None:
    assert writer_of(record(written), record(to)).program is None


def test_without_the_kernel_there_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_program, "KERNEL", fallback())
    assert writer_of(record("long"), record("long")).program is None
