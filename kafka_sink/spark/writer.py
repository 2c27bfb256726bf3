"""Spark's writers and their delivery guarantees: Spark calls a writer, which passes each step to its guarantee.

    planning worker    plan()    when Spark pickles the writer; the results travel to the tasks with the object
    task               write()   one attempt of one Spark partition
    committing worker  commit(), abort()

Each step runs in a process of its own, which imports what that step needs. A stream's commit runs on a new object, made
from the options, that has no plan. A batch write's commit runs on a copy of the object that planned. Only tasks know
Spark's conf (`writes.py`), so the tasks make the configuration.

`write` reads its iterator to the end, because Spark silently drops the rest. If a step before the sink fails, the
iterator ends early: the rows until then are written, and Spark drops the task's message. This is at-least-once.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py, python_streaming_sink_runner.py.
"""

from __future__ import annotations

import gc
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.errors import BadRow, TableUnsupported, WriteKind
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.errors.failures import in_sail, told_to_spark
from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.task import Task
from kafka_sink.spark.task_results import ONLY_MICRO_BATCH, Identity

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.exactly_once.plan import Plan
    from kafka_sink.spark.interceptor_chain import InterceptorChain
    from kafka_sink.spark.task_results import TaskCommitMessage

# --- writers ----------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor], guarantee: Guarantee) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.guarantee = guarantee

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Plan the write or micro-batch: only the planning process pickles a writer. The committing one never does."""
        # A path from Spark's conf is unknown here. It is checked when the file is written.
        if (path := self.options.get("receipts_path")) is not None:
            from kafka_sink.spark.receipt_writer import make_folder

            make_folder(path)
        self.guarantee.plan()
        freeze_modules()
        return self.__dict__


class KafkaBatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("pykafka")`."""

    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor] = ()) -> None:
        super().__init__(options, interceptors, _batch_guarantee(options))

    @told_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        _refuse_table(Task.current().conf)
        return write_task(self.guarantee, self.interceptors, iterator)

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.guarantee.commit(messages, micro_batch_id=None)

    @told_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.guarantee.abort(messages)


def stream_arrow_writer() -> type:
    """Return Spark's class of stream writers that receive Arrow batches, also on Spark 4.0, which has none.

    Spark 4.0 hands Arrow batches to any writer that is a DataSourceArrowWriter, also to a stream's.
    """
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        return datasource.DataSourceStreamArrowWriter
    return type("StreamArrowWriter", (datasource.DataSourceStreamWriter, DataSourceArrowWriter), {})


if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:
    StreamArrowWriter = stream_arrow_writer()


class KafkaStreamWriter(_Writer, StreamArrowWriter):
    """`df.writeStream.format("pykafka")`. `checkpoint`: the location, None if it is not an option of the write."""

    def __init__(
        self, options: GivenOptions, interceptors: Sequence[Interceptor] = (), checkpoint: str | None = None
    ) -> None:
        guarantee = ExactlyOnceStream(options, checkpoint) if is_exactly_once(options) else AtLeastOnce(options)
        super().__init__(options, interceptors, guarantee)

    @told_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return write_task(self.guarantee, self.interceptors, iterator)

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.guarantee.commit(messages, micro_batch_id=batchId)
        freeze_modules()

    @told_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.guarantee.abort(messages)


