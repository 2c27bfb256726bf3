"""Spark columns with the bytes of Kafka's own serializers, and the partition of a key.

    from kafka_sink import functions as K

    df.select(
        K.string_bytes("customer").alias("key"),
        K.struct_be(("id", "long"), ("price", "double"), ("quantity", "int")).alias("value"),
    )

    string_bytes   StringSerializer     UTF-8                 short_bytes   ShortSerializer      2 bytes
    uuid_bytes     UUIDSerializer       36 characters         int_bytes     IntegerSerializer    4 bytes
    float_bytes    FloatSerializer      4 bytes, IEEE 754     long_bytes    LongSerializer       8 bytes
    double_bytes   DoubleSerializer     8 bytes, IEEE 754     struct_be     any of them, one behind the other

Every number is big-endian, as java.nio.ByteBuffer writes it. A null stays null. A null `value` is a tombstone.

A name is as for `F.col`: in backticks if it has a dot, "`order.id`".

Columns are cast first, by Spark's rules. With `spark.sql.ansi.enabled`, Spark's default, a number that does not fit is
an error. Without it Spark silently wraps the number.

All functions except `kafka_partition` are built-in, deterministic expressions. So they run in the JVM, work with Spark
Connect and need no pykafka on the executors. Spark has no expression for the bits of a float. `reflect` could call
Java's method and is about 10 % faster. But Spark treats a reflected call as non-deterministic, and forbids it in joins,
aggregates and on shared clusters. So the functions compute the bits, without any rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from kafka_sink.errors.installed import needs_pyspark
from kafka_sink.records.key_hashes import murmur2
from kafka_sink.records.partitioner import POSITIVE_MASK

with needs_pyspark():
    from pyspark.sql import Column
    from pyspark.sql import functions as F

__all__ = [
    "double_bytes",
    "float_bytes",
    "int_bytes",
    "kafka_partition",
    "long_bytes",
    "short_bytes",
    "string_bytes",
    "struct_be",
    "uuid_bytes",
]

ColumnOrName = Column | str

UUID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def string_bytes(column: ColumnOrName) -> Column:
    """binary: the column as UTF-8, by StringSerializer. Other types are cast to string.

    Examples:
        >>> spark.range(1).select(string_bytes(F.lit("é"))).first()[0].hex()
        'c3a9'
    """
    return _column(column).cast("string").cast("binary")


def short_bytes(column: ColumnOrName) -> Column:
    """binary(2): the column as a short, by ShortSerializer.

    Examples:
        >>> spark.range(1).select(short_bytes(F.lit(-2))).first()[0].hex()
        'fffe'
    """
    return _big_endian(_column(column).cast("short"), 2)


def int_bytes(column: ColumnOrName) -> Column:
    """binary(4): the column as an int, by IntegerSerializer.

    Examples:
        >>> spark.range(1).select(int_bytes(F.lit(258))).first()[0].hex()
        '00000102'
    """
    return _big_endian(_column(column).cast("int"), 4)


def long_bytes(column: ColumnOrName) -> Column:
    """binary(8): the column as a long, by LongSerializer.

    Examples:
        >>> spark.range(1).select(long_bytes(F.lit(-1))).first()[0].hex()
        'ffffffffffffffff'
    """
    return _big_endian(_column(column).cast("long"), 8)


def float_bytes(column: ColumnOrName) -> Column:
    """binary(4): the column as a float, by FloatSerializer. Every NaN becomes 7fc00000, Java's own.

    Examples:
        >>> spark.range(1).select(float_bytes(F.lit(1.5))).first()[0].hex()
        '3fc00000'
    """
    return _big_endian(_ieee_754(_column(column).cast("float"), BINARY32), 4)


def double_bytes(column: ColumnOrName) -> Column:
    """binary(8): the column as a double, by DoubleSerializer. Every NaN becomes 7ff8000000000000.

    Examples:
        >>> spark.range(1).select(double_bytes(F.lit(1.5))).first()[0].hex()
        '3ff8000000000000'
    """
    return _big_endian(_ieee_754(_column(column).cast("double"), BINARY64), 8)


def uuid_bytes(column: ColumnOrName) -> Column:
    """binary(36): a UUID written as a string, by UUIDSerializer: its 36 characters, in lower case.

    Spark has no type for UUIDs. A string that is not a UUID fails the query.

    Examples:
        >>> spark.range(1).select(uuid_bytes(F.lit("123E4567-E89B-12D3-A456-426614174000"))).first()[0][:8].decode()
        '123e4567'
    """
    lower = F.lower(_column(column).cast("string"))
    is_uuid = lower.rlike(UUID_PATTERN)
    refusal = F.raise_error("uuid_bytes: a row holds no UUID of the form 8-4-4-4-12 hexadecimal digits")
    return F.when(lower.isNull() | is_uuid, lower.cast("binary")).otherwise(refusal)


def struct_be(*fields: tuple[ColumnOrName, str]) -> Column:
    """binary: the fields in order, without separators, each as java.io.DataOutput writes it.

    A field is a column and its type: `byte` and `boolean` (1 byte), `short`, `int`, `long`, `float`, `double`, or
    `binary`, whose bytes stay unchanged. One null field makes the result null, so use `F.coalesce` for nullable
    columns. Raises ValueError for another type, or without fields.

    Examples:
        >>> fields = (F.lit(7), "long"), (F.lit(1.5), "double")
        >>> spark.range(1).select(struct_be(*fields)).first()[0].hex()
        '00000000000000073ff8000000000000'
        >>> framed = struct_be((F.lit(0), "byte"), (F.lit(42), "int"), (F.lit("avro"), "binary"))  # a schema registry's
        >>> spark.range(1).select(framed).first()[0].hex()
        '000000002a6176726f'
    """
    if not fields:
        raise ValueError("struct_be needs at least one field, e.g. struct_be(('id', 'long'))")
    unknown = sorted({field_type for _, field_type in fields} - FIELD_TYPES.keys())
    if unknown:
        raise ValueError(f"struct_be has no type {', '.join(unknown)}: it has {', '.join(FIELD_TYPES)}")
    return F.concat(*(FIELD_TYPES[field_type](column) for column, field_type in fields))


def kafka_partition(key: ColumnOrName, n: int) -> Column:
    """int: the partition where the sink, and every JVM producer, puts `key` in a topic with `n` partitions.

    `key`: binary or string. A null key has no fixed partition, and the result is null. The function uses the default
    partitioner, `murmur2`. Raises ValueError unless n >= 1.

    It is an Arrow UDF around the sink's own hash, so executors need pykafka, as they do for the sink. It takes 0.2 us
    for a key of 20 bytes. As an expression (`aggregate` over the key's words) murmur2 takes 10 us.

    Examples:
        >>> spark.range(1).select(kafka_partition(F.lit("tenant-7"), 12)).first()[0]
        6
    """
    if n < 1:
        raise ValueError(f"a topic has at least one partition, not {n}")

    def partition(keys: pa.Array) -> pa.Array:
        return pa.array((murmur2(keys) & POSITIVE_MASK) % n, pa.int32(), mask=keys.is_null().to_numpy(False))

    # mypy cannot find `arrow_udf`: pyspark.sql.functions imports it without declaring an export.
    in_batches: Callable[[Column], Column] = F.arrow_udf(partition, "int")  # type: ignore[attr-defined]
    return in_batches(_column(key).cast("binary"))


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _big_endian(number: Column, size_bytes: int) -> Column:
    """binary(size_bytes) of a whole number. For a negative number `hex` writes the two's complement in 64 bits."""
    bits = number.cast("long")
    if size_bytes < 8:
        bits = bits.bitwiseAND(F.lit((1 << 8 * size_bytes) - 1).cast("long"))
    return F.unhex(F.lpad(F.hex(bits), 2 * size_bytes, "0"))


@dataclass(frozen=True, slots=True)
class _Format:
    """A format of IEEE 754: sign, exponent plus `bias`, `fraction_bits`."""

    bias: int
    fraction_bits: int

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.fraction_bits

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.fraction_bits - 1)

    @property
    def sign(self) -> int:
        """The number to add to a bigint to set the sign bit. Bit 63 of a bigint is its own sign."""
        return -(1 << 63) if self is BINARY64 else 1 << 31


