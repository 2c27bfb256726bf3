"""What compaction makes of a batch: fewer records at the offsets that they had, or an empty batch.

The batch keeps its base offset, its last offset and its producer's fields, so the sequences of a producer stay known.
Offsets have gaps afterwards: inside of batches, and between them where batches were removed altogether. A batch with a
tombstone, or a marker, may have the time at which these go as its base timestamp: then timestamps of records lie before
it (KIP-534).

Source: LogCleaner, MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader in Kafka; KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import crc32c
from kafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from model.partition_log import PartitionLog
from model.record_batches import (
    CODEC_BITS,
    HEADER,
    RecordBatch,
    StoredRecord,
    decode_stored_records,
    parse_stored_batch,
)

_DELETE_HORIZON_BIT = 0b1000000
_NO_TIMESTAMP = -1
_COVERED_FROM = 21
_ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes, 1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode,
}  # fmt: skip


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
    return {record.offset for record in decode_stored_records(batch)}


def without_records(batch: RecordBatch, removed: Container[int], delete_horizon_ms: int | None = None) -> RecordBatch:
    """`removed`: offsets. Empty if no record is left. `delete_horizon_ms`: when what is left of a batch of tombstones
    is to go."""
    records = decode_stored_records(batch)
    left = [record for record in records if record.offset not in removed]
    if len(left) == len(records):
        return batch
    if not left:
        return emptied(batch)
    max_timestamp = max(record.timestamp for record in left)
    base_timestamp = left[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    attributes = batch.attributes | (0 if delete_horizon_ms is None else _DELETE_HORIZON_BIT)
    body = _ENCODERS[batch.attributes & CODEC_BITS](encode_records(left, batch.base_offset, base_timestamp))
    return _assembled(batch, attributes, base_timestamp, max_timestamp, len(left), body)


def emptied(batch: RecordBatch) -> RecordBatch:
    """A header without records, and without a codec."""
    attributes = batch.attributes & ~(CODEC_BITS | _DELETE_HORIZON_BIT)
    return _assembled(batch, attributes, _NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _assembled(
    batch: RecordBatch, attributes: int, base_timestamp: int, max_timestamp: int, count: int, body: bytes
) -> RecordBatch:
    length = HEADER.size - 12 + len(body)
    fields = (
        attributes, batch.last_offset_delta, base_timestamp, max_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, count,
    )  # fmt: skip
    start = (batch.base_offset, length, batch.leader_epoch, 2)
    covered = HEADER.pack(*start, 0, *fields)[_COVERED_FROM:] + body
    return parse_stored_batch(HEADER.pack(*start, crc32c.crc32c(covered), *fields) + body)


def encode_records(records: Iterable[StoredRecord], base_offset: int, base_timestamp: int) -> bytes:
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
    """Zig-zag, seven bits a byte, the lowest first."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)
