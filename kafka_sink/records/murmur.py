"""murmur2 of Kafka's Java client and murmur3, over a column of keys.

    murmur2  org.apache.kafka.common.utils.Utils.murmur2, with which Java producers choose a key's partition: the
             same bytes must have the same hash here. It is MurmurHash2 (32 bits, Austin Appleby) with a fixed seed.
    murmur3  MurmurHash3_x86_32 with seed 0: `mmh3.hash`, which takes one key per call.

Both process 4 bytes per round, little-endian, then the remaining 0 to 3 bytes, then a final mix.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.records.key_words import KeyWords, UInt32s, hash_keys

SEED = np.uint32(0x9747B28C)
M = np.uint32(0x5BD1E995)
R = np.uint32(24)


def murmur2(keys: pa.Array) -> npt.NDArray[np.int32]:
    """Return int32[n]: the hash of each of n keys, a binary or large_binary array. A null's hash is undefined."""
    return hash_keys(keys, _murmur2).view(np.int32)


def _murmur2(keys: KeyWords) -> UInt32s:
    hashes = SEED ^ keys.lengths.astype(np.uint32)
    for k in keys.rounds():
        active = hashes[: len(k)]
        k *= M
        k ^= k >> R
        k *= M
        active *= M
        active ^= k
    hashes[keys.ragged] = (hashes[keys.ragged] ^ keys.last_words) * M
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    hashes ^= hashes >> np.uint32(15)
    return hashes


C1, C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
N = np.uint32(0xE6546B64)


def murmur3(keys: pa.Array) -> npt.NDArray[np.int32]:
    """Return int32[n]: the hash of each of n keys, a binary or large_binary array. A null's hash is undefined."""
    return hash_keys(keys, _murmur3).view(np.int32)


def _murmur3(keys: KeyWords) -> UInt32s:
    hashes = np.zeros(len(keys.lengths), np.uint32)
    for k in keys.rounds():
        active = hashes[: len(k)]
        active ^= _scrambled(k)
        active[:] = _rotated(active, 13)
        active *= np.uint32(5)
        active += N
    hashes[keys.ragged] ^= _scrambled(keys.last_words)
    hashes ^= keys.lengths.astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _scrambled(k: UInt32s) -> UInt32s:
    return _rotated(k * C1, 15) * C2


def _rotated(numbers: UInt32s, bits: int) -> UInt32s:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
