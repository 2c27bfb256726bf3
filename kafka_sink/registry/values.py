"""An Arrow batch as the Python values that fastavro and google.protobuf take; runs on executors.

A plan (`Values`) is made on the driver, where a schema is fitted to the DataFrame's types, and says of each column what
becomes of it and whether it may be null. Here whole columns are converted and checked, so that the libraries are given
only what they can write: their own errors would quote the row. Timestamps, dates and decimals become numbers and bytes
with numpy, not Python objects.

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

# RFC 4122's text, which Java's UUID and Python's both read.
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

# (values without nulls, path of the column) -> as many Python values
Convert = Callable[[pa.Array, str], list[Any]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """`why_no_null`: None where the schema can hold a null, else what the error says of it."""

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
    """One value for each of `array`, None for a null."""
    if not array.null_count:
        return _present(array, plan)
    if plan.why_no_null is not None:
        raise ValueNotInSchema(column=plan.column, problem=plan.why_no_null)
    # What lies below a null is not a value, and is not to be checked as one.
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


# --- what becomes of a column without nulls ---------------------------------------------------------------------------


def plain(array: pa.Array, column: str) -> list[Any]:
    """bool, int, float, str or bytes."""
    try:
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    except (UnicodeDecodeError, pa.ArrowException):  # whose text is the value
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
    """Since 1970."""
    return plain(array.cast(pa.int32()), column)


def micros(array: pa.Array, column: str) -> list[Any]:
    """Since 1970; of a timestamp without a zone, since 1970 in its own."""
    return plain(array.cast(pa.int64()), column)


def millis(array: pa.Array, column: str) -> list[Any]:
    """Since 1970, rounded down, as Spark's to_avro does."""
    values: list[Any] = (array.cast(pa.int64()).to_numpy() // 1000).tolist()
    return values


def seconds_and_nanos(array: pa.Array, column: str) -> list[Any]:
    """google.protobuf.Timestamp's fields."""
    micros_since_1970 = array.cast(pa.int64()).to_numpy()
    _check_years(micros_since_1970.astype("datetime64[us]"), column, "google.protobuf.Timestamp")
    seconds, rest = np.divmod(micros_since_1970, 1_000_000)
    return _records(seconds=seconds, nanos=rest * 1000)


def date_parts(array: pa.Array, column: str) -> list[Any]:
    """google.type.Date's fields."""
    return _records(**_civil(array.cast(pa.int32()).to_numpy().astype("datetime64[D]"), column))


def datetime_parts(array: pa.Array, column: str) -> list[Any]:
    """google.type.DateTime's fields, without an offset: the civil time that a timestamp without a zone is."""
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
    """The years. What holds others is bytes that no reader can say as JSON."""
    years = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    if years.size and (years.min() < 1 or years.max() > 9999):
        raise ValueNotInSchema(column=column, problem=f"is not of the years 1 to 9999, which {holder} has")
    return years


def _records(**columns: np.ndarray[Any, Any]) -> list[Any]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def unscaled_bytes(size_bytes: int) -> Convert:
    """Of decimals the unscaled number, big-endian, two's complement, in as many bytes for each.

    Arrow has it in 16 bytes, little-endian; `size_bytes` are enough for the precision.
    """

    def convert(array: pa.Array, column: str) -> list[Any]:
        little = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
        data = np.ascontiguousarray(little.reshape(-1, 16)[:, ::-1][:, 16 - size_bytes :]).tobytes()
        return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]

    return convert


def decimal_parts(size_bytes: int, precision: int, scale: int) -> Convert:
    """confluent.type.Decimal's fields."""
    unscaled = unscaled_bytes(size_bytes)

    def convert(array: pa.Array, column: str) -> list[Any]:
        return [{"value": value, "precision": precision, "scale": scale} for value in unscaled(array, column)]

    return convert


def decimal_bytes(precision: int) -> int:
    """How many bytes any number of so many digits fits into, with its sign.

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
    """google.protobuf.Int64Value and its like: a message with one field, for a value that may be missing."""

    def wrap(array: pa.Array, column: str) -> list[Any]:
        return [{"value": value} for value in convert(array, column)]

    return wrap
