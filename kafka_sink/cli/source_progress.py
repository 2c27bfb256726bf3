"""How far a stream is in the topics that it reads: the positions of its checkpoint beside the logs of a cluster. Pure.

    recorded            planned                            latest
    ----|-------------------|----------------------------------|
        |<---- planned ---->|                                  |
        |<-------------------- behind ------------------------>|

All figures are offsets. Transaction markers and compacted records have some, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafka_sink.kafka.protocol.topic_partition import TopicPartition

Document: TypeAlias = dict[str, object]


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


# --- for scripts ------------------------------------------------------------------------------------------------------


def source_document(source: SourceProgress) -> Document:
    return {
        "source": source.name,
        "micro_batch_id": source.micro_batch_id,
        "recorded": source.is_recorded,
        "topics": None if source.topics is None else [_topic_document(each) for each in source.topics],
    }


def _topic_document(topic: TopicProgress) -> Document:
    return {
        "topic": topic.topic,
        "behind": topic.behind,
        "planned": topic.planned,
        "partitions": [
            {
                "partition": each.partition, "position": each.position, "behind": each.behind, "planned": each.planned,
                "behind_open_transactions": each.unstable, "deleted": each.deleted, "ahead": each.ahead,
            }
            for each in topic.partitions
        ],
        "not_looked_at": list(topic.not_looked_at),
        "gone": list(topic.gone),
    }  # fmt: skip
