"""What a task returns to the driver: it proves, by the leaders' answers, which rows the task wrote.

It also brings facts that the committing process cannot know: the query and the micro-batch, which tasks have as local
properties, and `receiptsPath`, which may come from Spark's conf (`writes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.errors import ClusterChanged, CommitRefused, TopicRecreated, WriteKind
from kafka_sink.errors.redaction import Discreet
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts
from kafka_sink.kafka.statistics import WriteStatistics
from kafka_sink.options.config import SinkConfig

if TYPE_CHECKING:
    from kafka_sink.kafka.producer.acknowledgements import PackedRuns
    from kafka_sink.records.row_identity import RowIdentity

# A batch write without a version is the only micro-batch of its own query.
ONLY_MICRO_BATCH = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a micro-batch or batch write.

    `receipt_name`: the user's name for a batch write (`receiptName`). Several writes may have the same name. So it
    names receipts, where the last one replaces the others, but never rows, which a reader would drop as duplicates.
    """

    query_id: str
    batch_id: int
    kind: WriteKind
    receipt_name: str | None = None

    @property
    def named(self) -> str:
        """The query id in the receipt."""
        return self.receipt_name or self.query_id


@dataclass(frozen=True, slots=True, repr=False)
class TaskProof(Discreet):
    """A task's part of the receipt file (option `receiptsPath`).

    `runs` is None if the rows were visible before, because then their offsets are unknown. Times are ms since 1970, by
    the executor's wall clock.
    """

    receipts_path: str
    identity: Identity
    guarantee: str
    started_ms: int
    ended_ms: int
    runs: PackedRuns | None


def task_proof(
    config: SinkConfig, identity: Identity | None, started_ms: int, runs: PackedRuns | None
) -> TaskProof | None:
    """Return the proof of a task that ends now, or None if no receipt file is asked for.

    `identity` may be None only if no receipt file is asked for.
    """
    if config.receipts_path is None or identity is None:
        return None
    return TaskProof(config.receipts_path, identity, config.delivery_guarantee, started_ms, wall_clock_ms(), runs)


def row_identity(config: SinkConfig, identity: Identity | None, slot: int) -> RowIdentity | None:
    """Return the identity for the headers of a task's rows, or None if the option rowIdentity is off."""
    if not config.row_identity or identity is None:
        return None
    from kafka_sink.records.row_identity import RowIdentity

    return RowIdentity(identity.query_id, identity.batch_id, slot, config.topic)


def stream_identity(local_properties: Mapping[str, str]) -> Identity:
    """Return the identity of the micro-batch of a stream's task. `local_properties`: the task's."""
    return Identity(
        local_properties["sql.streaming.queryId"], int(local_properties["streaming.sql.batchId"]), WriteKind.STREAM
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """The time span in which a rate-limited task wrote, in ms by its executor's wall clock, and its `rateTasks`."""

    rate_tasks: int
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The rows of one task attempt, all acknowledged.

    `record_count`: the rows that Spark delivered, counted before sending. The sum over `partitions` is the number that
    leaders acknowledged, with dead letters. `write` returns only if both agree, apart from dropped `bad_rows`.
    `topic_ids`: topic ids by topic name; a recreated topic has another id. `proof`: the task's part of the receipt
    file, None if no file is asked for. `pace`: None without a rate limit. `cluster_id`: the cluster of the rows, None
    if unknown or without rows. `statistics`: for interceptors.
    """

    spark_partition_id: int
    record_count: int
    partitions: tuple[PartitionOffsets, ...]
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    proof: TaskProof | None = None
    bad_rows: BadRowCounts = field(default_factory=BadRowCounts)
    pace: Pace | None = None
    cluster_id: str | None = None
    statistics: WriteStatistics = field(default_factory=WriteStatistics)


def check_all_present(
    messages: Sequence[WriterCommitMessage | None], *, micro_batch_id: int | None
) -> tuple[TaskCommitMessage, ...]:
    """Return the receipts, if every task returned one and all wrote to the same topics of one cluster.

    `micro_batch_id` is None for a batch write. Raises CommitRefused, ClusterChanged, TopicRecreated.
    """
    missing = [index for index, message in enumerate(messages) if message is None]
    if missing:
        raise CommitRefused(micro_batch_id=micro_batch_id, missing=missing, tasks=len(messages))
    receipts = tuple(message for message in messages if isinstance(message, TaskCommitMessage))
    _check_cluster(receipts)
    _check_topics(receipts)
    return receipts


def _check_cluster(receipts: Sequence[TaskCommitMessage]) -> None:
    """Raise ClusterChanged if the cluster was replaced between two tasks: the first task's rows are gone."""
    known = [receipt for receipt in receipts if receipt.cluster_id is not None]
    for receipt in known:
        first_id, its_id = str(known[0].cluster_id), str(receipt.cluster_id)
        if its_id != first_id:
            broker = f"the leader of task {receipt.spark_partition_id}"
            raise ClusterChanged(broker=broker, expected=first_id, found=its_id)


def _check_topics(receipts: Sequence[TaskCommitMessage]) -> None:
    """Raise TopicRecreated if a topic was recreated between two tasks: the first task's rows are gone.

    A task that notices the new id fails, but its next attempt sees only the new topic. So the commit compares all ids.
    """
    seen: dict[str, str] = {}
    for receipt in receipts:
        for topic, topic_id in receipt.topic_ids.items():
            if topic_id is not None and (first_id := seen.setdefault(topic, topic_id)) != topic_id:
                raise TopicRecreated(topic=topic, old_topic_id=str(first_id), new_topic_id=str(topic_id))
