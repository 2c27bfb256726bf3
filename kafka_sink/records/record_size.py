"""The layout of a record, its varints, and the size of a batch with one record.

A record (Kafka's DefaultRecord). Every number is a zig-zag varint, except the attributes, which are one byte:

    length | attributes | timestamp delta | offset delta | key length, key | value length, value
           | header count | for each header: key length, key | value length, value

A null key or value has length -1 and no bytes. `length` counts the bytes after it.

Zig-zag moves a number's sign into bit 0. Then each byte takes 7 bits, least significant first, and bit 7 is set on all
bytes except the last (ByteUtils.writeVarint and writeVarlong). A value that fits 32 bits has the same bytes in the
32-bit and the 64-bit form, so there is one form here. Varints are computed one column at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafka_sink.records.record_batch import HEADER_BYTES

Int64s = npt.NDArray[np.int64]

ATTRIBUTES_BYTES = 1
NULL_LENGTH = -1
DELTAS_OF_ZERO = 2


def varint_sizes(values: Int64s) -> Int64s:
    """Return int64[n]: the bytes that each of `values` (int64[n]) takes, 1 to 10."""
    return _sizes(_zigzag(values))


def varint_size(value: int) -> int:
    """Return the bytes that one number takes, 0 <= `value` < 2^63."""
    return max(1, ((value << 1).bit_length() + 6) // 7)


def varint_rows(*columns: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return the varints of row 0 of every column, then of row 1, and so on, without gaps.

    Takes int64[n] columns. Returns the bytes (uint8) and int64[n + 1] offsets of the rows in them.
    """
    row_count = len(columns[0])
    zigzags = [_zigzag(column) for column in columns]
    widths = [int(_sizes(z.max(keepdims=True))[0]) if row_count else 1 for z in zigzags]
    # One matrix column per byte of the widest form; `used` marks the bytes of each row's own form.
    matrix = np.empty((row_count, sum(widths)), np.uint8)
    used = np.empty(matrix.shape, np.bool_)
    row_sizes = np.full(row_count, len(columns), np.int64)
    at = 0
    for zigzag, width in zip(zigzags, widths, strict=True):
        rest, in_row = zigzag, np.ones(row_count, np.bool_)
        for _ in range(width - 1):
            more = rest > 0x7F
            matrix[:, at] = (rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
            used[:, at] = in_row
            row_sizes += more
            rest, in_row = rest >> np.uint64(7), more
            at += 1
        matrix[:, at] = rest
        used[:, at] = in_row
        at += 1
    offsets = np.zeros(row_count + 1, np.int64)
    np.cumsum(row_sizes, out=offsets[1:])
    # Indices and a gather are four times faster than a mask without long runs.
    packed = matrix.ravel() if matrix.size == offsets[-1] else matrix.ravel().take(np.flatnonzero(used))
    return packed, offsets


def varints_at(data: npt.NDArray[np.uint8], at: Int64s) -> tuple[Int64s, Int64s]:
    """Return int64[n], the varint that begins at each place `at` (int64[n]) of `data`, and int64[n], its bytes. `data`
    must contain every varint completely."""
    zigzag = np.zeros(len(at), np.uint64)
    sizes = np.ones(len(at), np.int64)
    place, shift = at, np.uint64(0)
    byte = data[place]
    # A varint that has ended stays at its last byte and adds nothing more.
    more = np.ones(len(at), np.bool_)
    while True:
        zigzag |= np.where(more, byte & 0x7F, 0).astype(np.uint64) << shift
        more = more & (byte > 0x7F)
        if not more.any():
            break
        sizes += more
        place, shift = place + more, shift + np.uint64(7)
        byte = data[place]
    return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64), sizes


def _zigzag(values: Int64s) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _sizes(zigzag: npt.NDArray[np.uint64]) -> Int64s:
    # One pass per byte of the longest value. Lengths and deltas take one or two bytes, so this is faster than
    # logarithms and searches.
    sizes = np.ones(len(zigzag), np.int64)
    rest = zigzag >> np.uint64(7)
    while rest.any():
        sizes += rest != 0
        rest >>= np.uint64(7)
    return sizes


def record_sizes(body: Int64s) -> Int64s:
    """Return int64[n]: bytes of whole records with the `length` `body`."""
    return body + varint_sizes(body)


def lone_batch_size(payload: int) -> int:
    """As `lone_batch_sizes` for one record. numpy calls would take as long as the hashes of some hundred keys."""
    body = payload + DELTAS_OF_ZERO
    return HEADER_BYTES + varint_size(body) + body


def lone_batch_sizes(payload: Int64s) -> Int64s:
    """Return int64[n]: bytes of uncompressed record batches with one record of `payload` bytes each. `max.request.size`
    limits them."""
    return HEADER_BYTES + record_sizes(payload + DELTAS_OF_ZERO)
