"""What one replica answers to a consumer: records, offsets by time, ends of epochs. Functions of the replica alone.

Non-obvious: sizes decide, not batches. What fits is cut off inside of a batch, only the first one is always whole
(KIP-74), and which aborted transactions are told depends on the entries of the log's index: they may be more than the
records need. Between the last stable offset and a batch below it that compaction removed there is nothing to read: the
answer is empty.

Source: Partition (readRecords, fetchOffsetForTimestamp, lastOffsetForLeaderEpoch), UnifiedLog and LocalLog.read,
LogSegment.read, OffsetIndex.fetchUpperBoundOffset, ReplicaManager.read in Kafka; KIP-74, KIP-98, KIP-207, KIP-320,
KIP-392, KIP-595 (diverging epochs), KIP-734 (the largest timestamp).
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from model.partition import Partition
from model.partition_log import EpochAndOffset, PartitionLog
from model.read_journal import Isolation
from model.record_batches import RecordBatch, Refused, decode_stored_records
from model.transaction_index import CompletedTransaction

LATEST, EARLIEST, LARGEST_TIMESTAMP = -1, -2, -3
NO_EPOCH = NO_TIMESTAMP = -1


class Read(NamedTuple):
    """`current_leader_epoch`, `last_fetched_epoch`: NO_EPOCH for none. `is_of_leader`: no other replica may answer.
    `first_is_whole`: a batch is answered even if it is too large."""

    offset: int
    isolation: Isolation
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    is_of_leader: bool = False
    first_is_whole: bool = True


class Records(NamedTuple):
    """`aborted`: None where the answer has none to tell. `diverging`: where the reader's log leaves this one; then
    there are no records."""

    data: bytes
    aborted: tuple[CompletedTransaction, ...] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging: EpochAndOffset | None = None


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


NOT_FOUND = FoundOffset(NO_TIMESTAMP, -1, NO_EPOCH)


def read_records(replica: Partition, read: Read) -> Records:
    """Raises Refused."""
    _check_part(replica, read.current_leader_epoch, read.is_of_leader)
    log = replica.log
    offsets = (replica.high_watermark, replica.last_stable_offset, log.start_offset)
    if read.last_fetched_epoch != NO_EPOCH:
        diverging = _diverging(log, read)
        if diverging is not None:
            return Records(b"", None, *offsets, diverging)
    if not log.start_offset <= read.offset <= log.end_offset:
        raise Refused(ErrorCode.offset_out_of_range, f"{read.offset} of {log.start_offset} to {log.end_offset}")
    data, aborted = _slice(log, read, replica.fetchable_offset(read.isolation))
    return Records(data, aborted if read.isolation is Isolation.READ_COMMITTED else None, *offsets)


def fetchable_bytes(replica: Partition, read: Read) -> int | None:
    """How much `read` would get, its first batch not rounded up; None: there is something else to tell."""
    try:
        _check_part(replica, read.current_leader_epoch, read.is_of_leader)
    except Refused:
        return None
    if read.last_fetched_epoch != NO_EPOCH and _diverges(replica.log, read):
        return None
    stored = replica.log.stored(read.offset, replica.fetchable_offset(read.isolation))
    return min(read.max_bytes, sum(len(batch.data) for batch in stored))


def _check_part(replica: Partition, current_leader_epoch: int, is_of_leader: bool) -> None:
    if current_leader_epoch != NO_EPOCH and current_leader_epoch != replica.leader_epoch:
        is_fenced = current_leader_epoch < replica.leader_epoch
        code = ErrorCode.fenced_leader_epoch if is_fenced else ErrorCode.unknown_leader_epoch
        raise Refused(code, f"epoch {current_leader_epoch}, not {replica.leader_epoch}")
    if is_of_leader and not replica.is_leader:
        raise Refused(ErrorCode.not_leader_or_follower, f"{replica.leader_id} leads")


def _diverging(log: PartitionLog, read: Read) -> EpochAndOffset | None:
    shared = log.stored_end_offset_of(read.last_fetched_epoch)
    if shared is None or read.offset < log.start_offset:
        raise Refused(ErrorCode.offset_out_of_range, f"{read.offset} in epoch {read.last_fetched_epoch}")
    return shared if shared.epoch < read.last_fetched_epoch or shared.offset < read.offset else None


def _diverges(log: PartitionLog, read: Read) -> bool:
    try:
        return _diverging(log, read) is not None
    except Refused:
        return True


def _slice(log: PartitionLog, read: Read, end_offset: int) -> tuple[bytes, tuple[CompletedTransaction, ...] | None]:
    if read.offset >= end_offset:
        return b"", ()
    data, first = bytearray(), next(log.stored(read.offset), None)
    limit = read.max_bytes
    if first is not None and read.first_is_whole:
        limit = max(limit, len(first.data))
    for batch in log.stored(read.offset, end_offset):
        if len(data) >= limit:
            break
        data += log.harmed.get(batch.base_offset, batch.data)
    sliced = bytes(data[:limit])
    if first is not None and 0 < limit < len(first.data):
        # A reader could do nothing with a piece, so brokers answer none since Fetch 3.
        return b"", None
    return sliced, log.transactions.aborted(read.offset, _index_bound(log, first, len(sliced)))


def _index_bound(log: PartitionLog, first: RecordBatch | None, size_bytes: int) -> int:
    """The last offset of a batch behind what was read, or the log's end: of the first one that the index has."""
    if first is None:
        return log.end_offset
    indexed, start = _index(log, first)
    # The binary search takes the very first entry for smaller even if it is just behind.
    behind = [
        offset
        for number, (position, offset) in enumerate(indexed)
        if position > start + size_bytes or (position == start + size_bytes and number)
    ]
    return behind[0] if behind else log.end_offset


