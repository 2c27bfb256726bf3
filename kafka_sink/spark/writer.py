"""Spark's writers: Spark calls them, and they pass each call to the guarantee of the write.

Spark pickles a writer on the driver and runs `write` in a Python worker on an executor. `commit` and `abort` run on the
driver in another process. A stream has a new writer there, made from the options. So a writer has only the options, its
interceptors and its guarantee. Only tasks know Spark's conf (`source.py`), so the tasks make the configuration.

`write` reads its iterator to the end, because Spark silently drops the rest. If a step before the sink fails, the
iterator ends early: the rows until then are written, and Spark drops the task's message. This is at-least-once.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py, python_streaming_sink_runner.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.errors import BadRow, TableUnsupported
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark import guarantee
from kafka_sink.spark.guarantee import Guarantee
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.stream_arrow_writer import StreamArrowWriter
from kafka_sink.spark.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.task_results import TaskCommitMessage


# --- garbage collections ----------------------------------------------------------------------------------------------
# Keeps the objects of imported modules out of garbage collections.
#
# Spark's Python workers run `gc.collect()` after every task, plan and commit (pyspark/daemon.py). Each collection
# visits all objects of all modules. The objects after the first successful task are mostly modules, classes and caches,
# which live as long as the process. So they are frozen, and later collections visit only newer objects.

_modules_seen = 0


def freeze_modules() -> None:
    """Freeze all objects if modules were imported since the last call. Call it when a worker has finished its work.

    It must freeze rarely, because cyclic garbage that exists at that moment is never collected.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()


# --- writer -----------------------------------------------------------------------------------------------------------


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


class KafkaBatchWriter(DataSourceArrowWriter):
    """`df.write.format("pykafka")`."""

    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor] = ()) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.guarantee = guarantee.of_batch(options)

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Plan the write here, because only the planning process pickles the writer."""
        _plan(self.options, self.guarantee)
        return self.__dict__

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


class KafkaStreamWriter(StreamArrowWriter):
    """`df.writeStream.format("pykafka")`. `checkpoint`: the location, None if it is not an option of the write."""

    def __init__(
        self, options: GivenOptions, interceptors: Sequence[Interceptor] = (), checkpoint: str | None = None
    ) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.guarantee = guarantee.of_stream(options, checkpoint)

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Plan the micro-batch here: only the planning process pickles a writer. The committing process never does."""
        _plan(self.options, self.guarantee)
        return self.__dict__

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


def _plan(options: GivenOptions, write: Guarantee) -> None:
    # A path from Spark's conf is unknown here. It is checked when the file is written.
    if (path := options.get("receipts_path")) is not None:
        from kafka_sink.spark.receipt_writer import make_folder

        make_folder(path)
    write.plan()
    freeze_modules()


def _refuse_table(conf: Mapping[str, str]) -> None:
    """Raise TableUnsupported if the write belongs to saveAsTable or a similar statement.

    Spark runs such a write inside the execution of the statement, and drops the table if the write fails. A write in
    foreachBatch also runs inside another execution, that of its stream, and is allowed.
    """
    own, outer = conf.get("spark.sql.execution.id"), conf.get("spark.sql.execution.root.id")
    if outer is not None and own != outer and "sql.streaming.queryId" not in conf:
        raise TableUnsupported
