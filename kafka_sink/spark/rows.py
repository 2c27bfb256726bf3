"""The row path of a task: Arrow batches go through interceptors and a producer, and the leaders' answers come back.

Both guarantees use it, with a producer that they have leased. Exactly-once adds a transaction and a fingerprint as
arguments of the write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain as chained

import pyarrow as pa

from kafka_sink.errors import NotPlanned
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.acknowledgements import PackedRuns, PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowPolicy
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.statistics import WriteStatistics
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions, SinkConfig, complete, over_conf
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.records.row_identity import RowIdentity
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.kept_clients import lease_producer
from kafka_sink.spark.limits import bad_row_policy, finish, pace, rate_limit, warn_of_throttling
from kafka_sink.spark.task import Task
from kafka_sink.spark.task_results import Identity, TaskCommitMessage, row_identity, stream_identity, task_proof


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The result of a task's rows.

    `record_count`: all rows that Spark delivered. The other fields describe the written rows, and are empty if the rows
    were not sent. `runs`: each record batch, None if no receipt file is asked for.
    """

    record_count: int
    partitions: tuple[PartitionOffsets, ...] = ()
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    runs: PackedRuns | None = None
    bad_rows: BadRowCounts = field(default_factory=BadRowCounts)
    cluster_id: str | None = None
    statistics: WriteStatistics = field(default_factory=WriteStatistics)


def begun(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """Wait for the first Arrow batch, and return all of them. None: the task has no rows, and needs no producer."""
    for first in arrow_batches:
        return chained((first,), arrow_batches)
    return None


def produce_rows(
    producer: Producer,
    config: SinkConfig,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
    *,
    bad_rows: BadRowPolicy | None,
    row_identity: RowIdentity | None,
    transaction: Transaction | None = None,
    fingerprint: Fingerprint | None = None,
) -> TaskRows:
    """Write all rows, and return when the leaders have acknowledged every row.

    The arguments are those of `Write`.

    Raises SchemaError, InterceptorFailed, BadRow, ClusterError or DeliveryError.
    """
    transactional_id = None if transaction is None else transaction.transactional_id
    write = Write(
        producer,
        topic=config.topic,
        partitioner=config.partitioner,
        transaction=transaction,
        fingerprint=fingerprint,
        bad_rows=bad_rows,
        rate_limit=rate_limit(config, transactional_id=transactional_id),
        row_identity=row_identity,
    )
    if config.receipts_path is not None:
        write.keep_runs()
    for arrow_batch in chain.checked(
        arrow_batches, topic_option=config.topic is not None, takes_dead_letters=bad_rows is not None
    ):
        write.append(arrow_batch)
    partitions, bad = finish(write, config)
    warn_of_throttling(write, config)
    return TaskRows(
        record_count=write.record_count,
        partitions=partitions,
        topic_ids=write.topic_ids,
        runs=None if config.receipts_path is None else write.runs,
        bad_rows=bad,
        cluster_id=producer.cluster_id,
        statistics=write.statistics(),
    )


def write_rows(
    options: GivenOptions, identity: Identity | None, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Write the rows of one task attempt of an at-least-once write. Without rows, ask no broker.

    `identity`: of a batch write. Raises as `Guarantee.write`.
    """
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
                bad_rows=bad_row_policy(config, task.conf, producer),
                row_identity=row_identity(config, identity, task.slot),
            )
    return TaskCommitMessage(
        spark_partition_id=task.slot,
        record_count=rows.record_count,
        partitions=rows.partitions,
        topic_ids=rows.topic_ids,
        proof=task_proof(config, identity, started_ms, rows.runs),
        bad_rows=rows.bad_rows,
        pace=pace(config, started_ms),
        cluster_id=rows.cluster_id,
        statistics=rows.statistics,
    )
