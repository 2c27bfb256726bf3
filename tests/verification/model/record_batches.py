"""Record batches v2 as a broker reads them: the 61-byte header by struct, the CRC, the count of the records; the
markers by which transactions end; and the batches of internal topics.

Scope: what a leader must know of a batch to refuse or append it. `decode_records` is for oracles: kafka-python's
reader, of any codec.

Source: DefaultRecordBatch, LogValidator.validateBatch, ProduceRequest.validateRecords, ByteBufferLogInputStream,
UnifiedLog.analyzeAndValidateRecords, EndTransactionMarker, ControlRecordType, TransactionLog in Kafka; KIP-98.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import crc32c
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import decode_varint
from kio.schema.errors import ErrorCode

# base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
# max_timestamp, producer_id, producer_epoch, base_sequence, record count
HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LEADER_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_CRC_STARTS_AT = 21
_MAGIC_AT = 16
# Of a message of magic 0, which no batch is shorter than.
_SMALLEST_LENGTH = 14
CODEC_BITS, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0b111, 0b10000, 0b100000
_SEQUENCES = 2**31

Records = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


class Refused(Exception):
    """A batch that a leader does not append, or a request that it cannot serve, with the error code."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(f"{code.name}: {why}")
        self.code = code


class RecordBatch(NamedTuple):
    """`data` is the whole batch, header included."""

    data: bytes
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    def placed(self, base_offset: int, leader_epoch: int) -> RecordBatch:
        """The batch in a log. The CRC does not cover the two fields that change."""
        data = _OFFSET_AND_LENGTH.pack(base_offset, len(self.data) - 12) + _LEADER_EPOCH.pack(leader_epoch)
        return self._replace(data=data + self.data[16:], base_offset=base_offset, leader_epoch=leader_epoch)


def next_sequence(sequence: int) -> int:
    return (sequence + 1) % _SEQUENCES


def parse_batch(data: bytes) -> RecordBatch:
    """The one batch that `data` begins with. Raises Refused without one, and for a second; checks nothing else."""
    size = _batch_size(data, 0)
    if size is None:
        raise Refused(ErrorCode.invalid_record, "no batch")
    if data[_MAGIC_AT] != 2:
        raise Refused(ErrorCode.invalid_record, f"magic {data[_MAGIC_AT]}")
    if _batch_size(data, size) is not None:
        raise Refused(ErrorCode.invalid_record, "more than one batch")
    if size < HEADER.size:
        raise Refused(ErrorCode.corrupt_message, f"a batch of {size} bytes")
    return parse_stored_batch(data[:size])


def next_batch(data: bytes) -> RecordBatch | None:
    """The batch that a part of a log begins with; None where none is whole."""
    size = _batch_size(data, 0)
    return parse_stored_batch(data[:size]) if size is not None else None


def parse_stored_batch(data: bytes) -> RecordBatch:
    """A whole batch, which is not checked."""
    base_offset, _, leader_epoch, _, _, attributes, last_offset_delta, _, *others = HEADER.unpack_from(data)
    return RecordBatch(data, base_offset, leader_epoch, attributes, last_offset_delta, *others)


def _batch_size(data: bytes, at: int) -> int | None:
    """Of the batch that begins at `at`; None where none is whole: a piece of one is passed over, not refused."""
    left = len(data) - at
    if left < _OFFSET_AND_LENGTH.size:
        return None
    _, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
    if length < _SMALLEST_LENGTH:
        raise Refused(ErrorCode.corrupt_message, f"a batch of length {length}")
    size: int = length + _OFFSET_AND_LENGTH.size
    if size > left:
        return None
    if data[at + _MAGIC_AT] > 2:
        raise Refused(ErrorCode.corrupt_message, f"magic {data[at + _MAGIC_AT]}")
    return size


