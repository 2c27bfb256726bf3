"""Converts an Arrow batch to Python values for fastavro and google.protobuf. Runs on executors.

The driver fits a schema to the DataFrame's types, and makes a plan (`Values`): the conversion of each column, and if it
may be null. This module converts and checks whole columns. So the libraries get only valid values: their own errors
would quote the row. numpy converts timestamps, dates and decimals to numbers and bytes, without Python objects.

Raises ValueNotInSchema, with the column's path and never its payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import ValueNotInSchema

# The text of RFC 4122, which both Java's and Python's UUID can read.
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

MOST_MICROS_IN_NANOS = (2**63 - 1) // 1000
# The least number that takes 2 bytes with its sign, 3, to 8; of two digits, three, to twenty.
LEAST_OF_SIZE = np.array([1 << bits for bits in range(7, 63, 8)], np.int64)
POWERS_OF_10 = np.array([10**digits for digits in range(1, 20)], np.uint64)

# Rows that are Python's objects at a time. More would outlive the garbage collector's first looks at them, which made
# writing 10 to 15 percent slower.
CHUNK_ROWS = 256

# (values without nulls, path of the column) -> as many Python values
Convert = Callable[[pa.Array, str], list[Any]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value. `why_no_null` is None if the schema allows null, else the text of the error."""

    column: str
    why_no_null: str | None
    convert: Convert


@dataclass(frozen=True, slots=True)
class Record:
    column: str
    why_no_null: str | None
    fields: tuple[tuple[str, Values], ...]


@dataclass(frozen=True, slots=True)
class Items:
    column: str
    why_no_null: str | None
    item: Values


@dataclass(frozen=True, slots=True)
class Entries:
    column: str
    why_no_null: str | None
    key: Leaf
    value: Values


@dataclass(frozen=True, slots=True)
class Branch:
    """A value of a union, with the name of its type. Without the name fastavro would try each type on each value, and
    take the first that holds it."""

    name: str
    of: Single

    @property
    def column(self) -> str:
        return self.of.column

    @property
    def why_no_null(self) -> str | None:
        return self.of.why_no_null


Single = Leaf | Record | Items | Entries
Values = Single | Branch


def python_rows(rows: pa.Array, plan: Values) -> Iterator[Any]:
    """Yield one value for each row, None for a null. Raises ValueNotInSchema."""
    for first in range(0, len(rows), CHUNK_ROWS):
        yield from python_values(rows.slice(first, CHUNK_ROWS), plan)


def python_values(array: pa.Array, plan: Values) -> list[Any]:
    """Return one value for each element of `array`, None for a null. Raises ValueNotInSchema."""
    if not array.null_count:
        return _present(array, plan)
    if plan.why_no_null is not None:
        raise ValueNotInSchema(column=plan.column, problem=plan.why_no_null)
    # The data below a null is undefined, and must not be checked.
    values = iter(_present(array.drop_null(), plan))
    return [next(values) if valid else None for valid in array.is_valid().to_numpy(zero_copy_only=False)]


def _present(array: pa.Array, plan: Values) -> list[Any]:
    match plan:
        case Leaf():
            return plan.convert(array, plan.column)
        case Record():
            if not plan.fields:  # of which zip would make no row
                return [{} for _ in range(len(array))]
            names = [name for name, _ in plan.fields]
            columns = [python_values(array.field(i), field) for i, (_, field) in enumerate(plan.fields)]
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        case Items():
            ends = array.offsets.to_numpy()
            items = python_values(array.values.slice(ends[0], ends[-1] - ends[0]), plan.item)
            return [items[start:end] for start, end in _ranges(ends)]
        case Entries():
            ends = array.offsets.to_numpy()
            keys = python_values(array.keys.slice(ends[0], ends[-1] - ends[0]), plan.key)
            entries = python_values(array.items.slice(ends[0], ends[-1] - ends[0]), plan.value)
            return [dict(zip(keys[start:end], entries[start:end], strict=True)) for start, end in _ranges(ends)]
        case Branch():
            return [(plan.name, value) for value in _present(array, plan.of)]


def _ranges(ends: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    ends = ends - ends[0]
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))


# --- conversions of a column without nulls ----------------------------------------------------------------------------


