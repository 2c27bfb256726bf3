"""Makes Arrow arrays of decoded Python values. Runs on executors; the opposite of values.py.

A `Make` takes a list of values without nulls and returns an array of as many, of exactly the Arrow type that Spark
expects. Whole columns are converted, not rows. A value that does not fit raises BadRecord, whose text has the place and
never the value: `decoding.py` finds the record by halving the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

Make = Callable[[list[Any]], pa.Array]

# Of a struct: how a field's values are taken from those of the struct, and what makes its array.
Take = Callable[[list[Any]], list[Any]]


# What defaults may make of one list of values.
MOST_REPEATED_BYTES = 64 * 1024 * 1024
# Of the items of one list of values, if they are structs: an item of a byte may have a thousand fields that are null.
MOST_STRUCTS_BYTES = 256 * 1024 * 1024
# Of a value, about: an offset, or a number.
_LEAF_BYTES = 4


class BadRecord(Exception):
    """A record cannot be decoded. The text is shown to users: it has no part of the record."""


def place(path: str) -> str:
    """Return the words for a path in an error."""
    return path or "the whole"


ARROW: dict[type[T.DataType], pa.DataType] = {
    T.NullType: pa.null(), T.BooleanType: pa.bool_(), T.IntegerType: pa.int32(), T.LongType: pa.int64(),
    T.FloatType: pa.float32(), T.DoubleType: pa.float64(), T.StringType: pa.string(), T.BinaryType: pa.binary(),
    T.DateType: pa.date32(), T.TimestampType: pa.timestamp("us", "UTC"), T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
}  # fmt: skip


def arrow_type(data_type: T.DataType) -> pa.DataType:
    """Return the type that Spark expects of an Arrow UDF. Spark's own function has other arguments in each version."""
    match data_type:
        case T.StructType(fields=fields):
            return pa.struct([pa.field(one.name, arrow_type(one.dataType), one.nullable) for one in fields])
        case T.ArrayType(elementType=element, containsNull=has_null):
            return pa.list_(pa.field("element", arrow_type(element), has_null))
        case T.MapType(keyType=key, valueType=value, valueContainsNull=has_null):
            return pa.map_(pa.field("key", arrow_type(key), False), pa.field("value", arrow_type(value), has_null))
        case T.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
    return ARROW[type(data_type)]


@dataclass(frozen=True, slots=True)
class Leaf:
    """Makes values without parts. The error of a value that does not fit has the place."""

    path: str
    convert: Make

    def __call__(self, values: list[Any]) -> pa.Array:
        try:
            return self.convert(values)
        except UnicodeDecodeError:
            raise BadRecord(f"{place(self.path)}: it is not UTF-8") from None
        except (pa.ArrowException, ArithmeticError, ValueError):
            raise BadRecord(f"{place(self.path)}: the value does not fit the type") from None


@dataclass(frozen=True, slots=True)
class Plain:
    """Makes values as pyarrow does, which takes None too."""

    data_type: pa.DataType

    def __call__(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self.data_type)


def struct(data_type: pa.DataType, fields: Sequence[tuple[Take, Make]]) -> Make:
    def made(values: list[Any]) -> pa.Array:
        children = [make(take(values)) for take, make in fields]
        return pa.Array.from_buffers(data_type, len(values), [None], children=children)

    return made


def items(data_type: pa.DataType, item: Make) -> Make:
    """Make lists. Each value is a sequence."""

    width_bytes = width_bytes_of(data_type.value_type)

    def made(values: list[Any]) -> pa.Array:
        _check_size(values, width_bytes)
        child = item([one for value in values for one in value])
        return pa.Array.from_buffers(data_type, len(values), [None, _offsets(values)], children=[child])

    return made


def entries(data_type: pa.DataType, key: Make, value: Make) -> Make:
    """Make maps. Each value is a dict."""

    width_bytes = width_bytes_of(data_type.item_type)

    def made(values: list[Any]) -> pa.Array:
        _check_size(values, width_bytes)
        keys = key([one for each in values for one in each])
        held = value([each[one] for each in values for one in each])
        both = pa.Array.from_buffers(pairs(data_type), len(keys), [None], children=[keys, held])
        return pa.Array.from_buffers(data_type, len(values), [None, _offsets(values)], children=[both])

    return made


def width_bytes_of(data_type: pa.DataType) -> int:
    """Return what a null of a struct takes, without validity; 0 for other types, which take little."""
    if not pa.types.is_struct(data_type):
        return 0
    types = [data_type.field(i).type for i in range(data_type.num_fields)]
    return sum(width_bytes_of(one) or _LEAF_BYTES for one in types)


def _check_size(values: list[Any], width_bytes: int) -> None:
    if width_bytes and sum(map(len, values)) * width_bytes > MOST_STRUCTS_BYTES:
        raise BadRecord(f"the structs in its arrays or maps take more than {MOST_STRUCTS_BYTES} bytes")


