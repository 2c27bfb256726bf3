"""The columns of a read, and the schemas that ask for a part of them."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType

from kafka_sink.errors import ColumnNotRead, ColumnTypeMismatch, DuplicateColumn
from kafka_sink.spark.reading.range_reader import Joined, Rows
from kafka_sink.spark.reading.reads import check_user_schema, whole_schema


def schema(*names: str, **columns: Any) -> StructType:
    """Types may be Spark's names for them. `names`: of binary columns."""
    made = StructType()
    for name, type_ in [*((name, "binary") for name in names), *columns.items()]:
        made.add(name, type_)
    return made


HEADERS = ArrayType(schema(key="string", value="binary"))
# KafkaRecordToRowConverter.kafkaSchema of Spark.
COLUMNS = schema(
    "key", "value", topic="string", partition="integer", offset="long", timestamp="timestamp", timestampType="integer"
)


def test_the_schema_is_that_of_sparks_source() -> None:
    assert whole_schema(include_headers=False) == COLUMNS
    assert whole_schema(include_headers=True) == StructType([*COLUMNS, StructField("headers", HEADERS)])


@pytest.mark.parametrize("asked", [
    whole_schema(include_headers=True), schema("value"), schema(timestampType="integer", key="binary"), schema(),
    StructType().add("offset", "long", nullable=False),
    schema(headers=ArrayType(HEADERS.elementType, containsNull=False)),
])  # fmt: skip
def test_a_part_of_it_in_any_order_is_a_schema_of_a_read(asked: StructType) -> None:
    check_user_schema(asked)


@pytest.mark.parametrize(("asked", "error", "words"), [
    (schema(id="long"), ColumnNotRead, "column 'id'; a read has the columns key, value, topic, .* headers"),
    (schema("Value"), ColumnNotRead, "'Value'"),
    (schema(value="string"), ColumnTypeMismatch, "'value'.*string.*binary.*cast it in the DataFrame"),
    (schema(offset="integer"), ColumnTypeMismatch, "'offset'.*int.*bigint"),
    (schema(timestamp="timestamp_ntz"), ColumnTypeMismatch, "timestamp_ntz"),
    (schema(headers=MapType(StringType(), BinaryType())), ColumnTypeMismatch, "map<string,binary>"),
    (schema("key", "key"), DuplicateColumn, "'key'"),
])  # fmt: skip
def test_any_other_schema_is_refused_with_what_to_do(asked: StructType, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_user_schema(asked)


def decoded(*columns: str, rows: int) -> pa.RecordBatch:
    arrays = {
        "offset": pa.array(range(rows), pa.int64()),
        "value": pa.array([b"v%d" % number for number in range(rows)], pa.binary()),
    }
    return pa.record_batch({name: arrays[name] for name in columns})


@pytest.mark.parametrize(("asked", "to_decode"), [
    (("value", "topic", "offset"), ("value", "offset")), (("topic", "partition"), ("offset",)),
    # What count() asks for.
    ((), ("offset",)),
])  # fmt: skip
def test_only_what_is_asked_for_is_decoded(asked: tuple[str, ...], to_decode: tuple[str, ...]) -> None:
    assert Rows(asked, "t", 3).decoded == to_decode


def test_topic_and_partition_are_added_in_the_order_of_the_schema() -> None:
    rows = Rows(("partition", "value", "topic"), "orders", 3)
    # Growing and shrinking batches share what is repeated.
    sizes = [2, 5, 1]
    completed = list(rows.complete(decoded("value", rows=size) for size in sizes))
    assert [batch.num_rows for batch in completed] == sizes
    for batch in completed:
        batch.validate(full=True)
        assert batch.schema.names == ["partition", "value", "topic"]
        assert batch.schema.types == [pa.int32(), pa.binary(), pa.string()]
        assert set(batch.column("topic").to_pylist()) == {"orders"}
        assert set(batch.column("partition").to_pylist()) == {3}
        assert batch.column("value").to_pylist() == [b"v%d" % number for number in range(batch.num_rows)]
    (batch,) = Rows(("topic",), "t", 0).complete(iter([decoded("offset", rows=4)]))
    assert batch.to_pydict() == {"topic": ["t"] * 4}


@given(st.lists(st.integers(1, 12), max_size=20), st.integers(1, 30), st.integers(1, 1_000))
def test_small_batches_are_joined_in_their_order_up_to_a_limit(sizes: list[int], rows: int, size_bytes: int) -> None:
    batches, offset = [], 0
    for number, size in enumerate(sizes):
        of_partition = Rows(("topic", "partition", "key", "offset"), "t" * (1 + number % 3), number % 5)
        decoded = pa.RecordBatch.from_pydict(
            {"key": [None if n % 3 else b"k" * n for n in range(size)], "offset": range(offset, offset + size)},
            pa.schema([("key", pa.binary()), ("offset", pa.int64())]),
        )
        batches += of_partition.complete(iter([decoded]))
        offset += size
    joined = Joined(rows, size_bytes)
    found = [whole for each in batches if (whole := joined.add(each)) is not None]
    found += [rest for rest in [joined.rest()] if rest is not None]
    assert [row for each in found for row in each.to_pylist()] == [row for each in batches for row in each.to_pylist()]
    given_sizes = {each.num_rows: each.nbytes for each in batches}
    for each in found:
        assert each.schema == batches[0].schema
        is_alone = given_sizes.get(each.num_rows) is not None
        assert is_alone or (each.num_rows <= rows and each.nbytes <= size_bytes + 16 * len(sizes))
    # No two neighbours fit into one.
    for one, other in itertools.pairwise(found):
        assert one.num_rows + other.num_rows > rows or one.nbytes + other.nbytes > size_bytes // 2
    assert joined.rest() is None


def test_the_first_joined_batches_of_a_read_are_small() -> None:
    """Spark may want no more than their rows."""
    quarter = pa.RecordBatch.from_arrays([pa.array([b"x" * 1024] * 250)], ["value"])
    joined = Joined(10**9, 8 * 1024 * 1024, begins_small=True)
    found = [whole for _ in range(100) if (whole := joined.add(quarter)) is not None]
    assert [each.num_rows for each in found] == [1_000, 4_000, 8_000, 8_000]
    assert sum(each.num_rows for each in found) + joined.rest().num_rows == 25_000  # type: ignore[union-attr]
