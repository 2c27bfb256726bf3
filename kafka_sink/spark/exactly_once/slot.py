"""A task's part of exactly-once: it writes its rows into its slot's open transaction, or only counts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from kafka_sink.commit import attempt
from kafka_sink.commit.handover import SlotBegun, SlotPrepared
from kafka_sink.commit.markers import Marker
from kafka_sink.commit.runner import run
from kafka_sink.errors import AnotherCheckpoint, NotPlanned, RefusedOption
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.acknowledgements import PackedRuns, PartitionOffsets
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import FAIL, GivenOptions, SinkConfig, complete, over_conf
from kafka_sink.records.bad_rows import columns_for_fingerprint, named_topics
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint, total
from kafka_sink.spark.exactly_once.plan import CountedCommitMessage, Plan, PreparedCommitMessage, in_transaction_errors
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.kept_clients import lease_producer
from kafka_sink.spark.limits import bad_row_policy, pace
from kafka_sink.spark.rows import TaskRows, begun, produce_rows
from kafka_sink.spark.task import Task
from kafka_sink.spark.task_results import Identity, row_identity, stream_identity, task_proof


def write_slot(
    given: GivenOptions, plan: Plan, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> PreparedCommitMessage | CountedCommitMessage:
    """Write the rows of one task attempt into its slot's transaction, and prepare the transaction.

    If the plan found the rows written, read them to the end and send none: Spark still runs the task. Raises as
    `Guarantee.write`.
    """
    assert TaskContext.get() is not None, "write() runs in a task"
    task = Task.current()
    if task.conf.get("spark.speculation", "").lower() == "true":
        raise RefusedOption(
            option="spark.speculation",
            instead="with deliveryGuarantee=exactly-once a second attempt of a running task takes its transaction "
            "over: set it to false.",
        )
    with in_transaction_errors(plan.batch):
        config = complete(over_conf(given, task.conf))
        if config.txn_app_id is not None and "txn_app_id" not in given:
            raise NotPlanned(option="txnAppId")
        if plan.is_written:
            return _count(config, plan, task, chain, arrow_batches)
        return _prepare(config, plan, task, chain, arrow_batches)


def _count(
    config: SinkConfig, plan: Plan, task: Task, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> CountedCommitMessage:
    record_count, digest, topics = _count_rows(config, chain, arrow_batches)
    return CountedCommitMessage(
        spark_partition_id=task.slot,
        record_count=record_count,
        partitions=(),
        fingerprint=digest,
        topics=topics,
        plan=plan if task.slot == 0 else None,
    )


def _prepare(
    config: SinkConfig, plan: Plan, task: Task, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> PreparedCommitMessage:
    # A batch write has its own identity. In foreachBatch the task's conf has the identity of the stream.
    identity = stream_identity(task.conf) if plan.batch is None else plan.batch
    if plan.query_id not in (None, identity.query_id):
        raise AnotherCheckpoint(sink=plan.sink.names.sink, query_id=identity.query_id, found_query_id=plan.query_id)
    started_ms = wall_clock_ms()
    # An earlier attempt may have found rows, and only Init ends its transaction.
    ids = None if task.is_retry else plan.facts.resting_ids(task.slot, plan.sink.transaction_version)
    begun_batches = arrow_batches if ids is None else begun(arrow_batches)
    if ids is not None and begun_batches is None:
        rows = TaskRows(record_count=0, runs=PackedRuns())
        digest = _digest_of(Fingerprint(), config)
        prepared = SlotPrepared(task.slot, ids, identity.query_id, digest, visible=None, rests=True)
    else:
        assert begun_batches is not None, "a slot that may not rest has all its Arrow batches"
        rows, prepared = _write(config, plan, task, identity, chain, begun_batches)
    return PreparedCommitMessage(
        spark_partition_id=task.slot,
        record_count=rows.record_count,
        partitions=rows.partitions,
        topic_ids=rows.topic_ids,
        proof=task_proof(config, identity, started_ms, rows.runs),
        bad_rows=rows.bad_rows,
        pace=pace(config, started_ms),
        statistics=rows.statistics,
        prepared=prepared,
        sink_name=plan.sink.names.sink,
        generation=plan.facts.generation,
        micro_batch_id=identity.batch_id,
        plan=plan if task.slot == 0 else None,
    )


def _write(
    config: SinkConfig,
    plan: Plan,
    task: Task,
    identity: Identity,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
) -> tuple[TaskRows, SlotPrepared]:
    with lease_producer(config.producer, plan.sink.cluster_id, spark_partition=task.slot) as producer:
        slot = _Slot(config, plan, task, identity, producer)
        slot_begun = slot.begin()
        send = slot.send if slot_begun.visible is None else slot.read_again
        return send(slot_begun, chain, arrow_batches)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One attempt at a slot's transaction. Rows and all other requests share the connections of `producer`."""

    config: SinkConfig
    plan: Plan
    task: Task
    identity: Identity
    producer: Producer

    def begin(self) -> SlotBegun:
        steps = attempt.begin(
            self.plan.sink,
            self.plan.facts,
            slot=self.task.slot,
            micro_batch_id=self.identity.batch_id,
            query_id=self.identity.query_id,
            allow_lost_state=self.plan.allow_lost_state,
        )
        return run(self.producer.admin, steps)

    def send(
        self, begun: SlotBegun, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
    ) -> tuple[TaskRows, SlotPrepared]:
        """Write the rows, then the marker."""
        sink, query_id, micro_batch_id = self.plan.sink, self.identity.query_id, self.identity.batch_id
        fingerprint = Fingerprint()
        rows = produce_rows(
            self.producer,
            self.config,
            chain,
            arrow_batches,
            bad_rows=bad_row_policy(
                self.config, self.task.conf, self.producer, query_id=query_id, batch_id=micro_batch_id
            ),
            row_identity=row_identity(self.config, self.identity, self.task.slot),
            transaction=Transaction(
                transactional_id=sink.names.slot(begun.slot),
                producer_id=begun.ids.producer_id,
                producer_epoch=begun.ids.producer_epoch,
                version=sink.transaction_version,
                timeout_ms=sink.timeout_ms,
            ),
            fingerprint=fingerprint,
        )
        digest = _digest_of(fingerprint, self.config)
        run(self.producer.admin, attempt.prepare(sink, begun, Marker(micro_batch_id, query_id, digest)))
        written = {TopicPartition(each.topic, each.partition): each for each in rows.partitions}
        return rows, self._prepared(begun, digest, tuple(written), written)

    def read_again(
        self, begun: SlotBegun, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
    ) -> tuple[TaskRows, SlotPrepared]:
        """Count rows that are visible already."""
        record_count, digest, topics = _count_rows(self.config, chain, arrow_batches)
        # Only the attempt that wrote the rows knew their partitions, so take all partitions of the topics.
        led, leaderless = self.producer.admin.partitions(topics)
        rows = TaskRows(record_count, topic_ids=self.producer.admin.topic_ids(topics))
        return rows, self._prepared(begun, digest, led + leaderless, {})

    def _prepared(
        self,
        begun: SlotBegun,
        digest: str,
        partitions: tuple[TopicPartition, ...],
        written: Mapping[TopicPartition, PartitionOffsets],
    ) -> SlotPrepared:
        return SlotPrepared(
            slot=self.task.slot,
            ids=begun.ids,
            query_id=self.identity.query_id,
            fingerprint=digest,
            visible=begun.visible,
            partitions=partitions,
            first_offsets={partition: each.first_offset for partition, each in written.items()},
            record_counts={partition: each.record_count for partition, each in written.items()},
        )


