"""The log of one replica: batches by offset, and from which offset each leader epoch counts.

Source: UnifiedLog, LeaderEpochFileCache in Kafka; KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from model.record_batches import RecordBatch


class EpochAndOffset(NamedTuple):
    epoch: int
    offset: int


class PartitionLog:
    """Starts at offset 0: nothing is ever deleted by retention."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.epoch_starts: list[EpochAndOffset] = []
        self.end_offset = 0

    @property
    def last_epoch(self) -> int | None:
        return self.epoch_starts[-1].epoch if self.epoch_starts else None

    def append(self, batch: RecordBatch) -> None:
        """`batch` has its place: offset and leader epoch are final."""
        assert batch.base_offset == self.end_offset
        if batch.leader_epoch != self.last_epoch:
            self.assign_epoch(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.end_offset = batch.next_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """`epoch` starts at `start_offset`; whatever claimed to be newer, or to start later, is forgotten."""
        before = [known for known in self.epoch_starts if known.epoch < epoch and known.offset < start_offset]
        self.epoch_starts = [*before, EpochAndOffset(epoch, start_offset)]

    def end_offset_of(self, epoch: int) -> EpochAndOffset | None:
        """The largest epoch up to `epoch` and the offset at which it ends; None if `epoch` is newer than any known."""
        last_epoch = self.last_epoch
        if last_epoch is None or epoch > last_epoch:
            return None
        if epoch == last_epoch:
            return EpochAndOffset(epoch, self.end_offset)
        after = next(index for index, known in enumerate(self.epoch_starts) if known.epoch > epoch)
        # An epoch before the first known one ends where that starts.
        found = self.epoch_starts[after - 1].epoch if after else epoch
        return EpochAndOffset(found, self.epoch_starts[after].offset)

    def truncate_to(self, offset: int) -> bool:
        """Drops every batch that reaches beyond `offset`. False if there is none."""
        if offset > self.end_offset:
            return False
        count = len(self.batches)
        while self.batches and self.batches[-1].next_offset > offset:
            self.end_offset = self.batches.pop().base_offset
        # Also an epoch in which this replica led and wrote nothing: its successors may never have heard of it.
        self.epoch_starts = [known for known in self.epoch_starts if known.offset < self.end_offset]
        return len(self.batches) < count

    def read(self, start_offset: int, end_offset: int | None = None) -> list[RecordBatch]:
        """The batches from `start_offset` on, those that reach beyond `end_offset` left out."""
        first = bisect_left(self.batches, start_offset, key=attrgetter("base_offset"))
        if end_offset is None:
            return self.batches[first:]
        return [batch for batch in self.batches[first:] if batch.next_offset <= end_offset]
