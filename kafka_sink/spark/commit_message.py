"""The message of a task to the driver: it proves, by the leaders' answers, which rows the task wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.errors import ClusterChanged, CommitRefused, TopicRecreated
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts
from kafka_sink.kafka.producer.statistics import WriteStatistics
from kafka_sink.spark.proof import TaskProof


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
    attempt_number: int
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
