"""The hash of a row, of both implementations, against whole numbers of Python, mmh3 and published vectors."""

from __future__ import annotations

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.row_hashes import KEYS, stirred
from kernels import KERNELS
from whole_rows import ROW_TYPES, TEXTS, RowTypes, WholeRow, arrow_batch, whole_rows

EACH = pytest.mark.parametrize("implementation", KERNELS)
WORD, SUM = 2**64, 2**128


def padded(data: bytes | None) -> bytes:
    return (data or b"") + bytes(-len(data or b"") % 16)


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


def length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def set_or_not(number: int | None) -> int:
    return -(2**63) if number is None else number


def message(row: WholeRow) -> bytes:
    parts = [words(length(row.key), length(row.value), set_or_not(row.partition), set_or_not(row.timestamp_ms))]
    parts += [padded(row.key), padded(row.value)]
    topic = None if row.topic is None else row.topic.encode()
    entries = [*([] if topic is None else [(None, topic)]), *row.headers]
    parts += [words(length(key), length(value)) + padded(key) + padded(value) for key, value in entries]
    return b"".join(parts)


def avalanche(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD % WORD
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 % WORD
    return h ^ h >> 33


def stir(state: int) -> int:
    low, high = state % WORD, state // WORD
    low = (low + high) % WORD
    high = (high + low) % WORD
    low, high = avalanche(low), avalanche(high)
    low = (low + high) % WORD
    return (high + low) % WORD * WORD + low


def row_hash(row: WholeRow) -> int:
    data, keys, state = message(row), KEYS.tolist(), 0
    numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    for start in range(0, len(numbers), 128):
        chunk = [(number + key) % WORD for number, key in zip(numbers[start : start + 128], keys, strict=False)]
        state = (state + sum(a * b for a, b in zip(chunk[::2], chunk[1::2], strict=True))) % SUM
        if len(chunk) == 128:
            state = stir(state)
    return stir(state)


def sums(rows: list[WholeRow]) -> tuple[int, int]:
    hashes = [row_hash(row) for row in rows]
    return sum(h % WORD for h in hashes) % WORD, sum(h // WORD for h in hashes) % WORD


def test_the_keys_are_split_mix_64s_from_seed_0() -> None:
    # The first five that java.util.SplittableRandom(0).nextLong() gives, and Vigna's splitmix64.c.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert KEYS[:5].tolist() == published
    assert len(set(KEYS.tolist())) == 128


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_stirring_is_how_murmur3_ends(seed: int) -> None:
    """Of no bytes murmur3 does nothing else, with its seed for both words."""
    expected = mmh3.hash128(b"", seed, x64arch=True)
    low, high = stirred(np.array([seed], np.uint64), np.array([seed], np.uint64))
    assert (int(high[0]) << 64) + int(low[0]) == expected == stir(seed * WORD + seed)


@EACH
@given(rows=st.lists(whole_rows(TEXTS), max_size=8), types=ROW_TYPES, before=st.integers(0, 3), after=st.integers(0, 3))
def test_equals_the_scalar_reference(
    implementation: Kernel, rows: list[WholeRow], types: RowTypes, before: int, after: int
) -> None:
    cut_off = [WholeRow(b"cut", b"off", ((b"cut", b"off"),), 5, "off", 3)]
    batch = arrow_batch([*cut_off * before, *rows, *cut_off * after], types).slice(before, len(rows))
    columns = RecordColumns.from_arrow(batch, now_ms=77)
    assert implementation.sum_row_hashes(columns) == sums(rows)


@EACH
def test_rows_of_every_number_of_blocks_around_a_chunks(implementation: Kernel) -> None:
    """Two blocks of a row are its numbers: with 62 more a chunk is full."""
    random = np.random.default_rng(7)
    rows = [WholeRow(random.bytes(n)) for n in (*range(61 * 16, 64 * 16), *range(125 * 16, 127 * 16 + 2))]
    columns = RecordColumns.from_arrow(arrow_batch(rows), now_ms=0)
    assert implementation.sum_row_hashes(columns) == sums(rows)


@EACH
def test_what_lies_under_a_null_is_not_hashed(implementation: Kernel) -> None:
    validity, offsets, data = b"\x05", np.array([0, 1, 9, 10], np.int32), b"0123456789"
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(buffer) for buffer in (validity, offsets, data)])
    columns = RecordColumns.from_arrow(pa.record_batch({"value": hidden, "key": hidden}), now_ms=0)
    rows = [WholeRow(b"0", b"0"), WholeRow(None), WholeRow(b"9", b"9")]
    assert implementation.sum_row_hashes(columns) == sums(rows)
