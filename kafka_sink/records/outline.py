"""What the headers of a record set say of its batches, before anything is decoded.

Scope: bytes 0 to 27 of each batch: base offset, length, magic, last offset delta. No CRC covers the first three, so
nothing here is believed that the batches before and after do not confirm. The decoder checks the rest.

The last batch of a Fetch answer may be cut off (KIP-74). Often its header is there, and shows what follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafka_sink.records.checksum import crc32c
from kafka_sink.records.record_batch import HEADER_BYTES, MAGIC

_LENGTH_END = 12
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
_COVERED_AT = 21
_LAST_OFFSET_DELTA_AT = 23
_START = struct.Struct(">qi")
_DELTA = struct.Struct(">i")
# Of a record of message format 0 without key and value: CRC, magic, attributes and two lengths.
_LEAST_OLD_LENGTH = 14
_LENGTH_BITS = 31


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
    while at + _MAGIC_AT < total:
        base_offset, length = _START.unpack_from(records, at)
        size, is_batch = _LENGTH_END + length, records[at + _MAGIC_AT] >= MAGIC
        if length < (HEADER_BYTES - _LENGTH_END if is_batch else _LEAST_OLD_LENGTH):
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
    if len(batch) < HEADER_BYTES or batch[_MAGIC_AT] != MAGIC:
        return False
    (crc,) = _CRC.unpack_from(batch, _CRC_AT)
    length = header.size - _LENGTH_END
    for bit in range(_LENGTH_BITS):
        size = (length & ~(1 << bit)) + _LENGTH_END
        if size != header.size and HEADER_BYTES <= size <= len(batch) and crc32c(batch[_COVERED_AT:size]) == crc:
            return True
    return False