def pairs(data_type: pa.DataType) -> pa.DataType:
    return pa.struct([data_type.key_field, data_type.item_field])


def _offsets(values: Iterable[Any]) -> pa.Buffer:
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return pa.py_buffer(ends.astype(np.int32))


def nullable(make: Make, data_type: pa.DataType) -> Make:
    """Let values be None. `make` gets the others."""
    if isinstance(make, Leaf) and isinstance(make.convert, Plain):
        return make

    def made(values: list[Any]) -> pa.Array:
        present = [value for value in values if value is not None]
        if len(present) == len(values):
            return make(values)
        if not present:
            return pa.nulls(len(values), data_type)
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        return make(present).take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    return made


def not_null(make: Make, path: str) -> Make:
    """Refuse None."""

    def made(values: list[Any]) -> pa.Array:
        if any(value is None for value in values):
            raise BadRecord(f"{place(path)}: it is null, where the reader's schema has no null")
        return make(values)

    return made


@dataclass(slots=True)
class Constants:
    """Repeats values, whatever is given. All of them together have a bound on what they make of one list: a record of a
    few bytes may have a million items."""

    size_bytes: int = 0

    def make(self, array: pa.Array) -> Make:
        """Repeat the only value of `array`."""
        self.size_bytes += array.nbytes

        def made(values: list[Any]) -> pa.Array:
            if len(values) * self.size_bytes > MOST_REPEATED_BYTES:
                raise BadRecord(f"with the reader's defaults it takes more than {MOST_REPEATED_BYTES} bytes")
            return array.take(pa.array(np.zeros(len(values), np.int64)))

        return made


def refused(data_type: pa.DataType, reason: str) -> Make:
    """Refuse every value."""

    def made(values: list[Any]) -> pa.Array:
        if values:
            raise BadRecord(reason)
        return pa.nulls(0, data_type)

    return made


def chosen(data_type: pa.DataType, makes: dict[str, Make]) -> Make:
    """Make values of a union. A value is a dict with one entry: the branch, and the branch's value. None is null."""

    def made(values: list[Any]) -> pa.Array:
        by_branch: dict[str, list[Any]] = {branch: [] for branch in makes}
        rows: dict[str, list[int]] = {branch: [] for branch in makes}
        for number, value in enumerate(values):
            if value is not None:
                ((branch, inner),) = value.items()
                by_branch[branch].append(inner)
                rows[branch].append(number)
        used = [branch for branch in makes if by_branch[branch]]
        if not used:
            return pa.nulls(len(values), data_type)
        arrays = [makes[branch](by_branch[branch]) for branch in used]
        return placed(pa.concat_arrays(arrays), [row for branch in used for row in rows[branch]], len(values))

    return made


def placed(array: pa.Array, rows: Sequence[int] | np.ndarray[Any, Any], length: int) -> pa.Array:
    """Return an array of `length`: element i of `array` at row rows[i], null elsewhere."""
    places = np.full(length, -1, np.int64)
    places[np.asarray(rows, np.int64)] = np.arange(len(rows))
    return array.take(pa.array(places, mask=places < 0))


# --- numbers ----------------------------------------------------------------------------------------------------------


def floats(data_type: pa.DataType) -> Make:
    """Make floats of whole numbers: the nearest, as Java's casts."""
    kind = np.float32 if data_type == pa.float32() else np.float64
    return lambda values: pa.array(np.array(values, np.int64).astype(kind), data_type)


def scaled(data_type: pa.DataType, factor: int, divisor: int = 1) -> Make:
    """Make whole numbers or times: value * factor // divisor, rounded down. Raises for more than 64 bits."""
    whole = pa.int32() if data_type in (pa.int32(), pa.date32()) else pa.int64()
    if factor == divisor == 1:
        return lambda values: pa.array(values, whole).cast(data_type)
    return lambda values: pa.array([value * factor // divisor for value in values], whole).cast(data_type)


def decimals(data_type: pa.DataType, scale: int) -> Make:
    """Make decimals of unscaled numbers in two's complement, big-endian, with `scale`."""
    # Arrow's own cast to more digits behind the point wraps around 128 bits.
    factor = 10 ** max(0, data_type.scale - scale)
    read = data_type if data_type.scale >= scale else pa.decimal128(38, scale)

    def made(values: list[bytes]) -> pa.Array:
        # OverflowError if a number needs more than 16 bytes.
        numbers = (int.from_bytes(value, "big", signed=True) * factor for value in values)
        data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
        array = pa.Array.from_buffers(read, len(values), [None, pa.py_buffer(data)])
        array.validate(full=True)
        return array.cast(data_type)

    return made


# --- texts ------------------------------------------------------------------------------------------------------------


def decoded_texts(values: list[bytes]) -> pa.Array:
    return pa.array([value.decode("utf-8") for value in values], pa.string())


def uuids(values: list[bytes]) -> pa.Array:
    texts = (value.hex() for value in values)
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())
