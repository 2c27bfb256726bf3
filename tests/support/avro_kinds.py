"""Random schemas of Avro, with types of Spark that fit and values of both. All values are such that fastavro takes the
same type of a union as Java, which knows the types of values."""

import datetime as dt
import functools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as T

from registry_rows import columns_of


@dataclass(frozen=True)
class Kind:
    """An Avro type, a Spark type that fits, and values, which the official serializer takes as well."""

    avro: Any
    spark: T.DataType
    values: st.SearchStrategy[Any]


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def is_where_python_differs(unscaled: int) -> bool:
    """fastavro writes -128, -32768, ... with one more byte than java.math.BigInteger. The next test has them."""
    return unscaled < 0 and -unscaled == 1 << ((-unscaled).bit_length() - 1) and (-unscaled).bit_length() % 8 == 0


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1).filter(lambda n: not is_where_python_differs(n))
    return unscaled.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))


def logical(avro_type: str, logical_type: Any, **more: Any) -> dict[str, Any]:
    return {"type": avro_type, "logicalType": logical_type, **more}


MOMENT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MOMENTS, LOCAL = st.datetimes(timezones=st.just(dt.UTC)), st.datetimes()
UUIDS = st.uuids().map(str)
STRINGS = st.text(max_size=5)
DECIMALS = [
    kind
    for precision, scale in ((1, 0), (4, 4), (9, 2), (18, 2), (19, 0), (38, 18))
    for numbers in [decimals(precision, scale)]
    for kind in (
        Kind(logical("bytes", "decimal", precision=precision, scale=scale), T.DecimalType(precision, scale), numbers),
        Kind(logical("fixed", "decimal", precision=38, scale=scale, size=17, name="?"),
             T.DecimalType(precision, scale), numbers),
    )
]  # fmt: skip
LEAVES = [
    Kind("boolean", T.BooleanType(), st.booleans()), Kind("int", T.IntegerType(), whole(32)),
    Kind("int", T.ByteType(), whole(8)), Kind("long", T.LongType(), whole(64)), Kind("long", T.ShortType(), whole(16)),
    Kind("float", T.FloatType(), st.floats(width=32, allow_nan=False)),
    Kind("double", T.DoubleType(), st.floats(allow_nan=False)), Kind("double", T.IntegerType(), whole(32)),
    Kind("string", T.StringType(), STRINGS), Kind("bytes", T.BinaryType(), st.binary(max_size=5)),
    Kind({"type": "enum", "name": "?", "symbols": ["RED", "BLUE"]}, T.StringType(), st.sampled_from(["RED", "BLUE"])),
    Kind({"type": "fixed", "name": "?", "size": 3}, T.BinaryType(), st.binary(min_size=3, max_size=3)),
    Kind(logical("int", "date"), T.DateType(), st.dates()), Kind(logical("string", "uuid"), T.StringType(), UUIDS),
    *(Kind(logical("long", f"timestamp-{unit}"), T.TimestampType(), MOMENTS) for unit in ("millis", "micros")),
    *(Kind(logical("long", f"local-timestamp-{unit}"), T.TimestampNTZType(), LOCAL) for unit in ("millis", "micros")),
    Kind(logical("int", "time-millis"), T.IntegerType(), whole(32)),
    *(Kind(logical("long", name), T.LongType(), whole(64))
      for name in ("time-micros", "timestamp-nanos", "local-timestamp-nanos")),
    # Avro ignores logical types that it has not, or that contradict their type. Debezium and Hive have some.
    *(Kind(logical("string", name), T.StringType(), STRINGS)
      for name in ("varchar", "char", "io.debezium.data.Json", "date", 5, ["x"])),
    Kind(logical("long", "io.debezium.time.NanoTime"), T.LongType(), whole(64)),
    Kind(logical("bytes", "big-decimal"), T.BinaryType(), st.binary(max_size=5)),
    Kind(logical("fixed", "duration", name="?", size=12), T.BinaryType(), st.binary(min_size=12, max_size=12)),
    *DECIMALS,
]  # fmt: skip
# Of a union: for the values of each, fastavro takes only one of the others.
APART = ("string", "bytes", "long", "boolean", "array", "record")


def nested(depth: int, entries: int = 3) -> st.SearchStrategy[Kind]:
    """Any type, with those within it. `entries`: the most of a map, which Java's reader puts into another order."""
    if depth == 0:
        return st.sampled_from(LEAVES)
    inner = nested(depth - 1, entries)
    maps = inner.map(functools.partial(map_of, entries=entries))
    return st.one_of(
        inner, inner.map(array_of), maps, inner.map(or_null), st.lists(inner, max_size=4).map(record_of),
        st.lists(st.sampled_from(APART), min_size=1, max_size=4, unique=True).flatmap(
            lambda others: st.builds(union_of, st.just(others), st.sampled_from([0, 1, None]), inner)),
    )  # fmt: skip


def array_of(kind: Kind) -> Kind:
    values = st.lists(kind.values, max_size=3)
    return Kind({"type": "array", "items": kind.avro}, T.ArrayType(kind.spark), values)


def map_of(kind: Kind, entries: int) -> Kind:
    values = st.dictionaries(STRINGS, kind.values, max_size=entries)
    return Kind({"type": "map", "values": kind.avro}, T.MapType(T.StringType(), kind.spark), values)


def record_of(kinds: list[Kind]) -> Kind:
    named = {f"f{number}": kind for number, kind in enumerate(kinds)}
    fields = [{"name": name, "type": kind.avro} for name, kind in named.items()]
    spark = columns_of(**{name: kind.spark for name, kind in named.items()})
    values = st.fixed_dictionaries({name: kind.values for name, kind in named.items()})
    return Kind({"type": "record", "name": "?", "fields": fields}, spark, values)


def or_null(kind: Kind) -> Kind:
    if isinstance(kind.avro, list):
        return kind
    return Kind(["null", kind.avro], kind.spark, st.none() | kind.values)


def union_of(others: list[str], null_at: int | None, inner: Kind) -> Kind:
    """A union of the types `others`, of which the first is the column's."""
    items = array_of(inner)
    types: dict[str, Kind] = {
        "string": Kind("string", T.StringType(), STRINGS), "bytes": Kind("bytes", T.BinaryType(), st.binary()),
        "long": Kind("long", T.LongType(), whole(64)), "boolean": Kind("boolean", T.BooleanType(), st.booleans()),
        "array": items, "record": record_of([inner]),
    }  # fmt: skip
    chosen = types[others[0]]
    # The chosen one is anywhere. Bytes are in front of an array, because fastavro takes them for an array of numbers.
    branches = [types[name].avro for name in sorted(others, reverse=True)]
    if null_at is not None:
        branches.insert(null_at, "null")
    return Kind(branches, chosen.spark, chosen.values if null_at is None else st.none() | chosen.values)


def with_names(schema: Any, taken: list[str]) -> Any:
    """Name each record, enum and fixed."""
    if isinstance(schema, list):
        return [with_names(one, taken) for one in schema]
    if not isinstance(schema, dict):
        return schema
    named = {key: with_names(one, taken) for key, one in schema.items()}
    if named.get("name") == "?":
        taken.append(f"N{len(taken)}")
        named["name"] = taken[-1]
    return named
