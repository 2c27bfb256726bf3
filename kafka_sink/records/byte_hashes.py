"""CRC-32 and FNV-1a over a column of keys: the hashes of librdkafka's and Sarama's partitioners.

Both are defined byte by byte. CRC-32 processes one word at a time here. Its tables give the effect of 16 bits at once
(composed from a byte's table: "slicing by 4" with half the lookups). FNV-1a's multiplication does not allow this, so
each word takes four steps.

Source: librdkafka's rdcrc32.h (zlib's CRC-32) and rdfnv1a.c; Go's hash/fnv, New32a.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_sink.records.key_words import KeyWords, UInt32s, hash_keys

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
