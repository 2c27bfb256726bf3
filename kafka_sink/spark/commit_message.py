"""What a task tells the driver: proof, from the leaders' answers, of what it wrote."""

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
    """From when to when a task that was to be slow wrote, by its executor's wall clock, and how many it took for
    writing at once."""

    rate_tasks: int
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """One task attempt's rows, all acknowledged. `record_count` is what Spark delivered, counted before sending; the
    sum over `partitions` is what leaders acknowledged, dead letters too; `write` returns only when they agree but for
    the `bad_rows` that were dropped. `topic_ids`: which topics they were, by name; one that is made again has another
    id. `proof`: the task's part of the receipt file, where one is asked for. `pace`: None where it was as fast as it
    went. `cluster_id`: where the rows are; None: not known, or there are no rows. `statistics`: for interceptors."""

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
    """The receipts, if every task gave one and all wrote to the same topics of one cluster. `micro_batch_id` is None
    for a batch write. Raises CommitRefused, ClusterChanged, TopicRecreated."""
    missing = [index for index, message in enumerate(messages) if message is None]
    if missing:
        raise CommitRefused(micro_batch_id=micro_batch_id, missing=missing, tasks=len(messages))
    receipts = tuple(message for message in messages if isinstance(message, TaskCommitMessage))
    _check_cluster(receipts)
    _check_topics(receipts)
    return receipts


def _check_cluster(receipts: Sequence[TaskCommitMessage]) -> None:
    """A cluster that is replaced between two tasks takes the rows of the first one with it."""
    known = [receipt for receipt in receipts if receipt.cluster_id is not None]
    for receipt in known:
        first_id, its_id = str(known[0].cluster_id), str(receipt.cluster_id)
        if its_id != first_id:
            broker = f"the leader of task {receipt.spark_partition_id}"
            raise ClusterChanged(broker=broker, expected=first_id, found=its_id)


def _check_topics(receipts: Sequence[TaskCommitMessage]) -> None:
    """A topic that is made again between two tasks takes the rows of the first one with it; the second one's attempt
    that notices fails, and the next finds nothing wrong."""
    seen: dict[str, str | None] = {}
    for receipt in receipts:
        for topic, topic_id in receipt.topic_ids.items():
            first_id = seen.setdefault(topic, topic_id)
            if first_id != topic_id:
                raise TopicRecreated(topic=topic, old_topic_id=str(first_id), new_topic_id=str(topic_id))
