"""Spark's writers: what Spark calls of a write, each call passed on to the guarantee that the write has.

Spark pickles a writer on the driver and runs `write` in a Python worker on an executor; `commit` and `abort` run on the
driver in another process (streaming: on a writer made anew from the options). So a writer is its interceptors and its
guarantee, which has the options, and nothing else. Only tasks know Spark's conf (`source.py`), so the configuration is
made there.

`write` reads its iterator to the end, because Spark drops what is left without a word. When something upstream of the
sink fails, the iterator merely ends early: the rows until then are written and the task's message is thrown away, which
is at-least-once.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py, python_streaming_sink_runner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafka_sink.errors import BadRow, TableUnsupported
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark import guarantee
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.garbage import freeze_modules
from kafka_sink.spark.guarantee import Guarantee
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.receipt_writer import make_folder
from kafka_sink.spark.task import Task


def write_task(
    write: Guarantee, interceptors: Sequence[Interceptor], arrow_batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Writes the rows of one task attempt, and tells interceptors how that ended. Raises what `Guarantee.write` does;
    the task then fails and Spark decides about another attempt."""
    chain = InterceptorChain(interceptors)
    try:
        with exhaustion_named():
            receipt = write.write(chain, arrow_batches)
    # Whatever it was, also Spark's own: interceptors are told and the task fails with it.
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
        """Pickled by the process that plans the write, and by no other."""
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


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("pykafka")`. `checkpoint`: its location, where that is an option of the write."""

    def __init__(
        self, options: GivenOptions, interceptors: Sequence[Interceptor] = (), checkpoint: str | None = None
    ) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.guarantee = guarantee.of_stream(options, checkpoint)

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Pickled by the process that plans a micro-batch; the one that commits it makes a writer and pickles none."""
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
    # A path that only Spark's conf names is found unusable where the file is written.
    if (path := options.get("receipts_path")) is not None:
        make_folder(path)
    write.plan()
    freeze_modules()


def _refuse_table(conf: Mapping[str, str]) -> None:
    """Spark plans the write of saveAsTable like any other, but runs it within the statement's own execution, and takes
    the table back if it fails. So does foreachBatch, within its stream's. Raises TableUnsupported."""
    own, outer = conf.get("spark.sql.execution.id"), conf.get("spark.sql.execution.root.id")
    if outer is not None and own != outer and "sql.streaming.queryId" not in conf:
        raise TableUnsupported
