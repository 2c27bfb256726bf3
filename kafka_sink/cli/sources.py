"""How far a query's sources are: the positions of its checkpoint beside the logs of a cluster.

    recorded            planned                            latest
    ----|-------------------|----------------------------------|
        |<---- planned ---->|                                  |
        |<-------------------- behind ------------------------>|

All figures are offsets. Transaction markers and compacted records have some, too.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.cli.checkpoint import Checkpoint, SourceOffsets
from kafka_sink.command_line import shown
from kafka_sink.errors import TopicAuthorizationFailed
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST, LATEST
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import Offsets, kafka_offsets


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log: its first offset, where readers of committed records end, and its end."""

    earliest: int
    stable: int
    latest: int


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """- `position`: up to where the source has read
    - `behind`: from there to the end of the log
    - `planned`: the part of it that a micro-batch reads which is not recorded yet
    - `unstable`: the part of it that open transactions hide from readers of committed records
    - `deleted`: the part before the first offset that the log still has
    - `ahead`: how far the position is after the end of the log
    """

    partition: int
    position: int
    behind: int
    planned: int
    unstable: int
    deleted: int
    ahead: int


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """`not_looked_at`: partitions of which the cluster tells nothing now. `gone`: partitions that the cluster does not
    have; all of them if it does not have the topic."""

    topic: str
    partitions: tuple[PartitionProgress, ...]
    not_looked_at: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()

    @property
    def behind(self) -> int:
        return sum(each.behind for each in self.partitions)

    @property
    def planned(self) -> int:
        return sum(each.planned for each in self.partitions)

    @property
    def slowest(self) -> PartitionProgress | None:
        """The partition that is furthest behind, or None if none is behind."""
        return max((each for each in self.partitions if each.behind), key=lambda each: each.behind, default=None)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query. `micro_batch_id`: the last one that it has read. `is_recorded`: False if that one is only
    planned, because none is recorded yet. If the source is not Kafka, only its name is known."""

    name: str
    micro_batch_id: int | None = None
    is_recorded: bool = False
    topics: tuple[TopicProgress, ...] | None = None


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


def topic_progress(
    topic: str, position: Mapping[int, int], planned: Mapping[int, int], logs: Mapping[TopicPartition, Log | None]
) -> TopicProgress:
    """Return the progress in one topic.

    `position`, `planned`: by partition. `logs`: those of the cluster, None for a partition of which it tells nothing
    now. A partition without a position is new, and is read from its earliest offset, as Spark does.
    """
    here = {each.partition: log for each, log in logs.items() if each.topic == topic}
    return TopicProgress(
        topic,
        tuple(
            _partition(number, position.get(number, log.earliest), planned.get(number), log)
            for number, log in sorted(here.items())
            if log is not None
        ),
        not_looked_at=tuple(sorted(number for number, log in here.items() if log is None)),
        gone=tuple(sorted({*position, *planned} - here.keys())),
    )


def _partition(number: int, position: int, planned: int | None, log: Log) -> PartitionProgress:
    return PartitionProgress(
        number,
        position,
        behind=max(0, log.latest - position),
        planned=max(0, (position if planned is None else planned) - position),
        unstable=max(0, log.latest - max(position, log.stable)),
        deleted=max(0, min(log.earliest, log.latest) - position),
        ahead=max(0, position - log.latest),
    )


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
