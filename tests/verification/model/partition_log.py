"""The log of one replica: batches by offset, from which offset each leader epoch counts, and the transactions: which
are open, and where aborted ones began.

`batches` has all that was ever appended and not truncated. Readers get `stored`: what retention and DeleteRecords left
(from `start_offset` on), in the form in which compaction left it. So an oracle can compare the two, and the state of
producers is rebuilt from batches that are gone, as Kafka rebuilds it from snapshots.

Compaction leaves fewer records at the offsets that they had, or an empty batch, which keeps its offsets and its
producer's fields, or nothing. A batch with a tombstone, or a marker, may have the time at which these go as its base
timestamp: then timestamps of records lie before it.

Source: UnifiedLog, LocalLog, LeaderEpochFileCache, ProducerStateManager (firstUnstableOffset, unreplicatedTxns),
TransactionIndex, AbortedTxn, LogCleaner, MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader in Kafka; KIP-98,
KIP-101, KIP-279, KIP-534.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

import crc32c
from kafka.record.util import encode_varint

from model import record_batches
from model.record_batches import RecordBatch


class CompletedTransaction(NamedTuple):
    """`last_offset`: of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class TransactionIndex:
    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._completed: list[CompletedTransaction] = []

    def append(self, batch: RecordBatch) -> None:
        if not batch.is_transactional or batch.producer_id < 0:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        first_offset = self._open.pop(batch.producer_id, None)
        # A marker of a transaction that wrote nothing here completes nothing.
        if first_offset is not None:
            is_aborted = not record_batches.decode_marker(batch).is_commit
            self._completed.append(CompletedTransaction(batch.producer_id, first_offset, batch.base_offset, is_aborted))

    def rebuild(self, batches: Iterable[RecordBatch]) -> None:
        self._open.clear()
        self._completed.clear()
        for batch in batches:
            self.append(batch)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Of the transactions that are open, or whose marker is not below the high watermark."""
        starts = [*self._open.values(), *(done.first_offset for done in self._completed_from(high_watermark))]
        return min(starts, default=None)

    def aborted(self, first_offset: int, end_offset: int) -> tuple[CompletedTransaction, ...]:
        """The aborted transactions with an offset in [first_offset, end_offset), in the order of their markers."""
        found = [
            done for done in self._completed_from(first_offset) if done.is_aborted and done.first_offset < end_offset
        ]
        return tuple(reversed(found))

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Of a batch before the last stable offset."""
        return batch.is_transactional and any(
            done.producer_id == batch.producer_id for done in self.aborted(batch.base_offset, batch.next_offset)
        )

    def forget(self, marker_offset: int) -> None:
        """Compaction removed a marker, and all records of its transaction before."""
        self._completed = [done for done in self._completed if done.last_offset != marker_offset]

    def _completed_from(self, offset: int) -> Iterator[CompletedTransaction]:
        """Those whose marker is at `offset` or later, the last one first."""
        for done in reversed(self._completed):
            if done.last_offset < offset:
                return
            yield done


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
        """`epoch` starts at `start_offset`; whatever claimed to be newer, or to start later, is forgotten. A leader
        that goes on in its epoch after a restart keeps where that started (LeaderEpochFileCache.isUpdateNeeded)."""
        if epoch == self.last_epoch and start_offset > self.epoch_starts[-1].offset:
            return
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

    def delete_before(self, offset: int) -> None:
        """The log starts at `offset` or later from now on, perhaps inside of a batch."""
        self.start_offset = max(self.start_offset, offset)

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


_DELETE_HORIZON_BIT = 0b1000000
_NO_TIMESTAMP = -1
_COVERED_FROM = 21


def compact(
    log: PartitionLog, end_offset: int, removed: Container[int], stays_empty: Callable[[RecordBatch], bool],
    delete_horizon_ms: int | None,
) -> Iterator[tuple[RecordBatch, set[int]]]:  # fmt: skip
    """Of what is before `end_offset`, the last stable offset. What was compacted before stays so. Returns the batches
    that lost records, and these records' offsets."""
    # Producers with records of a transaction whose marker has not come yet.
    with_records: set[int] = set()
    for batch in list(log.stored(log.start_offset, end_offset)):
        if batch.is_control and batch.producer_id in with_records:
            with_records.discard(batch.producer_id)
            continue
        left = without_records(batch, removed, delete_horizon_ms)
        if left.record_count and batch.is_transactional and not batch.is_control:
            with_records.add(batch.producer_id)
        if left.record_count != batch.record_count:
            log.clean(batch.base_offset, left if left.record_count or stays_empty(batch) else None)
            yield batch, _offsets(batch) - _offsets(left)


def _offsets(batch: RecordBatch) -> set[int]:
    return {record.offset for record in record_batches.decode_stored_records(batch)}


def without_records(batch: RecordBatch, removed: Container[int], delete_horizon_ms: int | None = None) -> RecordBatch:
    """`batch`: without a codec. `removed`: offsets. Empty if no record is left. `delete_horizon_ms`: when what is left
    of a batch of tombstones is to go."""
    records = record_batches.decode_stored_records(batch)
    left = [record for record in records if record.offset not in removed]
    if len(left) == len(records):
        return batch
    if not left:
        return emptied(batch)
    max_timestamp = max(record.timestamp for record in left)
    base_timestamp = left[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    attributes = batch.attributes | (0 if delete_horizon_ms is None else _DELETE_HORIZON_BIT)
    body = encode_records(left, batch.base_offset, base_timestamp)
    return _assembled(batch, attributes, base_timestamp, max_timestamp, len(left), body)


def emptied(batch: RecordBatch) -> RecordBatch:
    """A header without records."""
    attributes = batch.attributes & ~_DELETE_HORIZON_BIT
    return _assembled(batch, attributes, _NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _assembled(
    batch: RecordBatch, attributes: int, base_timestamp: int, max_timestamp: int, count: int, body: bytes
) -> RecordBatch:
    length = record_batches.HEADER.size - 12 + len(body)
    fields = (
        attributes, batch.last_offset_delta, base_timestamp, max_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, count,
    )  # fmt: skip
    start = (batch.base_offset, length, batch.leader_epoch, 2)
    covered = record_batches.HEADER.pack(*start, 0, *fields)[_COVERED_FROM:] + body
    return record_batches.parse_stored_batch(record_batches.HEADER.pack(*start, crc32c.crc32c(covered), *fields) + body)


def encode_records(records: Iterable[record_batches.StoredRecord], base_offset: int, base_timestamp: int) -> bytes:
    encoded = bytearray()
    for record in records:
        body = b"\0" + _varint(record.timestamp - base_timestamp) + _varint(record.offset - base_offset)
        body += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
        for name, value in record.headers:
            body += _sized(name.encode()) + _sized(value)
        encoded += _varint(len(body)) + body
    return bytes(encoded)


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    encode_varint(number, encoded.append)
    return bytes(encoded)
