"""What is Java's: columns have the bytes of Kafka's own serializers, kafka_partition has Java's hash and that of the
sink, and `subscribePattern` finds the topics that java.util.regex finds, or is refused."""

import random
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from effort import variants
from kafka_sink import functions as K
from kafka_sink.options.java_pattern import java_pattern
from kafka_sink.options.kinds import Problem
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.partitioner import RowPartitioner, StickyPartitioner

# Output of SerializerVectors.java, beside it.
JAVA_VECTORS = Path(__file__).with_name("serializer_vectors.csv")
MURMUR2_VECTORS = Path(__file__).parents[1] / "unit" / "records" / "murmur2_vectors.csv"

STRUCT = ("long", "double", "int", "short", "byte", "boolean", "float")


def vectors(wanted: str) -> tuple[list[str], list[bytes]]:
    """The texts of the values of a type, and Java's bytes for each."""
    lines = [line.split(",") for line in JAVA_VECTORS.read_text().splitlines()[1:]]
    texts, expected = zip(*((text, bytes.fromhex(hexed)) for name, text, hexed in lines if name == wanted), strict=True)
    return list(texts), list(expected)


def evaluated(spark: SparkSession, columns: dict[str, pa.Array], result: Column) -> list[Any]:
    """`result` for each row of `columns`, over data that Spark cannot fold into constants."""
    numbered = pa.table({"position": np.arange(len(next(iter(columns.values()))))} | columns)
    rows = spark.createDataFrame(numbered).select("position", result.alias("result")).collect()
    return [row.result for row in sorted(rows, key=lambda row: row.position)]


def as_bytes(results: Sequence[Any]) -> list[bytes | None]:
    return [None if result is None else bytes(result) for result in results]


@pytest.mark.parametrize(
    ("name", "function", "parse", "arrow_type", "count"),
    [
        ("string", K.string_bytes, lambda text: bytes.fromhex(text).decode("utf-16-be"), pa.string(), 7),
        ("uuid", K.uuid_bytes, str, pa.string(), 22),
        ("short", K.short_bytes, int, pa.int16(), 34),
        ("int", K.int_bytes, int, pa.int32(), 34),
        ("long", K.long_bytes, int, pa.int64(), 34),
        ("float", K.float_bytes, float, pa.float32(), 64),
        ("double", K.double_bytes, float, pa.float64(), 64),
    ],
)
def test_bytes_of_kafkas_own_serializer(
    spark: SparkSession, name: str, function: Any, parse: Any, arrow_type: pa.DataType, count: int
) -> None:
    texts, expected = vectors(name)
    assert len(texts) == count
    given = pa.array([*map(parse, texts), None], arrow_type)
    assert as_bytes(evaluated(spark, {"given": given}, function("given"))) == [*expected, None]


def test_bytes_of_javas_data_output(spark: SparkSession) -> None:
    texts, expected = vectors("struct")
    by_field = zip(*(text.split(";") for text in texts), strict=True)
    fields = {f"field{i}": pa.array(list(of_field)) for i, of_field in enumerate(by_field)}
    typed = [(F.col(name).cast(field_type), field_type) for name, field_type in zip(fields, STRUCT, strict=True)]
    assert as_bytes(evaluated(spark, fields, K.struct_be(*typed))) == expected


@pytest.mark.parametrize("ansi", variants("true", "false"))
@pytest.mark.parametrize(
    ("function", "code", "bits", "smallest_exponent", "largest_exponent"),
    [(K.float_bytes, ">f", 32, -149, 127), (K.double_bytes, ">d", 64, -1074, 1023)],
)
def test_floats_of_every_exponent_and_their_neighbours(
    spark: SparkSession, ansi: str, function: Any, code: str, bits: int, smallest_exponent: int, largest_exponent: int
) -> None:
    exponents = range(smallest_exponent, largest_exponent + 1)
    unsigned = code.upper().replace("F", "I").replace("D", "Q")
    # By their bits: each power of two, the numbers next to it, and random ones.
    powers = np.array([struct.unpack(unsigned, struct.pack(code, 2.0**e))[0] for e in exponents], object)
    chosen = [*powers, *(powers - 1), *(powers + 1), *(random.Random(5).getrandbits(bits) for _ in range(20_000))]
    numbers = [struct.unpack(code, struct.pack(unsigned, number))[0] for number in chosen]
    numbers = [number for number in numbers if number == number]
    numbers += [-number for number in numbers]
    assert len(numbers) > 40_000
    given = pa.array(numbers, pa.float32() if bits == 32 else pa.float64())
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        results = evaluated(spark, {"given": given}, function("given"))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert as_bytes(results) == [struct.pack(code, number) for number in numbers]


