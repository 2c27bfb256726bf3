"""At-least-once: what a task of a `guarantee.AtLeastOnce` does."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_sink.errors import NotPlanned
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.runs import PackedRuns
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions, complete, over_conf
from kafka_sink.spark.bad_rows import ask_over, bad_row_policy
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.proof import Identity, row_identity, stream_identity, task_proof
from kafka_sink.spark.rate import pace
from kafka_sink.spark.rows import TaskRows, begun, produce_rows
from kafka_sink.spark.task import Task


def write_rows(
    options: GivenOptions, identity: Identity | None, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Write the rows of one task attempt. Without rows, ask no broker. `identity`: of a batch write. Raises as
    `Guarantee.write`."""
    started_ms, task = wall_clock_ms(), Task.current()
    config = complete(over_conf(options, task.conf))
    if config.delivery_guarantee == EXACTLY_ONCE:
        raise NotPlanned(option="deliveryGuarantee=exactly-once")
    if config.create_topics:
        from kafka_sink.spark.created_topic import ensure_topic

        ensure_topic(config)
    if identity is None and (config.receipts_path is not None or config.row_identity):
        identity = stream_identity(task.conf)
    if (begun_batches := begun(arrow_batches)) is None:
        rows = TaskRows(record_count=0, runs=PackedRuns())
    else:
        lease = lease_producer(config.producer, spark_partition=task.slot, has_worked=task.is_of_later_micro_batch)
        with lease as producer:
            rows = produce_rows(
                producer,
                config,
                chain,
                begun_batches,
                bad_rows=bad_row_policy(config, task.conf, ask_over(producer)),
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
