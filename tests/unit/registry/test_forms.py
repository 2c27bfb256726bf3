"""What the forms of schema share: what of columns is refused before a row, values, the frame, and a missing extra."""

from __future__ import annotations

import datetime as dt
import io
import sys
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from kafka_sink.errors import NameNotAllowed, RegistryExtraMissing, SchemaUnreadable, TypeNotMapped, ValueNotInSchema
from kafka_sink.registry import avro, json_schema, protobuf
from kafka_sink.registry import values as V
from kafka_sink.registry.extra import extra
from kafka_sink.registry.framing import framed, prefix
from kafka_sink.registry.unmapped import CAST, CAST_KEYS
from registry_rows import columns_of

DERIVED: dict[str, Callable[[T.StructType], str]] = {
    "avro": lambda columns: avro.derived(columns, "r"),
    "json": lambda columns: json_schema.derived(columns, "r"),
    "protobuf": lambda columns: protobuf.derived(columns, "r", None),
}
FITTED = {"avro": avro.fitted, "json": json_schema.fitted, "protobuf": protobuf.fitted}


@pytest.mark.parametrize(
    ("data_type", "path", "forms", "told"),
    [
        (T.DayTimeIntervalType(), "c", DERIVED, CAST), (T.CalendarIntervalType(), "c", DERIVED, CAST),
        (T.NullType(), "c", DERIVED, CAST), (T.VariantType(), "c", DERIVED, CAST),
        (T.MapType(T.DoubleType(), T.LongType()), "c", DERIVED, CAST_KEYS),
        (T.ArrayType(T.YearMonthIntervalType()), "c[]", DERIVED, CAST),
        (columns_of(within=T.ArrayType(columns_of(deep=T.NullType()))), "c.within[].deep", DERIVED, CAST),
        (T.MapType(T.LongType(), T.LongType()), "c", ["avro"], CAST_KEYS),
        (T.ArrayType(T.ArrayType(T.LongType())), "c[]", ["protobuf"], ""),
        (T.MapType(T.StringType(), T.ArrayType(T.LongType())), "c{}", ["protobuf"], ""),
    ],
)  # fmt: skip
def test_a_type_without_a_counterpart_is_named_by_its_path(
    data_type: T.DataType, path: str, forms: Iterable[str], told: str
) -> None:
    for form in forms:
        with pytest.raises(TypeNotMapped, match="No row of this write was sent") as refused:
            DERIVED[form](columns_of(c=data_type))
        assert refused.value.column == path and told in str(refused.value)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        *(("avro", (name,)) for name in ("a-b", "1st", "n\u00e4me", "with space", "")),
        *(("protobuf", names) for names in (("a-b",), ("1st",), ("n\u00e4me",), ("street_name", "streetName"))),
    ],
)
def test_a_name_that_the_form_has_not_is_refused(form: str, names: tuple[str, ...]) -> None:
    with pytest.raises(NameNotAllowed) as refused:
        DERIVED[form](columns_of(s=columns_of(**dict.fromkeys(names, T.LongType()))))
    assert refused.value.column == f"s.{names[-1]}"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("avro", text) for text in ("{", '"long"', '{"type": "record"}', '{"type": "nothing"}', "[]", "7")),
        *(("json", text) for text in ("{", "[]", "7", '{"properties": {"a": {"$ref": "#/nowhere"}}}')),
        *(("protobuf", text) for text in ("AAAA", "", "{", 'syntax = "proto3"; message M { int32 a = 0; }')),
    ],
)
def test_what_is_no_schema_is_said_to_be_none(form: str, text: str) -> None:
    with pytest.raises(SchemaUnreadable):
        FITTED[form](text, columns_of(a=T.LongType()) if form == "json" else columns_of())


EPOCH = dt.datetime(1970, 1, 1)


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimals_bytes_are_as_many_as_its_largest_and_smallest_number_take(precision: int) -> None:
    most = 10**precision - 1
    size_bytes = V.decimal_bytes(precision)
    # The first is the least that holds both signs: one byte less does not.
    assert most.to_bytes(size_bytes, "big", signed=True)
    with pytest.raises(OverflowError):
        most.to_bytes(size_bytes - 1, "big", signed=True)
    numbers = pa.array([Decimal(7), Decimal(most), Decimal(-most), Decimal(0)], pa.decimal128(precision, 0))
    written = V.unscaled_bytes(size_bytes)(numbers.slice(1), "c")
    assert [int.from_bytes(one, "big", signed=True) for one in written] == [most, -most, 0]


