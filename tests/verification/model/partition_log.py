"""The log of one replica: batches by offset, and from which offset each leader epoch counts.

`batches` has all that was ever appended and not truncated. Readers get `stored`: what retention and DeleteRecords left
(from `start_offset` on), in the form in which compaction left it. So an oracle can compare the two, and the state of
producers is rebuilt from batches that are gone, as Kafka rebuilds it from snapshots.

Source: UnifiedLog, LocalLog, LeaderEpochFileCache in Kafka; KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from model.record_batches import RecordBatch
from model.transaction_index import TransactionIndex


class EpochAndOffset(NamedTuple):
    epoch: int
    offset: int


class PartitionLog:
    def __init__(self, index_interval_bytes: int = 4_096) -> None:
        self.index_interval_bytes = index_interval_bytes
        self.batches: list[RecordBatch] = []
        self.epoch_starts: list[EpochAndOffset] = []
        self.transactions = TransactionIndex()
        self.start_offset = 0
        self.end_offset = 0
        # By base offset, what compaction put there; None: nothing.
        self._cleaned: dict[int, RecordBatch | None] = {}
        # By base offset, what readers get instead of a batch.
        self.harmed: dict[int, bytes] = {}

    @property
    def last_epoch(self) -> int | None:
        return self.epoch_starts[-1].epoch if self.epoch_starts else None

    def append(self, batch: RecordBatch) -> None:
        """`batch` has its place: offset and leader epoch are final."""
        assert batch.base_offset == self.end_offset
        if batch.leader_epoch != self.last_epoch:
            self.assign_epoch(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.transactions.append(batch)
        self.end_offset = batch.next_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """`epoch` starts at `start_offset`; whatever claimed to be newer, or to start later, is forgotten."""
        before = [known for known in self.epoch_starts if known.epoch < epoch and known.offset < start_offset]
        self.epoch_starts = [*before, EpochAndOffset(epoch, start_offset)]

    def end_offset_of(self, epoch: int) -> EpochAndOffset | None:
        """The largest epoch up to `epoch` and the offset at which it ends; None if `epoch` is newer than any known."""
        return _end_offset_of(epoch, self.epoch_starts, self.end_offset)

    def truncate_to(self, offset: int) -> bool:
        """Drops every batch that reaches beyond `offset`. False if there is none."""
        if offset > self.end_offset:
            return False
        count = len(self.batches)
        while self.batches and self.batches[-1].next_offset > offset:
            self.end_offset = self.batches.pop().base_offset
        # Also an epoch in which this replica led and wrote nothing: its successors may never have heard of it.
        self.epoch_starts = [known for known in self.epoch_starts if known.offset < self.end_offset]
        if len(self.batches) == count:
            return False
        self.start_offset = min(self.start_offset, self.end_offset)
        self.transactions.rebuild(self.batches)
        cleaned, self._cleaned = self._cleaned, {}
        for offset, left in cleaned.items():
            if offset < self.end_offset:
                self.clean(offset, left)
        return True

    def read(self, start_offset: int, end_offset: int | None = None) -> list[RecordBatch]:
        """The batches from `start_offset` on, those that reach beyond `end_offset` left out."""
        first = bisect_left(self.batches, start_offset, key=attrgetter("base_offset"))
        if end_offset is None:
            return self.batches[first:]
        return [batch for batch in self.batches[first:] if batch.next_offset <= end_offset]

    @property
    def stored_epoch_starts(self) -> list[EpochAndOffset]:
        """Without the epochs that ended before the log starts; the one in which it starts begins there."""
        passed = [known for known in self.epoch_starts if known.offset <= self.start_offset]
        if not passed:
            return self.epoch_starts
        return [EpochAndOffset(passed[-1].epoch, self.start_offset), *self.epoch_starts[len(passed) :]]

    def stored_end_offset_of(self, epoch: int) -> EpochAndOffset | None:
        """`end_offset_of`, from what retention and DeleteRecords left."""
        return _end_offset_of(epoch, self.stored_epoch_starts, self.end_offset)

    def delete_before(self, offset: int) -> bool:
        """The log starts at `offset` from now on, perhaps inside of a batch. False if it starts there or later."""
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        return True

    def clean(self, base_offset: int, left: RecordBatch | None) -> None:
        """Compaction left this of the batch at `base_offset`; None: nothing."""
        self._cleaned[base_offset] = left
        if left is None or not left.record_count:
            self.transactions.forget(base_offset)

    def left_of(self, batch: RecordBatch) -> RecordBatch | None:
        """Of a batch of this log, what compaction left of it; None: nothing."""
        return self._cleaned.get(batch.base_offset, batch)

    def appended(self, offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """The batches that end beyond `offset`, up to `end_offset`, as they were appended."""
        first = bisect_right(self.batches, offset, key=attrgetter("next_offset"))
        for batch in self.batches[first:]:
            if batch.next_offset > end_offset:
                return
            yield batch

    def stored(self, offset: int = 0, end_offset: int | None = None) -> Iterator[RecordBatch]:
        """The same as they are on disk. The first one may begin before `offset`."""
        for batch in self.appended(offset, self.end_offset if end_offset is None else end_offset):
            left = self.left_of(batch)
            if left is not None:
                yield left


def _end_offset_of(epoch: int, epoch_starts: list[EpochAndOffset], end_offset: int) -> EpochAndOffset | None:
    last_epoch = epoch_starts[-1].epoch if epoch_starts else None
    if last_epoch is None or epoch > last_epoch:
        return None
    if epoch == last_epoch:
        return EpochAndOffset(epoch, end_offset)
    after = next(index for index, known in enumerate(epoch_starts) if known.epoch > epoch)
    # An epoch before the first known one ends where that starts.
    found = epoch_starts[after - 1].epoch if after else epoch
    return EpochAndOffset(found, epoch_starts[after].offset)
