"""The keys of a column as 32-bit words, laid out so that a hash takes a step for all keys at once.

A hash's steps depend on each other within a key, never between keys: so round i is done for all keys that
have a word i. With the keys sorted by length, longest first, those are the first few of the column: the work
is the words there are, not the rows times the longest key. A round costs some 4 us however few keys still
have one: a lone key of 1 MB takes a second.
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

    `lengths`: int64[n]. `ragged`: bool[n], keys whose last 1 to 3 bytes are no whole word; `last_words`: uint32
    of each of those, its bytes little-endian with zeros above; `last_lengths`: int64, how many they are.
    """

    lengths: Int64s
    ragged: npt.NDArray[np.bool_]
    last_words: UInt32s
    last_lengths: Int64s
    _words: UInt32s
    _starts: Int64s

    @classmethod
    def of(cls, data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> KeyWords:
        """`lengths` never rise, and `data` goes on for 3 bytes after the last key."""
        words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the word that begins at each byte
        left = lengths & 3
        ragged = left > 0
        last_lengths = left[ragged]
        last_words = words[(starts + (lengths - left))[ragged]]
        last_words &= (np.uint32(1) << (8 * last_lengths).astype(np.uint32)) - np.uint32(1)
        return cls(lengths, ragged, last_words, last_lengths, words, starts)

    def rounds(self) -> Iterator[UInt32s]:
        """Word 0 of the keys that have one, then word 1 and so on: of m keys it is the first m. Fresh arrays."""
        word_counts = self.lengths >> 2
        has_round = np.searchsorted(-word_counts, -np.arange(int(word_counts[0])), side="left")
        for i, active in enumerate(has_round.tolist()):
            yield self._words[self._starts[:active] + 4 * i]


def hash_keys(keys: pa.Array, hash_words: Callable[[KeyWords], UInt32s]) -> UInt32s:
    """uint32[n]: what `hash_words` makes of n keys, a binary or large_binary array, in the column's order. What it
    says of a null means nothing."""
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    # Three zero bytes behind the data, so that four can be read wherever a key still has one.
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
