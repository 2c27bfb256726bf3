"""murmur2 of Kafka's Java client, over a column of keys.

Source: org.apache.kafka.common.utils.Utils.murmur2, by which Java producers place a key: the same bytes must
hash alike here. It is MurmurHash2 (32 bits, Austin Appleby) with a fixed seed: 4 bytes a round,
little-endian, then the 0 to 3 bytes that are left, then a final mix. Its words depend on each other within a
key, never between keys, so round i is done for all keys that have one. With the keys sorted by length,
longest first, those are the first few of the column: the work is the words there are, not the rows times the
longest key. A round costs some 4 us however few keys still have one: a lone key of 1 MB takes a second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]

SEED = np.uint32(0x9747B28C)
M = np.uint32(0x5BD1E995)
R = np.uint32(24)


def murmur2(keys: pa.Array) -> npt.NDArray[np.int32]:
    """int32[n]: the hash of each of n keys, a binary or large_binary array. A null's hash means nothing."""
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if len(keys) == 0:
        return np.empty(0, np.int32)
    # Three zero bytes behind the data, so that four can be read wherever a key still has one.
    data = np.zeros(int(offsets[-1] - offsets[0]) + 3, np.uint8)
    if len(data) > 3:
        data[:-3] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    if lengths.min() == lengths.max():
        return _murmur2(data, starts, lengths).view(np.int32)
    longest_first = np.argsort(-lengths, kind="stable")
    hashes = np.empty(len(keys), np.uint32)
    hashes[longest_first] = _murmur2(data, starts[longest_first], lengths[longest_first])
    return hashes.view(np.int32)


def _murmur2(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> UInt32s:
    """`lengths` never rise, and `data` goes on for 3 bytes after the last key."""
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the word that begins at each byte
    word_counts = lengths >> 2
    hashes = SEED ^ lengths.astype(np.uint32)
    has_round = np.searchsorted(-word_counts, -np.arange(int(word_counts[0])), side="left")
    for i, active in enumerate(has_round.tolist()):
        k = words[starts[:active] + 4 * i] * M
        k ^= k >> R
        k *= M
        hashes[:active] *= M
        hashes[:active] ^= k
    left = lengths & 3
    ends_ragged = left > 0
    last = words[(starts + 4 * word_counts)[ends_ragged]]
    last &= (np.uint32(1) << (8 * left[ends_ragged]).astype(np.uint32)) - np.uint32(1)
    hashes[ends_ragged] = (hashes[ends_ragged] ^ last) * M
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    hashes ^= hashes >> np.uint32(15)
    return hashes
