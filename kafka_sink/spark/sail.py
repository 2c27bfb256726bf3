"""Sail: a server of Spark Connect in Rust. It runs data sources by Spark's Python API, in threads of its own process.

What differs from Spark is here:

    schemas    Sail hands over Arrow's. Those that it gets are of `ReadSchema`
    rows read  must have the very types that Sail asked for, as with the session's time zone
    tasks      run all at once, as threads of one process
    a task     has no TaskContext: no number, no conf, no execution. `_check` refuses what needs one of them
    a write    Sail counts its partitions before it optimizes the plan. If the optimizer changes the number, Sail fails
               the write after its rows are written. Sail asks no Python in between, so the user says that the plan
               fixes the number

Source: write_planner.rs, commit_exec.rs, executor.rs, arrow_utils.rs of sail-data-source, Sail 0.7. docs/sail.md has a
program for each fault.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_type

from kafka_sink.errors import PartitionsNotFixed, RefusedOption
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.errors.redaction import Secret
from kafka_sink.options.config import OPTION_OF, GivenOptions
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.task_results import TaskCommitMessage
from kafka_sink.spark.writer import KafkaBatchWriter, is_exactly_once
from kafka_sink.spark.writes import arrow_type

MOST_READS_A_CORE = 2
_SET_TASKS = {"minpartitions", "maxpartitions", "maxrecordsperpartition"}

# --- reads ------------------------------------------------------------------------------------------------------------


def reader_of(
    options: Mapping[str, str], schema: pa.Schema, token: Secret | None, interceptors: Sequence[Interceptor]
) -> DataSourceReader:
    """Return the reader of a batch; see `reads.reader_of`.

    Unless options say how many, it has at most MOST_READS_A_CORE tasks for each core: Sail runs all at once.
    """
    from kafka_sink.spark.reading import reads

    if not _SET_TASKS.intersection(name.lower() for name in options):
        options = {**options, "maxPartitions": str(MOST_READS_A_CORE * (os.cpu_count() or 1))}
    return _BatchReader(reads.reader_of(options, _spark_schema(schema), token, interceptors), schema)


class _BatchReader(DataSourceReader):
    """Reads rows of the types of `schema`.

    It takes no filters: Sail leaves casts out of them, so `CAST(offset AS TINYINT) = 5` arrives as `offset = 5`. Sail
    applies all filters itself.
    """

    def __init__(self, reader: DataSourceReader, schema: pa.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            yield batch.cast(self._schema)


# --- writes -----------------------------------------------------------------------------------------------------------


def writer_of(
    options: Mapping[str, str],
    schema: pa.Schema,
    overwrite: bool,
    token: Secret | None,
    interceptors: Sequence[Interceptor],
) -> KafkaBatchWriter:
    """Return the writer of a batch; see `writes.writer_of`. Raises RefusedOption, PartitionsNotFixed, too."""
    from kafka_sink.spark import writes

    given = writes.writer_of(options, _spark_schema(schema), overwrite, token, interceptors).options
    _check(given, {name.lower() for name in options})
    return _BatchWriter(given, interceptors)


def _check(given: GivenOptions, names: Collection[str]) -> None:
    """Raise RefusedOption or PartitionsNotFixed if Sail cannot carry the write."""
    needs = "On Sail a task does not know which partition of the DataFrame it writes"
    if is_exactly_once(given):
        instead = f"{needs}, and its transaction goes by that. Use at-least-once, or Spark."
        raise RefusedOption(option="deliveryGuarantee=exactly-once", instead=instead)
    if given.get("row_identity"):
        instead = f"{needs}, so rows of two tasks would have the same identity. Leave it out, or use Spark."
        raise RefusedOption(option=OPTION_OF["row_identity"].name, instead=instead)
    if "checkpointlocation" in names:
        instead = "Sail runs a stream of a Python source once, as a batch. Read and write a batch, or use Spark."
        raise RefusedOption(option="checkpointLocation", instead=instead)
    if given.get("sail_partitions") is None:
        raise PartitionsNotFixed


class _BatchWriter(KafkaBatchWriter):
    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the write. Sail orders the messages by partition, which the tasks did not know."""
        super().commit([
            replace(each, spark_partition_id=number) if isinstance(each, TaskCommitMessage) else each
            for number, each in enumerate(messages)
        ])  # fmt: skip


# --- schemas ----------------------------------------------------------------------------------------------------------


class ReadSchema(spark_types.StructType):
    """Spark's schema of a read. Sail takes it as Arrow's: it converts none that has timestamps."""

    @classmethod
    def typeName(cls) -> str:
        return spark_types.StructType.typeName()

    def __arrow_c_schema__(self) -> object:
        """Arrow's PyCapsule interface."""
        return pa.schema([(field.name, arrow_type(field.dataType)) for field in self]).__arrow_c_schema__()


def _spark_schema(schema: pa.Schema) -> spark_types.StructType:
    return spark_types.StructType([
        spark_types.StructField(field.name, _spark_type(field.type), field.nullable) for field in schema
    ])  # fmt: skip


def _spark_type(arrow_type: pa.DataType) -> spark_types.DataType:
    if arrow_type in (pa.string_view(), pa.binary_view()):
        return spark_types.StringType() if arrow_type == pa.string_view() else spark_types.BinaryType()
    try:
        return from_arrow_type(arrow_type, prefer_timestamp_ntz=True)
    except PySparkTypeError:
        return _Unknown(str(arrow_type))


class _Unknown(spark_types.DataType):
    """A type of Arrow that Spark does not have: no column accepts it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def simpleString(self) -> str:
        return self._name
