"""The row path of a task: Arrow batches go through interceptors and a producer, and leaders' answers come back.

Both guarantees take it. Exactly-once also names a transaction, a cluster and a fingerprint; for a producer they are
facts of a write like its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowPolicy
from kafka_sink.kafka.producer.runs import PackedRuns
from kafka_sink.kafka.producer.statistics import WriteStatistics
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import SinkConfig
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.records.row_identity import RowIdentity
from kafka_sink.spark.bad_rows import finish
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.rate import rate_limit, tell_throttled


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What became of a task's rows. `record_count`: all that Spark delivered. The rest says where they went, and is
    empty where they were not sent. `runs`: each record batch, where the receipt file asks for it."""

    record_count: int
    partitions: tuple[PartitionOffsets, ...] = ()
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    runs: PackedRuns | None = None
    bad_rows: BadRowCounts = field(default_factory=BadRowCounts)
    cluster_id: str | None = None
    statistics: WriteStatistics = field(default_factory=WriteStatistics)


def produce_rows(
    config: SinkConfig,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
    *,
    bad_rows: BadRowPolicy | None,
    row_identity: RowIdentity | None,
    transaction: Transaction | None = None,
    fingerprint: Fingerprint | None = None,
    cluster_id: str | None = None,
) -> TaskRows:
    """Writes all rows and returns when leaders have acknowledged each of them. The arguments are those of
    `Producer.begin`; `cluster_id`: the only cluster to write to, None: the one that is there.

    Raises SchemaError, InterceptorFailed, BadRow, ClusterError or DeliveryError.
    """
    transactional_id = None if transaction is None else transaction.transactional_id
    with lease_producer(config.producer, cluster_id) as producer:
        write = producer.begin(
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
        for arrow_batch in chain.checked(arrow_batches, topic_option=config.topic is not None):
            write.append(arrow_batch)
        partitions, bad = finish(write, config)
        written_to = producer.cluster_id
    tell_throttled(write, config)
    return TaskRows(
        record_count=write.record_count,
        partitions=partitions,
        topic_ids=write.topic_ids,
        runs=None if config.receipts_path is None else write.runs,
        bad_rows=bad,
        cluster_id=written_to,
        statistics=write.statistics(),
    )
