"""The executor half, and the driver's commit: Arrow batches of a task go through a producer, receipts come back.

Spark pickles a writer on the driver and runs `write` in a Python worker on an executor; `commit` and `abort` run on the
driver in another process (streaming: on a writer made anew from the options). So a writer is its options and its
interceptors and nothing else. Only tasks know Spark's conf (`source.py`), so the configuration is made there.

`write` reads its iterator to the end, because Spark drops what is left without a word. When something upstream of the
sink fails, the iterator merely ends early: the rows until then are written and the task's message is thrown away, which
is at-least-once.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py, python_streaming_sink_runner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafka_sink.client import lease
from kafka_sink.config import GivenOptions, complete, given_conf
from kafka_sink.errors import ReceiptMismatch
from kafka_sink.spark.commit_message import TaskReceipt, check_all_present
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.interceptors import Interceptor


def write_task(
    options: GivenOptions, interceptors: Sequence[Interceptor], arrow_batches: Iterator[pa.RecordBatch]
) -> TaskReceipt:
    """Writes the rows of one task attempt and returns when leaders have acknowledged all of them.

    Raises ConfigError, SchemaError, InterceptorFailed, BadRow, ClusterError or DeliveryError; the task then fails and
    Spark decides about another attempt.
    """
    chain = InterceptorChain(interceptors)
    try:
        receipt = _write_rows(options, chain, arrow_batches)
    # Whatever it was, also Spark's own: interceptors are told and the task fails with it.
    except Exception as error:
        chain.on_acknowledgement((), error)
        raise
    else:
        chain.on_acknowledgement(receipt.partitions, None)
        return receipt
    finally:
        chain.close()


def _write_rows(
    options: GivenOptions, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> TaskReceipt:
    context = TaskContext.get()
    config = complete({**given_conf(_conf_of(context)), **options})
    with lease(config.producer) as producer:
        write = producer.begin(topic=config.topic, partitioner=config.partitioner)
        checked_schema: pa.Schema | None = None
        for arrow_batch in arrow_batches:
            to_send = chain.on_send(arrow_batch)
            if to_send.schema is not checked_schema:
                chain.check_schema(to_send.schema, arrow_batch.schema, topic_option=config.topic is not None)
                checked_schema = to_send.schema
            write.append(to_send)
        receipts = write.finish()
        acknowledged = sum(receipt.record_count for receipt in receipts)
        if acknowledged != write.record_count:
            raise ReceiptMismatch(received=write.record_count, acknowledged=acknowledged)
    return TaskReceipt(
        spark_partition_id=context.partitionId() if context else 0,
        attempt_number=context.attemptNumber() if context else 0,
        record_count=write.record_count,
        partitions=receipts,
        topic_ids=write.topic_ids,
    )


def _conf_of(context: TaskContext | None) -> Mapping[str, str]:
    """Spark's conf as a task knows it. Not by `getLocalProperty`, which must be asked by name and so finds no name that
    is misspelled."""
    return (context and context._localProperties) or {}


class KafkaBatchWriter(DataSourceArrowWriter):
    """`df.write.format("pykafka")`."""

    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor] = ()) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        return write_task(self.options, self.interceptors, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raises CommitRefused when a task left no receipt. At-least-once needs nothing more: the rows are in Kafka."""
        check_all_present(messages, micro_batch_id=None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Rows that tasks had written stay: at-least-once has no way back, and a rerun writes them again."""


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("pykafka")`."""

    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor] = ()) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        return write_task(self.options, self.interceptors, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Raises CommitRefused when a task left no receipt; then Spark does not record the micro-batch."""
        check_all_present(messages, micro_batch_id=batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Rows that tasks had written stay; the micro-batch is written again when it runs again."""
