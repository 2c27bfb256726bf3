"""The hashes of keys by which partitioners choose: murmur2, murmur3, CRC-32 and FNV-1a, over a column of keys.

    murmur2  org.apache.kafka.common.utils.Utils.murmur2, with which Java producers choose a key's partition: the
             same bytes must have the same hash here. It is MurmurHash2 (32 bits, Austin Appleby) with a fixed seed.
    murmur3  MurmurHash3_x86_32 with seed 0: `mmh3.hash`, which takes one key per call.
    crc32    zlib's, which librdkafka's partitioners use (rdcrc32.h)
    fnv1a    Go's hash/fnv, New32a, which Sarama's partitioner uses; also in librdkafka (rdfnv1a.c)

The steps of a hash depend on each other within a key, but never between keys. So round i processes the word i (4 bytes,
little-endian) of all keys that have one. The keys are sorted by length, longest first, so these are the first few keys.
The work is proportional to the number of words, not to rows times the longest key. A round costs about 4 us, however
few keys it has: a single key of 1 MB takes 1 s. The remaining 0 to 3 bytes of the keys come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyWords:
    """n keys, n >= 1, the longest first.

    `lengths`: int64[n]. `ragged`: bool[n], True for keys whose last 1 to 3 bytes are not a whole word. For these keys,
    `last_words` (uint32) has these bytes, little-endian with zeros above, and `last_lengths` (int64) their number.
    """

    lengths: Int64s
    ragged: npt.NDArray[np.bool_]
    last_words: UInt32s
    last_lengths: Int64s
    _words: UInt32s
    _starts: Int64s

    @classmethod
    def of(cls, data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> KeyWords:
        """`lengths` must never rise. `data` must have 3 more bytes after the last key."""
        words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the word that begins at each byte
        left = lengths & 3
        ragged = left > 0
        last_lengths = left[ragged]
        last_words = words[(starts + (lengths - left))[ragged]]
        last_words &= (np.uint32(1) << (8 * last_lengths).astype(np.uint32)) - np.uint32(1)
        return cls(lengths, ragged, last_words, last_lengths, words, starts)

    def rounds(self) -> Iterator[UInt32s]:
        """Yield word 0 of the keys that have it, then word 1, and so on, as new arrays. m words belong to the first m
        keys."""
        word_counts = self.lengths >> 2
        has_round = np.searchsorted(-word_counts, -np.arange(int(word_counts[0])), side="left")
        for i, active in enumerate(has_round.tolist()):
            yield self._words[self._starts[:active] + 4 * i]


def hash_keys(keys: pa.Array, hash_words: Callable[[KeyWords], UInt32s]) -> UInt32s:
    """Return uint32[n]: the result of `hash_words` for n keys, a binary or large_binary array, in the column's order.
    The result for a null is undefined."""
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    # Three zero bytes after the data, so that four bytes can be read at every byte of a key.
    data = np.zeros(int(offsets[-1] - offsets[0]) + 3, np.uint8)
    if len(data) > 3:
        data[:-3] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    if lengths.min() == lengths.max():
        return hash_words(KeyWords.of(data, starts, lengths))
    longest_first = np.argsort(-lengths, kind="stable")
    hashes = np.empty(len(keys), np.uint32)
    hashes[longest_first] = hash_words(KeyWords.of(data, starts[longest_first], lengths[longest_first]))
    return hashes


# --- murmur2 and murmur3 ----------------------------------------------------------------------------------------------

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


# --- CRC-32 and FNV-1a ------------------------------------------------------------------------------------------------
# Both are defined byte by byte. The CRC's tables give the effect of 16 bits at once (composed from a byte's table:
# "slicing by 4" with half the lookups). FNV-1a's multiplication does not allow this: each word takes four steps.

BYTE = np.uint32(0xFF)
ALL_ONES = np.uint32(0xFFFFFFFF)
CRC_POLYNOMIAL = np.uint32(0xEDB88320)  # 0x04C11DB7 with its bits reversed, as this CRC requires
FNV_OFFSET = np.uint32(0x811C9DC5)
FNV_PRIME = np.uint32(0x01000193)


def crc32(keys: pa.Array) -> UInt32s:
    """Return uint32[n]: the CRC-32 of each of n keys, a binary or large_binary array. A null's CRC is undefined."""
    return hash_keys(keys, _crc32)


def fnv1a(keys: pa.Array) -> UInt32s:
    """Return uint32[n]: the FNV-1a hash of each of n keys, a binary or large_binary array. A null's hash is
    undefined."""
    return hash_keys(keys, _fnv1a)


def _byte_table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ ((table & np.uint32(1)) * CRC_POLYNOMIAL)
    return table


def _half_word_tables() -> tuple[UInt32s, UInt32s]:
    """Return two uint32[65536]: the results for the low and the high 16 bits of (CRC xor word) after a whole word."""
    table = _byte_table()

    def through(crc: UInt32s, byte_count: int) -> UInt32s:
        for _ in range(byte_count):
            crc = (crc >> np.uint32(8)) ^ table[crc & BYTE]
        return crc

    half_words = np.arange(1 << 16, dtype=np.uint32)
    return through(half_words, 4), through(half_words << np.uint32(16), 4)


_BYTE_TABLE = _byte_table()
_LOW_TABLE, _HIGH_TABLE = _half_word_tables()


def _crc32(keys: KeyWords) -> UInt32s:
    crcs = np.full(len(keys.lengths), ALL_ONES)
    for words in keys.rounds():
        words ^= crcs[: len(words)]
        crcs[: len(words)] = _LOW_TABLE[words & np.uint32(0xFFFF)] ^ _HIGH_TABLE[words >> np.uint32(16)]
    last = crcs[keys.ragged]
    for i in range(3):
        more = keys.last_lengths > i
        byte = keys.last_words[more] >> np.uint32(8 * i)
        last[more] = (last[more] >> np.uint32(8)) ^ _BYTE_TABLE[(last[more] ^ byte) & BYTE]
    crcs[keys.ragged] = last
    return crcs ^ ALL_ONES


def _fnv1a(keys: KeyWords) -> UInt32s:
    hashes = np.full(len(keys.lengths), FNV_OFFSET)
    for words in keys.rounds():
        active = hashes[: len(words)]
        for _ in range(4):
            active ^= words & BYTE
            active *= FNV_PRIME
            words >>= np.uint32(8)
    last = hashes[keys.ragged]
    for i in range(3):
        more = keys.last_lengths > i
        last[more] = (last[more] ^ (keys.last_words[more] >> np.uint32(8 * i) & BYTE)) * FNV_PRIME
    hashes[keys.ragged] = last
    return hashes