# --- counting ---------------------------------------------------------------------------------------------------------


def _count_rows(
    config: SinkConfig, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> tuple[int, str, tuple[str, ...]]:
    """Read the rows of a slot that is visible already, and send none.

    Returns their number, their digest as in the slot's marker, and their topics. Bad rows are not looked for again,
    because the limits may have changed since. So all rows count, including those that became dead letters.
    """
    fingerprint, record_count, topics = Fingerprint(), 0, set[str]()
    columns_of = RecordColumns.from_arrow if config.bad_rows == FAIL else columns_for_fingerprint
    if config.dead_letter_topic is not None:
        topics.add(config.dead_letter_topic)
    for arrow_batch in chain.checked(
        arrow_batches, topic_option=config.topic is not None, takes_dead_letters=config.bad_rows != FAIL
    ):
        columns = columns_of(arrow_batch, now_ms=0)
        fingerprint.update(columns)
        record_count += columns.num_rows
        if config.topic is None:
            topics |= named_topics(arrow_batch)
        elif columns.num_rows:
            topics.add(config.topic)
    return record_count, _digest_of(fingerprint, config), tuple(sorted(topics))


def _digest_of(fingerprint: Fingerprint, config: SinkConfig) -> str:
    """Return the digest of the rows and of the option `topic`, which the rows do not contain."""
    return f"{fingerprint.digest()}:{config.topic or ''}"


def total_of(digests: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Return the total fingerprint of all slots, and the set of their topic options."""
    parts = [digest.rpartition(":") for digest in digests]
    return total(rows for rows, _, _ in parts), frozenset(topic for _, _, topic in parts)