def plain(array: pa.Array, column: str) -> list[Any]:
    """Return bool, int, float, str or bytes."""
    try:
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    except (UnicodeDecodeError, pa.ArrowException):  # their text contains the value
        raise ValueNotInSchema(column=column, problem="is a string that is not UTF-8") from None
    return values


def uuids(array: pa.Array, column: str) -> list[Any]:
    values = plain(array, column)
    if not pc.all(pc.match_substring_regex(array, UUID), min_count=0).as_py():
        raise ValueNotInSchema(column=column, problem="is not of a UUID's form, 8-4-4-4-12 hexadecimal digits")
    return values


def uuid_bytes(array: pa.Array, column: str) -> list[Any]:
    """Return the 16 bytes of UUIDs, which are texts."""
    return [bytes.fromhex(value.replace("-", "")) for value in uuids(array, column)]


def unsigned(array: pa.Array, column: str) -> list[Any]:
    numbers = array.to_numpy(zero_copy_only=False)
    if numbers.size and numbers.min() < 0:
        raise ValueNotInSchema(column=column, problem="is negative, where the schema has an unsigned number")
    values: list[Any] = numbers.tolist()
    return values


def days(array: pa.Array, column: str) -> list[Any]:
    """Return days since 1970."""
    return plain(array.cast(pa.int32()), column)


def micros(array: pa.Array, column: str) -> list[Any]:
    """Return microseconds since 1970. For a timestamp without a time zone, since 1970 in local time."""
    return plain(array.cast(pa.int64()), column)