def _index(log: PartitionLog, first: RecordBatch) -> tuple[list[tuple[int, int]], int]:
    """Position and last offset of each batch that the index has, and the position of `first`: in the only segment."""
    indexed: list[tuple[int, int]] = []
    start = position = unindexed_bytes = 0
    for batch in log.stored():
        if batch.base_offset == first.base_offset:
            start = position
        if unindexed_bytes > log.index_interval_bytes:
            indexed.append((position, batch.next_offset - 1))
            unindexed_bytes = 0
        position += len(batch.data)
        unindexed_bytes += len(batch.data)
    return indexed, start


def offset_for_timestamp(
    replica: Partition, timestamp: int, isolation: Isolation, current_leader_epoch: int
) -> FoundOffset:
    """LATEST, EARLIEST, LARGEST_TIMESTAMP, or the first record of `timestamp` or later. Raises Refused."""
    _check_part(replica, current_leader_epoch, is_of_leader=True)
    end_offset = replica.fetchable_offset(isolation)
    # A new leader may not know yet how far its predecessor had committed (KIP-207).
    is_behind = replica.epoch_start_offset > replica.high_watermark
    if timestamp == EARLIEST:
        return _earliest(replica.log)
    if timestamp == LATEST:
        found: FoundOffset | None = FoundOffset(NO_TIMESTAMP, end_offset, replica.leader_epoch)
    else:
        largest = timestamp == LARGEST_TIMESTAMP
        found = _largest_timestamp(replica.log) if largest else _first_since(replica.log, timestamp)
        if found is not None and (found.offset < end_offset or found.offset == 0):
            return found
        found = None
    if is_behind:
        raise Refused(ErrorCode.offset_not_available, f"{replica.high_watermark} < {replica.epoch_start_offset}")
    return found or NOT_FOUND


def _earliest(log: PartitionLog) -> FoundOffset:
    first = next(iter(log.stored_epoch_starts), None)
    epoch = first.epoch if first is not None and first.offset <= log.start_offset else NO_EPOCH
    return FoundOffset(NO_TIMESTAMP, log.start_offset, epoch)


def _largest_timestamp(log: PartitionLog) -> FoundOffset | None:
    """The first record of the largest timestamp. Brokers do not ask whether the log starts behind it."""
    batch = max(log.stored(), key=lambda each: each.max_timestamp, default=None)
    return _first_record_since(batch, batch.max_timestamp, 0) if batch is not None else None


def _first_since(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    found = (
        _first_record_since(batch, timestamp, log.start_offset)
        for batch in log.stored(log.start_offset)
        if batch.max_timestamp >= timestamp
    )
    return next((each for each in found if each is not None), None)


def _first_record_since(batch: RecordBatch, timestamp: int, start_offset: int) -> FoundOffset | None:
    for record in decode_stored_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return FoundOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def end_offset_for_epoch(replica: Partition, epoch: int, current_leader_epoch: int) -> EpochAndOffset | None:
    """The largest epoch up to `epoch` and where it ends; None for one that is not known. Raises Refused."""
    _check_part(replica, current_leader_epoch, is_of_leader=True)
    return replica.log.stored_end_offset_of(epoch) if epoch != NO_EPOCH else None