def check_batch(batch: RecordBatch, max_message_bytes: int) -> None:
    """Run the checks that do not depend on the producer's state, in Kafka's order. Raises Refused."""
    if batch.base_offset != 0:
        raise Refused(ErrorCode.invalid_record, f"base offset {batch.base_offset}")
    if len(batch.data) > max_message_bytes:
        raise Refused(ErrorCode.message_too_large, f"{len(batch.data)} > {max_message_bytes} bytes")
    (crc,) = struct.unpack_from(">I", batch.data, _CRC_STARTS_AT - 4)
    if crc32c.crc32c(memoryview(batch.data)[_CRC_STARTS_AT:]) != crc:
        raise Refused(ErrorCode.corrupt_message, "wrong CRC")
    if batch.record_count <= 0 or batch.last_offset_delta + 1 != batch.record_count:
        raise Refused(ErrorCode.invalid_record, f"{batch.record_count} records, last delta {batch.last_offset_delta}")
    if batch.is_control:
        raise Refused(ErrorCode.invalid_record, "a control batch from a client")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise Refused(ErrorCode.invalid_record, f"sequence {batch.base_sequence} of producer {batch.producer_id}")
    if not batch.attributes & CODEC_BITS and _count_records(batch.data) != batch.record_count:
        raise Refused(ErrorCode.invalid_record, f"not {batch.record_count} records")


def changed_attributes(data: bytes, bits: int) -> bytes:
    """With these bits set in the attributes of a batch, and the CRC of that."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, _CRC_STARTS_AT)
    covered = _ATTRIBUTES.pack(attributes | bits) + data[_CRC_STARTS_AT + _ATTRIBUTES.size :]
    return data[: _CRC_STARTS_AT - 4] + crc32c.crc32c(covered).to_bytes(4, "big") + covered


def _count_records(data: bytes) -> int:
    """How many records lie back to back in an uncompressed batch; -1 if they do not end where the batch does."""
    at, count = HEADER.size, 0
    while at < len(data):
        try:
            length, at = decode_varint(data, at)
        except (IndexError, ValueError):
            return -1
        if length < 0:
            return -1
        at += length
        count += 1
    return count if at == len(data) else -1


def decode_records(data: bytes) -> list[Records]:
    """Key, value, timestamp in ms and headers of each record of one batch, by kafka-python."""
    return [
        (record.key, record.value, record.timestamp, tuple(record.headers))
        for batch in MemoryRecords(data)
        for record in batch
    ]


class StoredRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode_stored_records(batch: RecordBatch) -> list[StoredRecord]:
    """The records of a batch that is in a log, by kafka-python: those of a control batch, too."""
    return [
        StoredRecord(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for part in MemoryRecords(batch.data)
        for record in part
    ]


# Version of the schema, then what it is.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """`transaction_version` travels beside the marker and is not in the log. 2: its epoch must be above the producer's;
    below: may equal it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


def encode_marker(marker: EndTransactionMarker, timestamp_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch, base_sequence=-1, batch_size=10**4,
    )  # fmt: skip
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    builder.append(0, timestamp=timestamp_ms, key=key, value=_VALUE.pack(0, marker.coordinator_epoch), headers=[])
    return changed_attributes(bytes(builder.build()), _CONTROL_BIT)


def decode_marker(batch: RecordBatch) -> EndTransactionMarker:
    ((key, value, _, _),) = decode_records(batch.data)
    assert key is not None and value is not None
    _, kind = _KEY.unpack(key)
    _, coordinator_epoch = _VALUE.unpack(value)
    return EndTransactionMarker(batch.producer_id, batch.producer_epoch, kind == _COMMIT, coordinator_epoch)


Key = tuple[str | int, ...]


def encode_state(
    records: Mapping[Key, Any], timestamp_ms: int, producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """One batch. A value of None is a tombstone. With a producer it is part of that producer's transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=int(producer_id >= 0), producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=-1, batch_size=10**9,
    )  # fmt: skip
    for number, (key, value) in enumerate(records.items()):
        encoded = None if value is None else json.dumps(value).encode()
        builder.append(number, timestamp=timestamp_ms, key=json.dumps(key).encode(), value=encoded, headers=[])
    return bytes(builder.build())


def decode_state(batch: RecordBatch) -> Iterator[tuple[int, Key, Any]]:
    for number, (key, value, _, _) in enumerate(decode_records(batch.data)):
        assert key is not None
        yield batch.base_offset + number, tuple(json.loads(key)), None if value is None else json.loads(value)
