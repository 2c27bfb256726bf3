"""The 128-bit hash of a row, which a fingerprint sums over all rows. Compiled and fallback kernel compute it alike.

A row's hash is the hash of its message. The message has whole blocks of two words
(64 bits, little-endian). Every length comes before its bytes, so different rows have different messages:

    key length, value length | partition, timestamp in ms | key | value
    where the row names its topic:  -1, topic length | topic
    for each header:                key length, value length | key | value

Bytes are padded with zeros to a whole block. A null has the length -1 and no bytes. A partition or timestamp that is
not set is -2^63, which is no valid value of either. The topic looks like a header with a null key, which does not
exist.

The hash takes the message in chunks of 64 blocks, the last one shorter:

    state = 0
    for each chunk:  state += sum over its blocks i of (first word + keys[2i]) * (second word + keys[2i + 1])
                     state  = stir(state), if the chunk has 64 blocks
    hash  = stir(state)

Sums in brackets are modulo 2^64, all else is modulo 2^128. The sum of products is NH with words of 64 bits (Black,
Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: Fast and Secure Message Authentication", 1999, theorem 4.2): two messages of
equal length have equal sums for at most one in 2^64 of all keys. `stir` is the end of MurmurHash3_x64_128: one bit of
the state changes half of the hash's bits. It is a permutation, so it loses nothing. The keys are the first 128 numbers
of SplitMix64 from seed 0. They are not secret: an attacker who writes rows can find two with equal hashes.

A better-known hash is slower: each step of MurmurHash3_x64_128 waits for the step before, but here only an addition
does. Compiled, it took twice as long (25 ns for a row of 8 + 100 bytes, 150 for 8 + 1,024). In numpy it would need a
round of calls for each 16 bytes of the longest row; this hash needs one for each chunk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafka_sink.records.columns import RecordColumns

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

CHUNK_BLOCKS = 64
NOT_SET = -(2**63)


def _split_mix_64(count: int) -> UInt64s:
    """Return the first numbers of Java's SplittableRandom from seed 0 (Steele, Lea, Flood: "Fast Splittable
    Pseudorandom Number Generators", 2014)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


KEYS = _split_mix_64(2 * CHUNK_BLOCKS)


def partition_numbers(columns: RecordColumns) -> Int64s:
    """Return int64[n]: the partition that each row names, or NOT_SET."""
    if columns.partition is None or columns.partition_is_set is None:
        return np.full(columns.num_rows, NOT_SET, np.int64)
    return np.where(columns.partition_is_set, columns.partition, np.int64(NOT_SET))


def timestamp_numbers(columns: RecordColumns) -> Int64s:
    """Return int64[n]: each row's own timestamp, ms since 1970, or NOT_SET."""
    if columns.timestamp_is_set is True:
        return columns.timestamp_ms
    return np.where(columns.timestamp_is_set, columns.timestamp_ms, np.int64(NOT_SET))