def millis(array: pa.Array, column: str) -> list[Any]:
    """Return milliseconds since 1970, rounded down, as Spark's to_avro does."""
    values: list[Any] = (array.cast(pa.int64()).to_numpy() // 1000).tolist()
    return values


def nanos(array: pa.Array, column: str) -> list[Any]:
    """Return nanoseconds since 1970. 64 bits hold those of the years 1678 to 2261."""
    micros_since_1970 = array.cast(pa.int64()).to_numpy()
    if micros_since_1970.size and max(-micros_since_1970.min(), micros_since_1970.max()) > MOST_MICROS_IN_NANOS:
        raise ValueNotInSchema(column=column, problem="is not of the years 1678 to 2261, which nanoseconds can hold")
    values: list[Any] = (micros_since_1970 * 1000).tolist()
    return values


def time_micros(array: pa.Array, column: str) -> list[Any]:
    """Return microseconds since midnight. Arrow has nanoseconds, Spark no more than six digits of a second."""
    values: list[Any] = (array.cast(pa.int64()).to_numpy() // 1_000).tolist()
    return values


def time_millis(array: pa.Array, column: str) -> list[Any]:
    """Return milliseconds since midnight."""
    values: list[Any] = (array.cast(pa.int64()).to_numpy() // 1_000_000).tolist()
    return values


def seconds_and_nanos(array: pa.Array, column: str) -> list[Any]:
    """Return the fields of google.protobuf.Timestamp."""
    micros_since_1970 = array.cast(pa.int64()).to_numpy()
    _check_years(micros_since_1970.astype("datetime64[us]"), column, "google.protobuf.Timestamp")
    seconds, rest = np.divmod(micros_since_1970, 1_000_000)
    return _records(seconds=seconds, nanos=rest * 1000)


def date_parts(array: pa.Array, column: str) -> list[Any]:
    """Return the fields of google.type.Date."""
    return _records(**_civil(array.cast(pa.int32()).to_numpy().astype("datetime64[D]"), column))


def datetime_parts(array: pa.Array, column: str) -> list[Any]:
    """Return the fields of google.type.DateTime, without an offset: a timestamp without a time zone is civil time."""
    moments = array.cast(pa.int64()).to_numpy().astype("datetime64[us]")
    dates = moments.astype("datetime64[D]")
    second_of_day, micro = np.divmod((moments - dates).astype(np.int64), 1_000_000)
    minute_of_day, seconds = np.divmod(second_of_day, 60)
    hours, minutes = np.divmod(minute_of_day, 60)
    return _records(**_civil(dates, column), hours=hours, minutes=minutes, seconds=seconds, nanos=micro * 1000)


def _civil(dates: np.ndarray[Any, Any], column: str) -> dict[str, np.ndarray[Any, Any]]:
    years = _check_years(dates, column, "google.type")
    months = dates.astype("datetime64[M]")
    days_of_month = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    return {"year": years, "month": months.astype(np.int64) % 12 + 1, "day": days_of_month}


def _check_years(moments: np.ndarray[Any, Any], column: str, holder: str) -> np.ndarray[Any, Any]:
    """Return the years. Raises ValueNotInSchema for others than 1 to 9999, which readers cannot convert to JSON."""
    years = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    if years.size and (years.min() < 1 or years.max() > 9999):
        raise ValueNotInSchema(column=column, problem=f"is not of the years 1 to 9999, which {holder} has")
    return years


def _records(**columns: np.ndarray[Any, Any]) -> list[Any]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def unscaled_bytes(array: pa.Array, column: str) -> list[Any]:
    """Return the unscaled numbers of decimals as java.math.BigInteger.toByteArray: big-endian two's complement, in as
    few bytes as the number takes."""
    low, high = _words(array)
    sizes = np.where(_is_low(low, high), _size_bytes(low), 8 + _size_bytes(high))
    ends = range(16, 16 * len(array) + 1, 16)
    data = _big_endian(array).tobytes()
    return [data[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]


def unscaled_fixed(size_bytes: int) -> Convert:
    """Convert decimals to their unscaled numbers in `size_bytes` each, extended by the sign."""

    def convert(array: pa.Array, column: str) -> list[Any]:
        big = _big_endian(array)
        sign = np.repeat((big[:, :1] >> 7) * 0xFF, max(0, size_bytes - 16), axis=1)
        data = np.hstack((sign, big[:, max(0, 16 - size_bytes) :])).tobytes()
        return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]

    return convert


def decimal_parts(scale: int) -> Convert:
    """Convert decimals to the fields of confluent.type.Decimal as Confluent's DecimalUtils: `precision` is that of
    java.math.BigDecimal, the number of digits of this unscaled number."""

    def convert(array: pa.Array, column: str) -> list[Any]:
        low, high = _words(array)
        digits = (np.searchsorted(POWERS_OF_10, np.abs(low).view(np.uint64), side="right") + 1).tolist()
        numbers = unscaled_bytes(array, column)
        for place in np.flatnonzero(~_is_low(low, high)).tolist():
            digits[place] = len(str(abs(int.from_bytes(numbers[place], "big", signed=True))))
        return [
            {"value": value, "precision": precision, "scale": scale}
            for value, precision in zip(numbers, digits, strict=True)
        ]

    return convert


# Arrow has 16 bytes for each decimal, in little-endian.


def _big_endian(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return a row of 16 bytes for each decimal."""
    little = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
    return np.ascontiguousarray(little.reshape(-1, 16)[:, ::-1])


def _words(array: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the lower and the higher 64 bits of each decimal."""
    words = np.frombuffer(array.buffers()[1], "<i8")[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0]), words[:, 1]


def _is_low(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return True where the higher bits are only the sign of the lower ones."""
    is_low: np.ndarray[Any, Any] = low >> 63 == high
    return is_low


def _size_bytes(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes that each number takes with its sign, 1 to 8."""
    sizes: np.ndarray[Any, Any] = np.searchsorted(LEAST_OF_SIZE, words ^ (words >> 63), side="right") + 1
    return sizes


def one_of(symbols: frozenset[str]) -> Convert:
    def convert(array: pa.Array, column: str) -> list[Any]:
        values = plain(array, column)
        if not symbols.issuperset(values):
            raise ValueNotInSchema(column=column, problem="is none of the names that the schema's enum has")
        return values

    return convert


def of_size(size_bytes: int) -> Convert:
    def convert(array: pa.Array, column: str) -> list[Any]:
        values = plain(array, column)
        if any(len(value) != size_bytes for value in values):
            raise ValueNotInSchema(column=column, problem=f"is not of {size_bytes} bytes, as the schema's fixed is")
        return values

    return convert


def wrapped(convert: Convert) -> Convert:
    """Convert to google.protobuf.Int64Value and similar messages: one field, for a value that may be missing."""

    def wrap(array: pa.Array, column: str) -> list[Any]:
        return [{"value": value} for value in convert(array, column)]

    return wrap
