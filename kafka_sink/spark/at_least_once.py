"""At-least-once: rows are in Kafka, for everybody to read, when their task returns.

Nothing is planned, and there is no way back: rows that tasks of a failed attempt have written stay, and are written
again by the next attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.errors import NotPlanned, WriteKind
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions, SinkConfig, complete, over_conf
from kafka_sink.spark.bad_rows import ask_cluster, bad_row_policy, check_bad_rows
from kafka_sink.spark.commit_message import TaskCommitMessage, check_all_present
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.proof import ONLY_MICRO_BATCH, Identity, row_identity, stream_identity, task_proof
from kafka_sink.spark.rate import pace, tell_too_fast
from kafka_sink.spark.receipt_writer import leave_receipt
from kafka_sink.spark.rows import produce_rows
from kafka_sink.spark.task import Task


class AtLeastOnce:
    """A `Guarantee`. `identity`: a batch write's, for its receipt and its rows' headers; None for a stream, whose tasks
    know theirs."""

    def __init__(self, options: GivenOptions, identity: Identity | None = None) -> None:
        self.options = options
        self.identity = identity

    @classmethod
    def of_batch(cls, options: GivenOptions) -> AtLeastOnce:
        # There is no other name for a batch write.
        name = options.get("receipt_name")
        return cls(options, Identity(str(uuid.uuid4()), ONLY_MICRO_BATCH, WriteKind.BATCH, receipt_name=name))

    def plan(self) -> None:
        """Nothing is asked of the cluster."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        started_ms, task = wall_clock_ms(), Task.current()
        config = complete(over_conf(self.options, task.conf))
        if config.delivery_guarantee == EXACTLY_ONCE:
            raise NotPlanned(option="deliveryGuarantee=exactly-once")
        if config.create_topics:
            from kafka_sink.spark.created_topic import ensure_topic

            ensure_topic(config)
        identity = self._identity(config, task)
        rows = produce_rows(
            config,
            chain,
            arrow_batches,
            bad_rows=bad_row_policy(config, task.conf, ask_cluster(config.producer)),
            row_identity=row_identity(config, identity, task.slot),
        )
        return TaskCommitMessage(
            spark_partition_id=task.slot,
            attempt_number=task.attempt_number,
            record_count=rows.record_count,
            partitions=rows.partitions,
            topic_ids=rows.topic_ids,
            proof=task_proof(config, identity, started_ms, rows.runs),
            bad_rows=rows.bad_rows,
            pace=pace(config, started_ms),
            cluster_id=rows.cluster_id,
            statistics=rows.statistics,
        )

    def _identity(self, config: SinkConfig, task: Task) -> Identity | None:
        if self.identity is None and (config.receipts_path is not None or config.row_identity):
            return stream_identity(task.conf)
        return self.identity

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        receipts = check_all_present(messages, micro_batch_id=micro_batch_id)
        # The rows are in Kafka: of what is wrong now, users are told.
        tell_too_fast(receipts)
        leave_receipt(receipts)
        check_bad_rows(receipts, rows_are_written=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leaves the rows that tasks had written."""