@pytest.mark.parametrize("function", [K.short_bytes, K.int_bytes, K.long_bytes, K.float_bytes, K.double_bytes])
def test_a_columns_other_type_is_cast(spark: SparkSession, function: Any) -> None:
    given = pa.array(["-7", "0", "12"])
    expected = evaluated(spark, {"given": pa.array([-7, 0, 12])}, function(F.col("given")))
    assert len(set(as_bytes(expected))) == 3
    assert evaluated(spark, {"given": given}, function("given")) == expected


@pytest.mark.parametrize(("function", "given"), [(K.short_bytes, 2**15), (K.int_bytes, -(2**31) - 1)])
def test_a_number_that_does_not_fit_is_an_error(spark: SparkSession, function: Any, given: int) -> None:
    with pytest.raises(PySparkException, match="OVERFLOW"):
        evaluated(spark, {"given": pa.array([given])}, function("given"))


@pytest.mark.parametrize(
    "given", ["", "123e4567-e89b-12d3-a456-42661417400", "123e4567e89b12d3a456426614174000", "1-1-1-1-1"]
)
def test_a_string_that_is_no_uuid_is_an_error_without_the_string(spark: SparkSession, given: str) -> None:
    with pytest.raises(PySparkException, match="uuid_bytes: a row holds no UUID") as failure:
        evaluated(spark, {"given": pa.array([given])}, K.uuid_bytes("given"))
    assert not given or given not in str(failure.value)


def test_a_null_field_makes_the_payload_null(spark: SparkSession) -> None:
    columns = {"a": pa.array([1, None, 3]), "b": pa.array([1, 2, None])}
    payload = K.struct_be(("a", "long"), (F.coalesce("b", F.lit(-1)), "short"))
    assert as_bytes(evaluated(spark, columns, payload)) == [
        bytes.fromhex("00000000000000010001"),
        None,
        bytes.fromhex("0000000000000003ffff"),
    ]


def test_bytes_are_taken_as_they_are(spark: SparkSession) -> None:
    payload = K.struct_be((F.lit(0), "byte"), (F.lit(77), "int"), ("row", "binary"))
    framed = evaluated(spark, {"row": pa.array([b"\xff\x00", b""])}, payload)
    assert as_bytes(framed) == [b"\x00\x00\x00\x00\x4d\xff\x00", b"\x00\x00\x00\x00\x4d"]


def test_a_struct_of_nothing_or_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one field"):
        K.struct_be()
    with pytest.raises(ValueError, match="no type bigint, string: it has boolean, byte, short"):
        K.struct_be(("a", "string"), ("b", "int"), ("c", "bigint"))


@pytest.mark.parametrize("function", [*K.FIELD_TYPES.values(), K.string_bytes, K.uuid_bytes])
def test_an_expression_of_the_jvms_that_a_join_may_have(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], function: Any
) -> None:
    """Spark refuses non-deterministic expressions in a join's condition."""
    left, right = spark.range(1), spark.range(1).withColumnRenamed("id", "other")
    given = F.concat(F.col("id"), F.lit("")) if function is K.FIELD_TYPES["binary"] else F.col("id")
    joined = left.join(right, function(given) == F.col("other").cast("string").cast("binary"), "left")
    joined.explain()
    plan = capsys.readouterr().out
    assert "Join" in plan and "Python" not in plan


def test_partition_by_kafkas_own_hash(spark: SparkSession) -> None:
    lines = [line.split(",") for line in MURMUR2_VECTORS.read_text().splitlines()[1:]]
    keys = pa.array([*(bytes.fromhex(key) for key, _ in lines), None], pa.binary())
    expected = [(int(hashed) & 0x7FFFFFFF) % 7 for _, hashed in lines]
    assert set(expected) == set(range(7))
    assert evaluated(spark, {"key": keys}, K.kafka_partition("key", 7)) == [*expected, None]