def write_task(
    write: Guarantee, interceptors: Sequence[Interceptor], arrow_batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Write the rows of one task attempt, and notify the interceptors of the result.

    Raises as `Guarantee.write`: then the task fails, and Spark decides if there is another attempt.
    """
    # Only tasks need it.
    from kafka_sink.spark.interceptor_chain import InterceptorChain

    chain = InterceptorChain(interceptors)
    try:
        with exhaustion_named():
            receipt = write.write(chain, arrow_batches)
    # Any error, also Spark's own: the interceptors are notified, and the task fails with the error.
    except Exception as error:
        if isinstance(error, BadRow) and TaskContext.get() is not None:
            error.in_spark_partition(Task.current().slot)
        chain.on_acknowledgement((), error)
        raise
    else:
        chain.on_acknowledgement(receipt.partitions, None)
        chain.on_statistics(receipt.statistics)
        freeze_modules()
        return receipt
    finally:
        chain.close()


def _refuse_table(conf: Mapping[str, str]) -> None:
    """Raise TableUnsupported if the write belongs to saveAsTable or a similar statement.

    Spark runs such a write inside the execution of the statement, and drops the table if the write fails. A write in
    foreachBatch also runs inside another execution, that of its stream, and is allowed.
    """
    own, outer = conf.get("spark.sql.execution.id"), conf.get("spark.sql.execution.root.id")
    if outer is not None and own != outer and "sql.streaming.queryId" not in conf:
        raise TableUnsupported


_modules_seen = 0


def freeze_modules() -> None:
    """Keep modules out of garbage collections, if any were imported since the last call; not in Sail's own process.

    Spark's workers run `gc.collect()` after every task, plan and commit. Call this when a worker has finished its work:
    the objects that are there mostly live as long as the process. Garbage in cycles at this moment stays forever.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen and not in_sail():
        _modules_seen = len(sys.modules)
        gc.freeze()


# --- delivery guarantees ----------------------------------------------------------------------------------------------


class Guarantee(Protocol):
    """The steps of a delivery guarantee."""

    def plan(self) -> None:
        """Plan once, before any task. Raises ConfigError, ClusterError, ExactlyOnceError."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task attempt, and return when the leaders have acknowledged every row.

        Raises ConfigError, SchemaError, InterceptorFailed, BadRow, ClusterError, DeliveryError, ExactlyOnceError.
        """

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        """Commit the write.

        `messages`: one for each task, None if a task returned none. `micro_batch_id` is None for a batch write. Raises
        CommitRefused, TooManyBadRows, ClusterError, ExactlyOnceError: then Spark does not record the write.
        """

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a task or `commit` has failed. `messages`: as for `commit`. Never raises."""


class AtLeastOnce:
    """Rows are in Kafka, and visible to all readers, when their task returns.

    There is no plan and no rollback. The rows of a failed attempt stay in Kafka, and the next attempt writes them
    again. `identity`: of a batch write, for its receipt and its rows' headers. None for a stream, because its tasks
    know their identity.
    """

    def __init__(self, options: GivenOptions, identity: Identity | None = None) -> None:
        self.options = options
        self.identity = identity

    def plan(self) -> None:
        """Do nothing: at-least-once needs no request before the tasks."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        from kafka_sink.spark.rows import write_rows

        return write_rows(self.options, self.identity, chain, arrow_batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        from kafka_sink.spark.limits import check_bad_rows, warn_of_rate
        from kafka_sink.spark.receipt_writer import leave_receipt
        from kafka_sink.spark.task_results import check_all_present

        receipts = check_all_present(messages, micro_batch_id=micro_batch_id)
        # The rows are in Kafka, so the steps below cannot undo them. They report problems to the user.
        warn_of_rate(receipts)
        leave_receipt(receipts)
        check_bad_rows(receipts, rows_are_written=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: written rows stay in Kafka."""


class _ExactlyOnce:
    """`planned` is None before `plan`. Tasks always have it."""

    def __init__(self, options: GivenOptions) -> None:
        self.options = options
        self.planned: Plan | None = None

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows into open transactions. read_committed readers do not see them yet."""
        from kafka_sink.spark.exactly_once.slot import write_slot

        assert self.planned is not None, "a task has its writer from the process that planned"
        return write_slot(self.options, self.planned, chain, arrow_batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        """Make the rows visible."""
        from kafka_sink.spark.exactly_once.commit import commit_micro_batch
        from kafka_sink.spark.exactly_once.plan import in_transaction_errors
        from kafka_sink.spark.limits import check_bad_rows
        from kafka_sink.spark.task_results import check_all_present

        with in_transaction_errors(None if self.planned is None else self.planned.batch):
            present = check_all_present(messages, micro_batch_id=micro_batch_id)
            check_bad_rows(present, rows_are_written=False)
        commit_micro_batch(self.options, present)


class ExactlyOnceBatch(_ExactlyOnce):
    def plan(self) -> None:
        from kafka_sink.spark.exactly_once.plan import plan_batch

        if self.planned is None:
            self.planned = plan_batch(self.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the rows, so that read_committed readers never see them."""
        from kafka_sink.spark.exactly_once.commit import abort_run

        if self.planned is not None:
            abort_run(self.options, self.planned.sink.names.sink, self.planned.facts.generation)


class ExactlyOnceStream(_ExactlyOnce):
    """`checkpoint`: the location, None if it is not an option of the write."""

    def __init__(self, options: GivenOptions, checkpoint: str | None) -> None:
        super().__init__(options)
        self.checkpoint = checkpoint

    def plan(self) -> None:
        from kafka_sink.spark.exactly_once.plan import plan_stream

        if self.planned is None:
            self.planned = plan_stream(self.options, self.checkpoint)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the rows, if the generation of the run is known."""
        from kafka_sink.spark.exactly_once.commit import abort_micro_batch

        abort_micro_batch(self.options, messages, checkpoint=self.checkpoint)


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


def _batch_guarantee(given: GivenOptions) -> Guarantee:
    if is_exactly_once(given):
        return ExactlyOnceBatch(given)
    # Spark gives a batch write no id, so make one.
    name = given.get("receipt_name")
    return AtLeastOnce(given, Identity(str(uuid.uuid4()), ONLY_MICRO_BATCH, WriteKind.BATCH, receipt_name=name))
