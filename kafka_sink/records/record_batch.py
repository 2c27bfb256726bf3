"""The 61 bytes of header before the records of a record batch, version 2: written, and read before anything is decoded.

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
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_BYTES = 61
MAGIC = 2
NO_PARTITION_LEADER_EPOCH = -1
TRANSACTIONAL_BIT = 0x10

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_START = struct.Struct(">qi")
_DELTA = struct.Struct(">i")
LENGTH_END = 12
MAGIC_AT = 16
CRC_AT = 17
# The CRC covers all from here on.
COVERED_AT = 21
_LAST_OFFSET_DELTA_AT = 23
# Of a record of message format 0 without key and value: CRC, magic, attributes and two lengths.
_LEAST_OLD_LENGTH = 14
_LENGTH_BITS = 31


class AbortedTransaction(NamedTuple):
    """As in a Fetch answer. Here, because the protocol needs no more of reading."""

    producer_id: int
    first_offset: int


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of `data`, where the compiled kernel does not compute it."""
    # The package imports argparse and importlib.metadata, which is 20 ms that most processes never need.
    import crc32c as library

    return library.crc32c(data)


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
        len(batch) - LENGTH_END,
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
    _CRC.pack_into(batch, CRC_AT, crc32c(batch[COVERED_AT:]))


# --- what the headers of a record set say -----------------------------------------------------------------------------
# Read are base offset, length, magic and last offset delta. No CRC covers the first three, so nothing here is believed
# that the batches before and after do not confirm. The last batch of a Fetch answer may be cut off (KIP-74).


def first_offset(records: memoryview) -> int | None:
    """Return the offset at which the first batch of a record set begins, from its header alone. None: it is not whole,
    or of an older format, which may name its last offset instead."""
    if len(records) < HEADER_BYTES or records[MAGIC_AT] < MAGIC:
        return None
    base_offset, length = _START.unpack_from(records)
    is_whole = HEADER_BYTES - LENGTH_END <= length <= len(records) - LENGTH_END
    return int(base_offset) if is_whole else None


class Header(NamedTuple):
    """Of a batch, or of a record of an older format. `next_offset`: after it, unless it is cut off. `size`: the bytes
    that it claims. `at`: where it begins."""

    base_offset: int
    next_offset: int
    size: int
    at: int
    is_whole: bool


def headers(records: memoryview) -> Iterator[Header]:
    """Yield the headers in their order, the last perhaps that of a batch that is cut off. Stops at a length that cannot
    be."""
    at, total = 0, len(records)
    while at + MAGIC_AT < total:
        base_offset, length = _START.unpack_from(records, at)
        size, is_batch = LENGTH_END + length, records[at + MAGIC_AT] >= MAGIC
        if length < (HEADER_BYTES - LENGTH_END if is_batch else _LEAST_OLD_LENGTH):
            return
        if at + size > total:
            yield Header(base_offset, base_offset, size, at, is_whole=False)
            return
        last = _DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)[0] if is_batch else 0
        yield Header(base_offset, base_offset + last + 1, size, at, is_whole=True)
        at += size


class Outline(NamedTuple):
    """`first`: where the first batch begins. `following`: the offset after the last whole batch. `gap`: the offsets
    before the last whole batch, from and to before, that no batch has. `ascends`: False if a header contradicts the one
    before. `is_followed`: whether a header behind the last whole batch is there. `cut_off`: the batch that is cut off
    behind it. `has_records`: False if compaction has emptied all batches."""

    first: int
    following: int
    last_size: int
    gap: tuple[int, int] | None
    ascends: bool
    is_followed: bool
    cut_off: Header | None
    has_records: bool


def outline(records: memoryview, position: int, end: int) -> Outline | None:
    """Return what is there of `position` and the offsets after it, up to the first batch that reaches `end`. None: not
    one batch is whole."""
    first = following = None
    expected, last_size = position, 0
    gap: tuple[int, int] | None = None
    has_records = False
    for header in headers(records):
        if following is None:
            if not header.is_whole:
                return None
            first = header.base_offset
        elif header.base_offset < following or following >= end or not header.is_whole:
            assert first is not None
            cut_off = None if header.is_whole else header
            ascends = header.base_offset >= following
            return Outline(first, following, last_size, gap, ascends, True, cut_off, has_records)
        gap = (expected, header.base_offset) if header.base_offset > expected else None
        expected = following = header.next_offset
        last_size = header.size
        has_records |= last_size > HEADER_BYTES
    if first is None or following is None:
        return None
    return Outline(first, following, last_size, gap, True, False, None, has_records)


def is_damaged_length(records: memoryview, header: Header) -> bool:
    """Return whether a batch that is cut off is whole if one bit of its length is cleared: its CRC fits then."""
    batch = records[header.at :]
    if len(batch) < HEADER_BYTES or batch[MAGIC_AT] != MAGIC:
        return False
    (crc,) = _CRC.unpack_from(batch, CRC_AT)
    length = header.size - LENGTH_END
    for bit in range(_LENGTH_BITS):
        size = (length & ~(1 << bit)) + LENGTH_END
        if size != header.size and HEADER_BYTES <= size <= len(batch) and crc32c(batch[COVERED_AT:size]) == crc:
            return True
    return False
