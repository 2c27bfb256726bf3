"""The keys of a column as 32-bit words, so that a hash performs each step for all keys at once.

The steps of a hash depend on each other within a key, but never between keys. So round i processes all keys that have a
word i. The keys are sorted by length, longest first, so these are the first few keys of the column. The work is
proportional to the number of words, not to rows times the longest key. A round costs about 4 us, however few keys it
has: a single key of 1 MB takes 1 s.
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