BINARY32 = _Format(bias=127, fraction_bits=23)
BINARY64 = _Format(bias=1023, fraction_bits=52)


def _ieee_754(x: Column, form: _Format) -> Column:
    """bigint: the bits of a float or double column.

    Every step is exact: doubles are only scaled by powers of two, and only whole numbers are cast to bigint.
    """
    magnitude = F.abs(x.cast("double"))
    smallest_normal = 2.0 ** (1 - form.bias)
    is_normal = (magnitude >= F.lit(smallest_normal)) & (magnitude < F.lit(math.inf))
    # Tested first, because nearly every row is normal.
    bits = (
        F.when(is_normal, _normal_bits(magnitude, form))
        .when(F.isnan(x), F.lit(form.nan))
        .when(magnitude == F.lit(math.inf), F.lit(form.infinity))
        .otherwise(_subnormal_bits(magnitude, form))
    )
    # In Spark -0.0 equals 0.0, and only their strings differ.
    is_negative = (x < 0) | ((x == 0) & x.cast("string").startswith("-"))
    return bits.cast("long") + F.when(is_negative, F.lit(form.sign)).otherwise(F.lit(0)).cast("long")


def _normal_bits(magnitude: Column, form: _Format) -> Column:
    """bigint: exponent and fraction bits of magnitude = (1 + fraction) * 2^exponent.

    log2 is exact to about 1e-13, so the floor of log2 + 1e-9 is the exponent. Just below a power of two it is one too
    high. Then the fraction is negative: half of the distance to 2^exponent, in units of the true exponent. The code
    counts this fraction twice, which borrows from the exponent, and the sum is right.
    """
    exponent = F.least(F.floor(F.log2(magnitude) + F.lit(1e-9)), F.lit(form.bias).cast("long"))
    fraction = (magnitude / F.pow(F.lit(2.0), exponent) - F.lit(1.0)) * F.lit(2.0**form.fraction_bits)
    with_borrow = (fraction + F.least(fraction, F.lit(0.0))).cast("long")
    return F.shiftleft(exponent + F.lit(form.bias), form.fraction_bits) + with_borrow


def _subnormal_bits(magnitude: Column, form: _Format) -> Column:
    """bigint: the number of smallest subnormals in magnitude. A double cannot hold 2^1074, so scale in two steps."""
    scale_bits = form.bias - 1 + form.fraction_bits
    return (magnitude * F.lit(2.0 ** (scale_bits // 2)) * F.lit(2.0 ** (scale_bits - scale_bits // 2))).cast("long")


FIELD_TYPES: dict[str, Callable[[ColumnOrName], Column]] = {
    "boolean": lambda column: _big_endian(_column(column).cast("boolean"), 1),
    "byte": lambda column: _big_endian(_column(column).cast("byte"), 1),
    "short": short_bytes,
    "int": int_bytes,
    "long": long_bytes,
    "float": float_bytes,
    "double": double_bytes,
    "binary": lambda column: _column(column).cast("binary"),
}
