"""Fingerprints are equal where the rows are, and nowhere else; the hash of a row, against Python's whole numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fallback.row_hashes import stirred
from kafka_sink.records.fingerprint import Fingerprint, total
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.row_hashes import KEYS
from kernels import KERNELS
from record_cases import Header, as_arrow


@dataclass(frozen=True, slots=True)
class WholeRow:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class RowTypes:
    """`sparse`: columns without a value are left out."""

    value: pa.DataType
    key: pa.DataType
    headers: pa.DataType
    timestamp: pa.DataType
    topic: pa.DataType
    partition: pa.DataType
    sparse: bool


ENTRIES = (
    pa.struct([("key", pa.string()), ("value", pa.binary())]),
    pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]),
    pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]),
)
SPARKS = RowTypes(
    value=pa.binary(), key=pa.binary(), headers=pa.list_(ENTRIES[0]), timestamp=pa.timestamp("us", "UTC"),
    topic=pa.string(), partition=pa.int32(), sparse=False,
)  # fmt: skip


def arrow_batch(rows: Sequence[WholeRow], types: RowTypes = SPARKS) -> pa.RecordBatch:
    def column(name: str, values: Sequence[object], plain: pa.DataType) -> pa.Array:
        arrow_type = getattr(types, name)
        array = pa.array(values, plain)
        if pa.types.is_dictionary(arrow_type):
            return array.cast(arrow_type.value_type).dictionary_encode()
        return array.cast(arrow_type)

    columns = {
        "value": column("value", [row.value for row in rows], pa.binary()),
        "key": column("key", [row.key for row in rows], pa.binary()),
        "topic": column("topic", [row.topic for row in rows], pa.string()),
        "partition": column("partition", [row.partition for row in rows], pa.int32()),
        "headers": pa.array([as_arrow(row.headers) for row in rows], types.headers),
        "timestamp": column("timestamp", [row.timestamp_ms for row in rows], pa.timestamp("ms", "UTC")),
    }
    if types.sparse and not any(row.headers for row in rows):
        del columns["headers"]
    if types.sparse:
        columns = {name: array for name, array in columns.items() if name == "value" or array.null_count < len(rows)}
    return pa.record_batch(columns)


BYTES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view())
DICTIONARIES = (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.large_binary()))
BYTES_TYPES = st.sampled_from((*BYTES, *DICTIONARIES))
ROW_TYPES = st.builds(
    RowTypes, value=BYTES_TYPES, key=BYTES_TYPES, sparse=st.booleans(),
    headers=st.sampled_from([of(entry) for of in (pa.list_, pa.large_list, pa.list_view) for entry in ENTRIES]),
    timestamp=st.sampled_from([pa.timestamp("ms"), pa.timestamp("us", "UTC")]),
    topic=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), DICTIONARIES[0]]),
    partition=st.sampled_from([pa.int32(), pa.int8()]),
)  # fmt: skip


def whole_rows(texts: st.SearchStrategy[str]) -> st.SearchStrategy[WholeRow]:
    some_bytes = st.none() | texts.map(str.encode)
    return st.builds(
        WholeRow, value=some_bytes, key=some_bytes, topic=st.none() | texts,
        headers=st.lists(st.tuples(texts.map(str.encode), some_bytes), max_size=3).map(tuple),
        timestamp_ms=st.none() | st.sampled_from([0, 1, 1_700_000_000_000]),
        partition=st.none() | st.sampled_from([0, 1, -1, 127]),
    )  # fmt: skip


# Around the 16 bytes of a block and the 64 blocks of a chunk, and more than that.
LENGTHS = st.one_of(st.integers(0, 40), st.integers(960, 1060), st.sampled_from([2047, 2048, 2049, 5000]))
TEXTS = st.one_of(st.text(max_size=20), st.builds(lambda n, of: of * n, LENGTHS, st.sampled_from("a\0")))
# So few that rows are often equal, or nearly so.
SHORT_TEXTS = st.sampled_from(["", "a", "b", "ab", "\0"])


NOW_MS = 1_800_000_000_000
SOME_ROWS = st.lists(whole_rows(SHORT_TEXTS), min_size=1, max_size=3)
BASE = WholeRow(b"ab", b"c", ((b"h", b"v"), (b"i", None)), 5, "t", 3)
CHANGED = {
    "a bit of the value": replace(BASE, value=b"aj"), "a zero more": replace(BASE, value=b"ab\0"),
    "null value": replace(BASE, value=None), "empty value": replace(BASE, value=b""),
    "a byte from value to key": replace(BASE, value=b"a", key=b"bc"),
    "key and value swapped": replace(BASE, value=b"c", key=b"ab"),
    "null key": replace(BASE, key=None), "empty key": replace(BASE, key=b""),
    "headers in another order": replace(BASE, headers=BASE.headers[::-1]),
    "a header fewer": replace(BASE, headers=BASE.headers[:1]),
    "a header twice": replace(BASE, headers=(*BASE.headers, BASE.headers[1])),
    "empty header value": replace(BASE, headers=((b"h", b"v"), (b"i", b""))),
    "header key and value swapped": replace(BASE, headers=((b"v", b"h"), (b"i", None))),
    "a byte from header value to key": replace(BASE, headers=((b"hv", b""), (b"i", None))),
    "a header's value in the next": replace(BASE, headers=((b"h", None), (b"i", b"v"))),
    "no timestamp": replace(BASE, timestamp_ms=None), "timestamp 0": replace(BASE, timestamp_ms=0),
    "timestamp and partition swapped": replace(BASE, timestamp_ms=3, partition=5),
    "no topic": replace(BASE, topic=None), "empty topic": replace(BASE, topic=""),
    "topic as a header": replace(BASE, headers=((b"", b"t"), *BASE.headers), topic=None),
    "no partition": replace(BASE, partition=None), "partition -1": replace(BASE, partition=-1),
}  # fmt: skip
EACH = pytest.mark.parametrize("implementation", KERNELS)
WORD, SUM = 2**64, 2**128


def digest(*batches: pa.RecordBatch, now_ms: int = NOW_MS) -> str:
    fingerprint = Fingerprint()
    for batch in batches:
        fingerprint.update(RecordColumns.from_arrow(batch, now_ms=now_ms))
    return fingerprint.digest()


def digest_of(*rows: WholeRow) -> str:
    return digest(arrow_batch(rows))


@given(slots=st.lists(st.lists(whole_rows(TEXTS), max_size=4), max_size=4))
def test_a_total_is_the_digest_of_all_rows_however_they_were_spread(slots: list[list[WholeRow]]) -> None:
    mine = digest_of(*(row for rows in slots for row in rows))
    assert total(digest_of(*rows) for rows in [*slots, []]) == mine
    other = "9" + mine[1:]  # of another version
    assert len({total([mine]), total([other]), total([mine, other])}) == 3


@given(
    st.lists(whole_rows(TEXTS), max_size=8), st.tuples(ROW_TYPES, ROW_TYPES), st.lists(st.integers(0, 8), max_size=3),
    st.data(),
)  # fmt: skip
def test_order_batches_slices_and_types_make_no_difference(
    rows: list[WholeRow], types: tuple[RowTypes, RowTypes], cuts: list[int], data: st.DataObject
) -> None:
    shuffled = arrow_batch(data.draw(st.permutations(rows)), types[0])
    bounds = sorted([0, *(min(cut, len(rows)) for cut in cuts), len(rows)])
    slices = [shuffled.slice(start, end - start) for start, end in pairwise(bounds)]
    alone = [arrow_batch([row], types[1]) for row in rows]
    assert digest(*slices) == digest(*alone) == digest_of(*rows)


@given(SOME_ROWS, SOME_ROWS, st.lists(whole_rows(SHORT_TEXTS), max_size=2))
def test_equal_if_and_only_if_the_rows_are(left: list[WholeRow], right: list[WholeRow], both: list[WholeRow]) -> None:
    assert (digest_of(*left, *both) == digest_of(*both, *right)) == (Counter(left) == Counter(right))


def test_absent_columns_are_of_nulls_and_a_time_that_stands_in_is_not_in_it() -> None:
    timestamp = pa.array([None, 5], pa.timestamp("ms"))
    values = pa.array([b"a", b"b"], pa.binary())
    for columns in ({"value": values}, {"value": values, "timestamp": timestamp}):
        batch = pa.record_batch(columns)
        assert digest(batch, now_ms=1) == digest(batch, now_ms=2)
    row = WholeRow(b"v")
    assert digest(arrow_batch([row], replace(SPARKS, sparse=True))) == digest_of(row)
    without_list = pa.record_batch({"value": [b"v"], "headers": pa.array([None], SPARKS.headers)})
    assert digest(without_list) == digest_of(row)


def test_digests_outlive_a_release() -> None:
    """They are kept in the cluster: rows that gave one must go on giving it, or the version must change."""
    rows = [
        WholeRow(b"value", b"key", ((b"h", b"1"), (b"h", None), (b"", b"")), 1_700_000_000_000, "topic", 7),
        WholeRow(None, b"tombstone"),
        WholeRow(b"x" * 3_000),
    ]
    assert digest_of() == "1:0:00000000000000000000000000000000"
    assert digest_of(*rows) == "1:3:bde0872c96a614a5984267fbb504c6d4"


def test_each_change_of_a_row_is_seen() -> None:
    digests = {"none": digest_of(BASE)} | {change: digest_of(row) for change, row in CHANGED.items()}
    assert len(set(digests.values())) == len(digests), digests
    # ... also where another row is beside it.
    assert len({digest_of(row, BASE) for row in (BASE, *CHANGED.values())}) == len(digests)


def test_a_row_twice_is_not_a_row_once_nor_none() -> None:
    other = CHANGED["no topic"]
    counts = [digest_of(*[BASE] * n, other) for n in range(5)]
    assert len({text.partition(":")[2] for text in counts}) == 5
    # The number of rows alone would tell them apart: the sums must, too.
    assert len({text.rpartition(":")[2] for text in counts}) == 5
    assert digest_of(BASE, BASE, other) != digest_of(BASE, other, other)


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


def message(row: WholeRow) -> bytes:
    def length(data: bytes | None) -> int:
        return -1 if data is None else len(data)

    def padded(data: bytes | None) -> bytes:
        return (data or b"") + bytes(-len(data or b"") % 16)

    unset = (-(2**63) if number is None else number for number in (row.partition, row.timestamp_ms))
    parts = [words(length(row.key), length(row.value), *unset), padded(row.key), padded(row.value)]
    topic = [] if row.topic is None else [(None, row.topic.encode())]
    parts += [words(length(key), length(value)) + padded(key) + padded(value) for key, value in (*topic, *row.headers)]
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


def test_keys_are_split_mix_64s_from_seed_0_and_stirring_is_how_murmur3_ends() -> None:
    # The first five that java.util.SplittableRandom(0).nextLong() gives, and Vigna's splitmix64.c.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert KEYS[:5].tolist() == published
    assert len(set(KEYS.tolist())) == 128
    # Of no bytes murmur3 does nothing else, with its seed for both words.
    for seed in (0, 1, 2**31, 2**32 - 1):
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