@pytest.mark.parametrize("micros", [-1, 0, 1, -1_000_001, 1_709_206_496_123_456, -62_135_596_800_000_000])
def test_times_before_and_after_1970(micros: int) -> None:
    array = pa.array([micros], pa.timestamp("us"))
    moment = EPOCH + dt.timedelta(microseconds=micros)
    assert V.micros(array, "c") == [micros]
    assert V.millis(array, "c") == [micros // 1000]
    assert V.seconds_and_nanos(array, "c") == [{"seconds": micros // 10**6, "nanos": micros % 10**6 * 1000}]
    date = {"year": moment.year, "month": moment.month, "day": moment.day}
    time = {"hours": moment.hour, "minutes": moment.minute, "seconds": moment.second, "nanos": micros % 10**6 * 1000}
    assert V.datetime_parts(array, "c") == [date | time]
    assert V.date_parts(pa.array([moment.date()]), "c") == [date]
    assert V.days(pa.array([moment.date()]), "c") == [(moment.date() - EPOCH.date()).days]


def test_a_uuid_is_text_in_any_case_and_what_is_none_is_an_error_of_its_row() -> None:
    a_uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    values = [a_uuid, a_uuid.upper()]
    assert V.uuids(pa.array(["secret", *values]).slice(1), "c") == values
    assert V.uuids(pa.array([], pa.string()), "c") == []
    others = f"{{{a_uuid}}}", f"{a_uuid}\n", f" {a_uuid}", a_uuid[:-1] + "g"
    for text in ("", "secret", a_uuid.replace("-", ""), *others):
        with pytest.raises(ValueNotInSchema, match="UUID") as refused:
            V.uuids(pa.array([a_uuid, text]), "c")
        assert refused.value.column == "c" and "secret" not in str(refused.value)


FIRST_MICRO, LAST_MICRO = -62_135_596_800_000_000, 253_402_300_799_999_999


def test_a_time_of_the_first_and_last_year_can_be_read_as_json() -> None:
    written = V.seconds_and_nanos(pa.array([FIRST_MICRO, LAST_MICRO], pa.timestamp("us")), "at")
    said = [Timestamp(**one).ToJsonString() for one in written]
    assert said == ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]


@pytest.mark.parametrize("micros", [FIRST_MICRO - 1, LAST_MICRO + 1, -(2**63), 2**63 - 1])
def test_a_time_or_year_that_no_reader_can_say_is_an_error_of_its_row(micros: int) -> None:
    days = {FIRST_MICRO - 1: -719_163}.get(micros, 2_932_897)
    for convert, values in (
        (V.seconds_and_nanos, pa.array([0, micros], pa.timestamp("us"))),
        (V.datetime_parts, pa.array([0, micros], pa.timestamp("us"))),
        (V.date_parts, pa.array([0, days], pa.int32()).cast(pa.date32())),
    ):
        with pytest.raises(ValueNotInSchema, match="1 to 9999") as refused:
            convert(values, "at")
        assert refused.value.column == "at"


IDS = st.integers(0, 2**31 - 1)


@given(IDS, st.lists(st.integers(0, 2**20), max_size=3))
def test_the_official_client_reads_and_writes_the_same(schema_id: int, indexes: list[int]) -> None:
    head = prefix(schema_id, indexes)
    official = SchemaId("PROTOBUF" if indexes else "AVRO")
    rest = official.from_bytes(io.BytesIO(head + b"payload"))
    assert (official.id, official.message_indexes or []) == (schema_id, indexes)
    assert rest.read() == b"payload"
    assert SchemaId("PROTOBUF", schema_id, None, indexes or None).id_to_bytes() == head


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20))
def test_rows_are_framed_and_null_stays_null(rows: list[bytes | None]) -> None:
    array = framed(b"\0id", rows, lambda data, row: data.write(row))
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == [None if row is None else b"\0id" + row for row in rows]


def test_more_than_an_array_of_binary_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(io.BytesIO):
        def tell(self) -> int:
            return 2**31

    monkeypatch.setattr("kafka_sink.registry.framing.io.BytesIO", Far)
    with pytest.raises(OverflowError, match="maxRecordsPerBatch"):
        framed(b"", [b""], lambda data, row: data.write(row))


NOTHING_SENT = "No row of this write was sent."


COLUMNS = T.StructType([T.StructField("missing_on_executors", T.LongType())])
ROWS = pa.array([{"missing_on_executors": 1}])
AVRO = avro.fitted(avro.derived(COLUMNS, "r"), COLUMNS)
PROTOBUF = protobuf.fitted(protobuf.derived(COLUMNS, "r", None), COLUMNS)


@pytest.mark.parametrize("module", ["fastavro", "google.protobuf.message_factory", "google.protobuf.descriptor_pool"])
def test_an_executor_without_it_says_that_rows_may_be_written(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Classes of messages that were met before are kept.
    unmet = protobuf.fitted(protobuf.derived(COLUMNS, f"r_{uuid.uuid4().hex}", None), COLUMNS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegistryExtraMissing) as missing:
        if module == "fastavro":
            avro.encoded(ROWS, b"", AVRO.written, AVRO.plan)
        else:
            protobuf.encoded(ROWS, b"", unmet.files, unmet.name, unmet.plan)
    assert missing.value.module == module
    assert "all its rows are sent again" in str(missing.value) and NOTHING_SENT not in str(missing.value)


def test_the_driver_without_it_says_that_no_row_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryExtraMissing, match=r"pip install 'pyspark-pykafka\[registry\]'") as missing:
        extra("fastavro_that_nobody_has")
    assert (missing.value.module, missing.value.parts().data) == ("fastavro_that_nobody_has", NOTHING_SENT)
    for module, fitted, text in (
        ("fastavro", avro.fitted, AVRO.text), ("google.protobuf.descriptor_pool", protobuf.fitted, PROTOBUF.text),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(RegistryExtraMissing, match=NOTHING_SENT):
            fitted(text, COLUMNS)
