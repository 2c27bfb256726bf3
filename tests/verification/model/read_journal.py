"""The oracle of reads: what was ever readable, on any replica; which records a reader must deliver, which it may, and
what became of the others.

A replica notes its batches when its high watermark, or its last stable offset, moves past them. What is truncated
later, lost with a disk or deleted with its topic stays in here. Replicas compact each for itself, so a record that one
of them has removed may come back with another leader.

A correct reader of a range, at an isolation level, delivers each KEPT record once, in the order of offsets. It may
deliver a record of another fate, if it came in time: before retention, compaction or a truncation took it. Whatever is
not here at all (aborted rows, markers, what was never below a high watermark) it must not deliver. The fates are those
of the leader's log at the moment of the question. So ask when the cluster has healed: a new leader that does not know
its high watermark yet seems to have lost what is above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, NamedTuple

from model.controller import TopicIdPartition
from model.record_batches import RecordBatch, decode_stored_records

if TYPE_CHECKING:
    from model.partition import Partition


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Place(NamedTuple):
    """A batch of one leader: no leader epoch has two leaders."""

    base_offset: int
    leader_epoch: int


class ReadJournal:
    def __init__(self) -> None:
        self._batches: dict[tuple[TopicIdPartition, Isolation], dict[Place, RecordBatch]] = {}
        self._compacted: dict[TopicIdPartition, set[tuple[Place, int]]] = {}

    def note(self, key: TopicIdPartition, isolation: Isolation, batches: Iterable[RecordBatch]) -> None:
        noted = self._batches.setdefault((key, isolation), {})
        for batch in batches:
            noted.setdefault(place_of(batch), batch)

    def note_compacted(self, key: TopicIdPartition, batch: RecordBatch, offsets: Iterable[int]) -> None:
        self._compacted.setdefault(key, set()).update((place_of(batch), offset) for offset in offsets)

    def is_compacted(self, key: TopicIdPartition, batch: RecordBatch, offset: int) -> bool:
        """On some replica, at some time."""
        return (place_of(batch), offset) in self._compacted.get(key, ())

    def batches(self, key: TopicIdPartition, isolation: Isolation) -> list[RecordBatch]:
        """In the order of offsets, and of leader epochs where logs diverged."""
        noted = self._batches.get((key, isolation), {})
        return [noted[place] for place in sorted(noted)]


def place_of(batch: RecordBatch) -> Place:
    return Place(batch.base_offset, batch.leader_epoch)


class Fate(Enum):
    KEPT = auto()
    """A reader gets it."""
    DELETED = auto()
    """By retention or DeleteRecords: the log starts behind it."""
    COMPACTED = auto()
    """Compaction removed it on some replica, and perhaps not on the leader's: a reader may have missed it. What
    became of it since does not matter."""
    TRUNCATED = auto()
    """It was readable once, and is not in the leader's log, or its commit is not."""
    TOPIC_GONE = auto()
    """The topic was deleted."""


class ReadableRecord(NamedTuple):
    """`timestamp` in ms. `leader_epoch`: of the leader that appended it, by which two records at one offset differ."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    fate: Fate


def readable_records(
    journal: ReadJournal, key: TopicIdPartition, leader: Partition | None, isolation: Isolation, first_offset: int = 0,
    end_offset: int | None = None,
) -> list[ReadableRecord]:  # fmt: skip
    """Every record that was ever readable in [first_offset, end_offset). `leader`: its replica; None if the topic is
    gone."""
    visible = {place_of(batch) for batch in leader.readable(isolation)} if leader is not None else set()
    records = []
    for batch in journal.batches(key, isolation):
        for record in decode_stored_records(batch):
            if journal.is_compacted(key, batch, record.offset):
                fate = Fate.COMPACTED
            elif leader is None:
                fate = Fate.TOPIC_GONE
            elif place_of(batch) not in visible:
                fate = Fate.TRUNCATED
            else:
                fate = Fate.DELETED if record.offset < leader.log.start_offset else Fate.KEPT
            records.append(ReadableRecord(*record, leader_epoch=batch.leader_epoch, fate=fate))
    return [
        record
        for record in records
        if record.offset >= first_offset and (end_offset is None or record.offset < end_offset)
    ]
