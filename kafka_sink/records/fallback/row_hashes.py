"""The hashes of rows, with numpy. records/row_hashes.py defines them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.columns import Headers, RecordColumns
from kafka_sink.records.fallback.encoder import binary_array, byte_lengths, bytes_of, joined_rows
from kafka_sink.records.record_size import NULL_LENGTH
from kafka_sink.records.row_hashes import CHUNK_BLOCKS, KEYS, partition_numbers, timestamp_numbers

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

BLOCK_BYTES = 16


def sum_row_hashes(columns: RecordColumns) -> tuple[int, int]:
    if columns.num_rows == 0:
        return 0, 0
    blocks, row_offsets = _messages(columns)
    low, high = _hashes(blocks, row_offsets)
    return int(low.sum()), int(high.sum())


# --- messages -----------------------------------------------------------------------------------------------


def _messages(columns: RecordColumns) -> tuple[UInt64s, Int64s]:
    """Return uint64[m, 2], the blocks of all rows' messages, and int64[n + 1], the offsets of the rows in them."""
    value_length = byte_lengths(columns.value)
    key_length = np.full_like(value_length, NULL_LENGTH) if columns.key is None else byte_lengths(columns.key)
    parts = [_blocks_of(key_length, value_length, partition_numbers(columns), timestamp_numbers(columns))]
    if columns.key is not None:
        parts += _padded(columns.key, key_length)
    parts += _padded(columns.value, value_length)
    if columns.topic is not None:
        topic_length = byte_lengths(columns.topic)
        lengths = _blocks_of(np.full_like(topic_length, NULL_LENGTH), topic_length)
        parts += [pc.if_else(columns.topic.is_valid(), lengths, None), *_padded(columns.topic, topic_length)]
    if columns.headers is not None:
        parts.append(_header_messages(columns.headers))
    data, offsets = bytes_of(joined_rows(pa.large_binary(), parts))
    return data.view("<u8").astype(np.uint64, copy=False).reshape(-1, 2), offsets // BLOCK_BYTES


def _header_messages(headers: Headers) -> pa.Array:
    """Return each row's headers, as a large_binary array of n."""
    key_length, value_length = byte_lengths(headers.key), byte_lengths(headers.value)
    lengths = _blocks_of(key_length, value_length)
    parts = [lengths, *_padded(headers.key, key_length), *_padded(headers.value, value_length)]
    data, offsets = bytes_of(joined_rows(pa.large_binary(), parts))
    return _large_binary(offsets[headers.row_offsets], data)


def _blocks_of(*numbers: Int64s) -> pa.Array:
    words = np.stack(numbers, axis=1).astype("<i8", copy=False)
    return _large_binary(np.arange(len(words) + 1) * words.shape[1] * words.itemsize, words)


def _padded(array: pa.Array, lengths: Int64s) -> tuple[pa.Array, pa.Array]:
    """Return a column's bytes, and the zeros that pad them."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(-np.maximum(lengths, 0) % BLOCK_BYTES, out=offsets[1:])
    is_string = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    binary = array.cast(pa.large_string()).cast(pa.large_binary()) if is_string else array.cast(pa.large_binary())
    return binary, _large_binary(offsets, np.zeros(offsets[-1], np.uint8))


def _large_binary(offsets: Int64s, data: npt.NDArray[np.generic]) -> pa.Array:
    return binary_array(pa.large_binary(), offsets, pa.py_buffer(data))


# --- hashes -------------------------------------------------------------------------------------------------


def _hashes(blocks: UInt64s, row_offsets: Int64s) -> tuple[UInt64s, UInt64s]:
    """Return uint64[n] twice: the low and the high halves of the rows' hashes."""
    block_counts = np.diff(row_offsets)
    chunk_counts = -(-block_counts // CHUNK_BLOCKS)
    first_chunk = np.cumsum(chunk_counts) - chunk_counts
    place_in_row = np.arange(chunk_counts.sum()) - np.repeat(first_chunk, chunk_counts)
    chunk_starts = np.repeat(row_offsets[:-1], chunk_counts) + place_in_row * CHUNK_BLOCKS
    chunk_low, chunk_high = _chunk_sums(blocks, np.append(chunk_starts, len(blocks)))
    low, high = np.zeros(len(block_counts), np.uint64), np.zeros(len(block_counts), np.uint64)
    rows = np.arange(len(block_counts))
    for i in range(int(chunk_counts.max())):
        rows = rows[chunk_counts[rows] > i]
        chunks = first_chunk[rows] + i
        low[rows] += chunk_low[chunks]
        high[rows] += chunk_high[chunks] + (low[rows] < chunk_low[chunks])
        full = rows[block_counts[rows] >= (i + 1) * CHUNK_BLOCKS]
        low[full], high[full] = stirred(low[full], high[full])
    return stirred(low, high)


# With this many blocks numpy's intermediate arrays stay in the inner CPU caches, which doubles the speed.
PIECE_BLOCKS = 8192


def _chunk_sums(blocks: UInt64s, chunk_offsets: Int64s) -> tuple[UInt64s, UInt64s]:
    """Return the sum of each chunk's products, as low and high words."""
    cuts = np.searchsorted(chunk_offsets, np.arange(0, len(blocks), PIECE_BLOCKS))
    cuts = np.unique(np.append(cuts, len(chunk_offsets) - 1))
    low, high = np.empty(cuts[-1], np.uint64), np.empty(cuts[-1], np.uint64)
    for first, last in pairwise(cuts.tolist()):
        start, end = chunk_offsets[first], chunk_offsets[last]
        offsets = chunk_offsets[first : last + 1] - start
        low[first:last], high[first:last] = _sums_of_products(blocks[start:end], offsets)
    return low, high


def _sums_of_products(blocks: UInt64s, chunk_offsets: Int64s) -> tuple[UInt64s, UInt64s]:
    starts = chunk_offsets[:-1]
    place = np.arange(len(blocks)) - np.repeat(starts, np.diff(chunk_offsets))
    low, high = _products(blocks[:, 0] + KEYS[0::2][place], blocks[:, 1] + KEYS[1::2][place])
    # The carries of the low words follow from the sums of their halves.
    lows, mids = np.add.reduceat(low & LOW_HALF, starts), np.add.reduceat(low >> HALF, starts)
    mids += lows >> HALF
    return (mids << HALF) | (lows & LOW_HALF), np.add.reduceat(high, starts) + (mids >> HALF)


HALF = np.uint64(32)
LOW_HALF = np.uint64(0xFFFFFFFF)


def _products(a: UInt64s, b: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return the low and the high words of 128-bit products, by long multiplication of the factors' halves."""
    a_low, a_high, b_low, b_high = a & LOW_HALF, a >> HALF, b & LOW_HALF, b >> HALF
    across = a_high * b_low + (a_low * b_low >> HALF)  # at most (2^32 - 1)^2 + 2^32 - 2, less than 2^64
    other = a_low * b_high + (across & LOW_HALF)
    return a * b, a_high * b_high + (across >> HALF) + (other >> HALF)


def stirred(low: UInt64s, high: UInt64s) -> tuple[UInt64s, UInt64s]:
    low = low + high
    high = high + low
    low, high = _avalanche(low), _avalanche(high)
    low = low + high
    return low, high + low


def _avalanche(h: UInt64s) -> UInt64s:
    """MurmurHash3's fmix64."""
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))
