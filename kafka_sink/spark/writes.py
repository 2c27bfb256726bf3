"""Makes the writer of a write from its options and columns. The data source imports it for writes only.

Options and columns are checked on the driver before any task, so a wrong one fails before the job starts. These checks
do not touch the cluster, because Spark also makes a writer in the committing process.

Only tasks know Spark's conf (`spark.pykafka.<option>`): Spark passes every `spark.*` setting of the session to tasks as
local properties; a stream has the settings of its `start()`. The workers that plan and commit have no TaskContext, no
session and no conf, and `kafka_sink.register` may never have been called. Therefore:

* Here: check that each given option is known and valid, and that the given options do not contradict each other.
* In the task, before its first row: check options from the conf, required options that are missing in both (such as the
  topic), and contradictions with the conf or with defaults. Spark repeats such an error for each attempt of the task.
* `commit` must not use the conf. A task's message brings the settings that `commit` needs.

Source: PythonPlannerRunner.scala (the data sent to a planning worker), SQLExecution.withSQLConfPropagated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import types as spark_types

from kafka_sink.commit.stream_name import local_folder
from kafka_sink.errors import ColumnTypeMismatch, ContinuousTriggerUnsupported, WriteModeUnsupported
from kafka_sink.errors.redaction import Secret
from kafka_sink.options.cautions import warn_of_given
from kafka_sink.options.config import GivenOptions, check_given, check_stream, given_options
from kafka_sink.records.columns import check_schema
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

PROC = Path("/proc")
# Linux keeps 15 bytes of "epoch update thread for <query>".
EPOCH_THREAD = "epoch update th"


def writer_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    overwrite: bool,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaBatchWriter:
    """Return the writer of a batch. `token`: the pickled token callable.

    Raises ConfigError, SchemaError, WriteModeUnsupported.
    """
    given = _given(options, token)
    _check(given, schema, overwrite)
    return KafkaBatchWriter(given, interceptors)


def stream_writer_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    overwrite: bool,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaStreamWriter:
    """Return the writer of a stream; see `writer_of`. `overwrite`: the output mode is complete.

    Raises ContinuousTriggerUnsupported, too.
    """
    given = _given(options, token)
    check_stream(given)
    _check(given, schema, overwrite)
    checkpoint = options.get("checkpointlocation")
    if is_continuous(checkpoint):
        raise ContinuousTriggerUnsupported
    return KafkaStreamWriter(given, interceptors, checkpoint)


def _given(options: Mapping[str, str], token: Secret | None) -> GivenOptions:
    given = given_options(options)
    return given if token is None else {**given, "token_callable": token}


def _check(given: GivenOptions, schema: spark_types.StructType, overwrite: bool) -> None:
    check_given(given)
    warn_of_given(given)
    if overwrite:
        raise WriteModeUnsupported
    # Only the task can check the topic: the conf or an interceptor may set it.
    check_spark_schema(schema, topic_option=True)


def check_spark_schema(schema: spark_types.StructType, *, topic_option: bool) -> None:
    """Run `check_schema` for Spark's types of the columns. Raises SchemaError."""
    try:
        check_schema(
            pa.schema([(field.name, arrow_type(field.dataType)) for field in schema]), topic_option=topic_option
        )
    except ColumnTypeMismatch as mismatch:
        found = schema[mismatch.column].dataType.simpleString()
        raise ColumnTypeMismatch(
            column=mismatch.column, found=found, expected=mismatch.expected, hint=mismatch.hint
        ) from None


# Spark types of a record that is written or read, and their Arrow types. Spark's own conversion is private, and its
# signature changes between versions.
_ARROW_TYPES: tuple[tuple[type[spark_types.DataType], pa.DataType], ...] = (
    (spark_types.StringType, pa.string()),
    (spark_types.CharType, pa.string()),
    (spark_types.VarcharType, pa.string()),
    (spark_types.BinaryType, pa.binary()),
    (spark_types.ByteType, pa.int8()),
    (spark_types.ShortType, pa.int16()),
    (spark_types.IntegerType, pa.int32()),
    (spark_types.LongType, pa.int64()),
    (spark_types.TimestampType, pa.timestamp("us", "UTC")),
    (spark_types.TimestampNTZType, pa.timestamp("us")),
    (spark_types.NullType, pa.null()),
)


def arrow_type(spark_type: spark_types.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type. Unsupported types become an opaque type that no column accepts."""
    if isinstance(spark_type, spark_types.ArrayType):
        return pa.list_(arrow_type(spark_type.elementType))
    if isinstance(spark_type, spark_types.StructType):
        return pa.struct([(field.name, arrow_type(field.dataType)) for field in spark_type])
    for known, found in _ARROW_TYPES:
        if isinstance(spark_type, known):
            return found
    return pa.opaque(pa.null(), spark_type.simpleString(), "spark")


# --- continuous triggers ----------------------------------------------------------------------------------------------
# Spark gives such a query's rows to no Python sink, and only an error in planning can end it. By then all of its
# offsets are committed, and the driver's JVM has an epoch thread (docs/design/decisions.md).


def is_continuous(checkpoint_location: str | None, *, pid: int | None = None, proc: Path = PROC) -> bool:
    """Return True if the stream has a continuous trigger. Call it when the stream is planned.

    `checkpoint_location`: the option as the user wrote it. `pid`: a process that the driver's JVM started, by default
    this process. Only both traces together are proof: the path may be of an old checkpoint on another file system, and
    the thread of another query. If one cannot be read, return False: then `commit` refuses the first epoch.
    """
    folder = local_folder(checkpoint_location)
    if folder is None:
        return False
    try:
        return not _awaits_commit(folder) and EPOCH_THREAD in _threads_of_jvm(pid or os.getpid(), proc)
    except OSError:
        return False


def _awaits_commit(checkpoint: Path) -> bool:
    """Return True if offsets have no commit: a micro-batch is running, or its driver ended before the commit."""
    return _newest(checkpoint / "offsets") > _newest(checkpoint / "commits")


def _newest(log: Path) -> int:
    """Return the newest number in Spark's HDFSMetadataLog, which has a file for each batch or epoch; -1 if empty."""
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdecimal()), default=-1)


def _threads_of_jvm(pid: int, proc: Path) -> frozenset[str]:
    """Return the thread names of the nearest ancestor that is a JVM, or none if there is no JVM."""
    for ancestor in _ancestors(pid, proc):
        if (proc / ancestor / "comm").read_text().strip() == "java":
            return frozenset(comm.read_text().strip() for comm in (proc / ancestor / "task").glob("*/comm"))
    return frozenset()


def _ancestors(pid: int, proc: Path) -> Iterator[str]:
    parent = str(pid)
    while parent != "1":
        # Format: "pid (name) state ppid ...". The name may have spaces and parentheses.
        parent = (proc / parent / "stat").read_text().rpartition(")")[2].split()[1]
        if parent == "0":
            return
        yield parent
