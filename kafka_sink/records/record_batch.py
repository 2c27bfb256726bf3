"""The 61 bytes of header before the records of a record batch, version 2.

Layout, big-endian (DefaultRecordBatch; KIP-98 introduced the version):

     0  base_offset             i64   0: the broker assigns offsets
     8  batch_length            i32   bytes after this field
    12  partition_leader_epoch  i32   -1: the broker assigns it, so the CRC does not include it
    16  magic                   i8    2
    17  crc                     u32   CRC-32C of everything after this field
    21  attributes              i16   codec bits 0-2, timestamp type bit 3 (0: create time), transactional bit 4
    23  last_offset_delta       i32
    27  base_timestamp          i64   ms; the records have differences to it
    35  max_timestamp           i64   ms
    43  producer_id             i64
    51  producer_epoch          i16
    53  base_sequence           i32
    57  record_count            i32

Only the records after the header are compressed, so the header is written last and in place.
"""

from __future__ import annotations

import struct

from kafka_sink.records.checksum import crc32c

HEADER_BYTES = 61
MAGIC = 2
NO_PARTITION_LEADER_EPOCH = -1
TRANSACTIONAL_BIT = 0x10

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CRC_OFFSET = 17
_ATTRIBUTES_OFFSET = _CRC_OFFSET + _CRC.size
_LENGTH_END = 12
_MAGIC_OFFSET = 16
_START = struct.Struct(">qi")


def first_offset(records: memoryview) -> int | None:
    """Return the offset at which the first batch of a record set begins, from its header alone. None: it is not whole,
    or of an older format, which may name its last offset instead."""
    if len(records) < HEADER_BYTES or records[_MAGIC_OFFSET] < MAGIC:
        return None
    base_offset, length = _START.unpack_from(records)
    is_whole = HEADER_BYTES - _LENGTH_END <= length <= len(records) - _LENGTH_END
    return int(base_offset) if is_whole else None


def write_header(
    batch: memoryview,
    records_crc: int | None,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header over the first 61 bytes of `batch`, which is exactly the whole record batch.

    The records must already be there. `records_crc`: their CRC-32C, if known. `attributes`: the codec's id, and
    TRANSACTIONAL_BIT. Timestamps are milliseconds. `record_count` >= 1; offset deltas are 0 to record_count - 1.

    With the compiled kernel, its function of this name is used. This function always reads the records for the CRC:
    joining two CRCs needs a multiplication that is slower in Python.
    """
    unknown_crc = 0  # until the rest of the header is written
    _HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - _LENGTH_END,
        NO_PARTITION_LEADER_EPOCH,
        MAGIC,
        unknown_crc,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, _CRC_OFFSET, crc32c(batch[_ATTRIBUTES_OFFSET:]))
