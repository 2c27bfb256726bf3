"""Converts an Arrow batch to Python values for fastavro and google.protobuf. Runs on executors.

The driver fits a schema to the DataFrame's types, and makes a plan (`Values`): the conversion of each column, and if it
may be null. This module converts and checks whole columns. So the libraries get only valid values: their own errors
would quote the row. numpy converts timestamps, dates and decimals to numbers and bytes, without Python objects.

Raises ValueNotInSchema, with the column's path and never its payload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import ValueNotInSchema

# The text of RFC 4122, which both Java's and Python's UUID can read.
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

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


Values = Leaf | Record | Items | Entries


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


def unscaled_bytes(size_bytes: int) -> Convert:
    """Convert decimals to their unscaled numbers: big-endian two's complement, `size_bytes` for each.

    Arrow has 16 bytes, little-endian. `size_bytes` must be enough for the precision.
    """

    def convert(array: pa.Array, column: str) -> list[Any]:
        little = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
        data = np.ascontiguousarray(little.reshape(-1, 16)[:, ::-1][:, 16 - size_bytes :]).tobytes()
        return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]

    return convert


def decimal_parts(size_bytes: int, precision: int, scale: int) -> Convert:
    """Convert decimals to the fields of confluent.type.Decimal."""
    unscaled = unscaled_bytes(size_bytes)

    def convert(array: pa.Array, column: str) -> list[Any]:
        return [{"value": value, "precision": precision, "scale": scale} for value in unscaled(array, column)]

    return convert


def decimal_bytes(precision: int) -> int:
    """Return the bytes that every number with `precision` digits and a sign fits into.

    >>> [decimal_bytes(digits) for digits in (2, 3, 9, 18, 38)]
    [1, 2, 4, 8, 16]
    """
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


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
