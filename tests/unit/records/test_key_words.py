"""The layout: every key's bytes are there once, in its rounds and its last word, and the order is the column's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.key_words import KeyWords, UInt32s, hash_keys

KEYS = st.lists(st.binary(max_size=20), min_size=1, max_size=30)


def bytes_of(keys: KeyWords) -> list[bytes]:
    """Each key put together again from what a hash gets to see."""
    parts = [b""] * len(keys.lengths)
    for words in keys.rounds():
        for i, word in enumerate(words.astype("<u4")):
            parts[i] += word.tobytes()
    for i, word, length in zip(np.flatnonzero(keys.ragged), keys.last_words, keys.last_lengths, strict=True):
        parts[i] += word.astype("<u4").tobytes()[:length]
        assert int(word) >> 8 * int(length) == 0
    return parts


@given(KEYS, st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_a_hash_sees_every_byte_of_every_key(keys: list[bytes], skipped: int, arrow_type: pa.DataType) -> None:
    seen: list[bytes] = []

    def spy(laid_out: KeyWords) -> UInt32s:
        assert (np.diff(laid_out.lengths) <= 0).all()
        seen.extend(bytes_of(laid_out))
        return laid_out.lengths.astype(np.uint32)

    column = pa.array([b"skipped"] * skipped + keys, arrow_type).slice(skipped)
    assert hash_keys(column, spy).tolist() == [len(key) for key in keys]
    assert sorted(seen) == sorted(keys)


def test_rounds_may_be_written_over() -> None:
    def twice(keys: KeyWords) -> UInt32s:
        first = [words.copy() for words in keys.rounds()]
        for words in keys.rounds():
            words *= 0
        assert [words.tolist() for words in keys.rounds()] == [words.tolist() for words in first]
        return np.zeros(len(keys.lengths), np.uint32)

    hash_keys(pa.array([b"12345678", b"abcdefgh"]), twice)


@pytest.mark.parametrize("column", [pa.array([], pa.binary()), pa.array([b"x"]).slice(1)])
def test_no_keys(column: pa.Array) -> None:
    assert hash_keys(column, lambda keys: pytest.fail("nothing to hash")).tolist() == []
