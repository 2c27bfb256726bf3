"""What becomes of whole columns: numbers and bytes against Python's own arithmetic, whatever part of an array it is."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kafka_sink.errors import ValueNotInSchema
from kafka_sink.registry import values as V

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


A_UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


def test_a_uuid_is_text_in_any_case() -> None:
    values = [A_UUID, A_UUID.upper()]
    assert V.uuids(pa.array(["secret", *values]).slice(1), "c") == values
    assert V.uuids(pa.array([], pa.string()), "c") == []


@pytest.mark.parametrize(
    "text", ["", "secret", A_UUID.replace("-", ""), f"{{{A_UUID}}}", f"{A_UUID}\n", f" {A_UUID}", A_UUID[:-1] + "g"]
)
def test_what_is_no_uuid_is_an_error_of_its_row(text: str) -> None:
    with pytest.raises(ValueNotInSchema, match="UUID") as refused:
        V.uuids(pa.array([A_UUID, text]), "c")
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
