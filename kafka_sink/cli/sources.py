"""How far a query's sources are: asks the cluster where the logs begin and end, and puts it into words.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_sink.cli.checkpoint import Checkpoint, SourceOffsets
from kafka_sink.cli.source_progress import Log, SourceProgress, TopicProgress, topic_progress
from kafka_sink.command_line import shown
from kafka_sink.errors import TopicAuthorizationFailed
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import EARLIEST, LATEST
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.text.source_offsets import Offsets, kafka_offsets

HEADS = ("TOPIC", "PARTITIONS", "BEHIND", "PLANNED", "FURTHEST BEHIND")


def progress_of(
    client: AdminClient, checkpoint: Checkpoint, offsets: Mapping[str, SourceOffsets]
) -> list[SourceProgress]:
    """Return the progress of each source of a query. Raises ClusterError."""
    parsed = {name: (_parsed(each.recorded), _parsed(each.planned)) for name, each in offsets.items()}
    topics = sorted({topic for both in parsed.values() for each in both if each is not None for topic in each})
    logs = logs_of(client, topics)
    return [_source(name, recorded, planned, checkpoint, logs) for name, (recorded, planned) in parsed.items()]


def _parsed(text: str | None) -> Offsets | None:
    return None if text is None else kafka_offsets(text)


def _source(
    name: str,
    recorded: Offsets | None,
    planned: Offsets | None,
    checkpoint: Checkpoint,
    logs: Mapping[TopicPartition, Log | None],
) -> SourceProgress:
    is_recorded = recorded is not None
    position = recorded if is_recorded else planned
    if position is None:
        return SourceProgress(name)
    ends = planned or {}
    topics = (
        topic_progress(topic, position.get(topic, {}), ends.get(topic, {}), logs)
        for topic in sorted({*position, *ends})
    )
    micro_batch_id = checkpoint.recorded if is_recorded else checkpoint.planned
    return SourceProgress(name, micro_batch_id, is_recorded, tuple(topics))


def logs_of(client: AdminClient, topics: Sequence[str]) -> dict[TopicPartition, Log | None]:
    """Return the logs of the topics that exist. None: the partition has no leader.

    Raises TopicAuthorizationFailed, FetchRefused, LeaderUnavailable or BrokersUnreachable.
    """
    if not topics:
        return {}
    leaders: dict[TopicPartition, int] = {}
    for name, topic in client.topics(tuple(topics)).items():
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name, operation="DESCRIBE")
        leaders |= {TopicPartition(name, each.partition): each.leader_id for each in topic.partitions}
    led = sorted(each for each, leader_id in leaders.items() if leader_id >= 0)
    earliest, stable, latest = (
        {} if not led else list_offsets(client, dict.fromkeys(led, at), level)
        for at, level in (
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
            (LATEST, IsolationLevel.READ_COMMITTED),
            (LATEST, IsolationLevel.READ_UNCOMMITTED),
        )
    )
    found: dict[TopicPartition, Log | None] = dict.fromkeys(leaders)
    return found | {each: Log(*(answer[each].offset for answer in (earliest, stable, latest))) for each in led}


# --- words ------------------------------------------------------------------------------------------------------------


def heading(source: SourceProgress) -> str:
    if source.topics is None:
        return f"Source {source.name} is not Kafka. Only Spark knows how far it is."
    state = "recorded" if source.is_recorded else "planned, and none is recorded yet"
    return f"Source {source.name}, up to micro-batch {source.micro_batch_id}, which is {state}:"


def rows_of(topics: Iterable[TopicProgress]) -> list[tuple[str, ...]]:
    """Return the rows of the table, whose columns are HEADS."""
    rows: list[tuple[str, ...]] = []
    for each in topics:
        slowest = each.slowest
        furthest = "" if slowest is None else f"{each.topic}-{slowest.partition}: {slowest.behind:,}"
        rows.append((each.topic, f"{len(each.partitions):,}", f"{each.behind:,}", f"{each.planned:,}", furthest))
    return rows


def notes_of(topic: TopicProgress) -> Iterator[str]:
    """Return a line for each thing that an operator has to know."""

    def partitions(numbers: Iterable[int]) -> str:
        return shown(f"{topic.topic}-{number}" for number in numbers)

    if topic.gone and not topic.partitions and not topic.not_looked_at:
        yield (
            f"{topic.topic} is not on this cluster. It was deleted, or the source reads another cluster: name that one "
            "with --bootstrap-servers."
        )
    elif topic.gone:
        yield f"{partitions(topic.gone)}: not in the topic. It was deleted and created again with fewer partitions."
    if topic.not_looked_at:
        yield f"Not looked at, because no leader answers for them: {partitions(topic.not_looked_at)}."
    if deleted := {each.partition: each.deleted for each in topic.partitions if each.deleted}:
        yield (
            f"DATA LOSS: {sum(deleted.values()):,} offsets that were not read are deleted, in {partitions(deleted)}. "
            "With failOnDataLoss=true the query stops there, with false it leaves them out."
        )
    if ahead := {each.partition: each.ahead for each in topic.partitions if each.ahead}:
        yield (
            f"DATA LOSS: the log ends before the position, by {sum(ahead.values()):,} offsets in {partitions(ahead)}. "
            "The topic was deleted and created again, or an unclean election truncated it."
        )
    if unstable := {each.partition: each.unstable for each in topic.partitions if each.unstable}:
        yield (
            f"{sum(unstable.values()):,} of the offsets are behind open transactions, in {partitions(unstable)}. A "
            "source with read_committed waits for their end: `pykafka transactions list` names them."
        )