@pytest.mark.parametrize("n", variants(12, 1, 2_000))
def test_partition_of_the_sink_on_100_000_random_keys(spark: SparkSession, n: int) -> None:
    rng = np.random.default_rng(6)
    keys = pa.array([rng.bytes(length) for length in rng.integers(0, 101, 100_000).tolist()], pa.binary())
    columns = RecordColumns.from_arrow(pa.record_batch({"value": keys, "key": keys}), now_ms=0)
    sticky = StickyPartitioner(batch_size=1, rng=random.Random(7))
    expected = RowPartitioner(columns).assign_partitions(
        None, topic="t", partition_count=n, key_partition_count=n, available=range(n), spreader=sticky
    )
    assert len(set(expected.tolist())) == n
    assert evaluated(spark, {"key": keys}, K.kafka_partition("key", n)) == expected.tolist()


def test_a_strings_partition_is_its_utf_8_bytes(spark: SparkSession) -> None:
    words = ["", "order-1", "é", "日本", "😀" * 9]
    columns = {"word": pa.array(words), "encoded": pa.array([word.encode() for word in words], pa.binary())}
    both = F.struct(K.kafka_partition("word", 1_000), K.kafka_partition("encoded", 1_000))
    results = evaluated(spark, columns, both)
    assert len(results) == 5 and all(one == other for one, other in results)


def test_a_topic_has_partitions() -> None:
    with pytest.raises(ValueError, match="at least one partition, not 0"):
        K.kafka_partition("key", 0)


NAMES = ["a", "b", "ab", "orders", "Orders-eu", "a.b", "__x", "1.2-c", "aab", "zz9", "K", "-", "A_b.C-0", "xyzxyz"]
ATOMS = [
    "a", "b", "z", "K", "9", ".", "-", "_", "é", "#", " ", "&", "]", "}", "{", r"\.", r"\-", r"\_", r"\d", r"\W", r"\s",
    r"\b", r"\B", r"\A", r"\Z", r"\z", r"\G", r"\h", r"\v", r"\R", r"\x61", r"\u0062", r"\x{61}", r"\07", r"\cA", r"\e",
    r"\Qa.b\E", r"\Q-", r"\p{Alpha}", r"\P{Lower}", r"\p{Punct}", r"\p{L}", r"\1", r"\11", r"\k<n>", r"\N{DOT}",
    "^", "$",
]  # fmt: skip
MEMBERS = [
    "a", "z", "a-c", "[b]", "[^b]", "&&", "&", "^", "-", "|", r"\w", r"\D", r"\.", r"\]", r"\b", "]", "[", "K", "_",
    "{", r"\p{Upper}", r"\Qa-\E", " ", "#", "x-z", "--", "0-9", r"\x61",
]  # fmt: skip
OPENINGS = [
    "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?P<n>", "(?i:", "(?s-i:", "(?x)", "(?i)", "(?u)",
]  # fmt: skip
classes = st.tuples(st.sampled_from(["[", "[^"]), st.lists(st.sampled_from(MEMBERS), max_size=5)).map(
    lambda parts: f"{parts[0]}{''.join(parts[1])}]"
)
quantifiers = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{,2}", "*?", "++", "{1,2}+"])
atoms = st.tuples(st.sampled_from(ATOMS) | classes, quantifiers).map("".join)
sequences = st.lists(atoms, max_size=4).map("".join)
groups = st.tuples(
    st.sampled_from(OPENINGS), sequences, st.sampled_from(["", "|"]), sequences, st.just(")"), quantifiers
)
patterns = st.lists(atoms | groups.map("".join), min_size=1, max_size=3).map("".join)


def test_a_pattern_finds_what_java_finds_or_is_refused(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    read = 0

    @settings(deadline=None, max_examples=300)
    @given(st.sampled_from(["", "", "(?i)"]), patterns)
    def finds_the_same(flags: str, rest: str) -> None:
        nonlocal read
        text = flags + rest
        try:
            ours = java_pattern(text)
        except (Problem, re.error):
            return
        java = jvm.java.util.regex.Pattern.compile(text)
        read += 1
        assert [bool(ours.search(name)) for name in NAMES] == [java.matcher(name).find() for name in NAMES]

    finds_the_same()
    assert read > 50
    assert java_pattern("^[a-z&&[^b]]+$").search("ac") and not java_pattern("[a-z&&[^b]]").search("b")
