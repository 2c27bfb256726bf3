"""What was ever readable, on any replica, at either isolation level: the memory of the oracle of reads.

A replica notes its batches when its high watermark, or its last stable offset, moves past them. What is truncated
later, lost with a disk or deleted with its topic stays in here. Replicas compact each for itself, so a record that one
of them has removed may come back with another leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from model.image import TopicIdPartition
from model.record_batches import RecordBatch


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
