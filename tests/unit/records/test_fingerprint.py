"""Fingerprints are equal where the rows are, in whatever order, batches and Arrow types, and nowhere else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint, total
from whole_rows import ROW_TYPES, SHORT_TEXTS, SPARKS, TEXTS, RowTypes, WholeRow, arrow_batch, whole_rows

NOW_MS = 1_800_000_000_000


def digest(*batches: pa.RecordBatch, now_ms: int = NOW_MS) -> str:
    fingerprint = Fingerprint()
    for batch in batches:
        fingerprint.update(RecordColumns.from_arrow(batch, now_ms=now_ms))
    return fingerprint.digest()


def digest_of(*rows: WholeRow) -> str:
    return digest(arrow_batch(rows))


@given(slots=st.lists(st.lists(whole_rows(TEXTS), max_size=4), max_size=4))
def test_a_total_is_the_digest_of_all_rows_however_they_were_spread(slots: list[list[WholeRow]]) -> None:
    spread = total(digest_of(*rows) for rows in [*slots, []])
    assert spread == digest_of(*(row for rows in slots for row in rows))


def test_a_total_of_digests_of_another_version_equals_none_of_this_one() -> None:
    mine = Fingerprint().digest()
    other = "9" + mine[1:]
    assert len({total([mine]), total([other]), total([mine, other])}) == 3


@given(
    rows=st.lists(whole_rows(TEXTS), max_size=8),
    types=st.tuples(ROW_TYPES, ROW_TYPES),
    cuts=st.lists(st.integers(0, 8), max_size=3),
    data=st.data(),
)
def test_order_batches_slices_and_types_make_no_difference(
    rows: list[WholeRow], types: tuple[RowTypes, RowTypes], cuts: list[int], data: st.DataObject
) -> None:
    shuffled = arrow_batch(data.draw(st.permutations(rows)), types[0])
    bounds = sorted([0, *(min(cut, len(rows)) for cut in cuts), len(rows)])
    slices = [shuffled.slice(start, end - start) for start, end in pairwise(bounds)]
    alone = [arrow_batch([row], types[1]) for row in rows]
    assert digest(*slices) == digest(*alone) == digest_of(*rows)


@given(
    left=st.lists(whole_rows(SHORT_TEXTS), min_size=1, max_size=3),
    right=st.lists(whole_rows(SHORT_TEXTS), min_size=1, max_size=3),
    both=st.lists(whole_rows(SHORT_TEXTS), max_size=2),
)
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


BASE = WholeRow(b"ab", b"c", ((b"h", b"v"), (b"i", None)), 5, "t", 3)
CHANGED = {
    "a bit of the value": WholeRow(b"aj", b"c", BASE.headers, 5, "t", 3),
    "a zero more": WholeRow(b"ab\0", b"c", BASE.headers, 5, "t", 3),
    "null value": WholeRow(None, b"c", BASE.headers, 5, "t", 3),
    "empty value": WholeRow(b"", b"c", BASE.headers, 5, "t", 3),
    "a byte from value to key": WholeRow(b"a", b"bc", BASE.headers, 5, "t", 3),
    "key and value swapped": WholeRow(b"c", b"ab", BASE.headers, 5, "t", 3),
    "null key": WholeRow(b"ab", None, BASE.headers, 5, "t", 3),
    "empty key": WholeRow(b"ab", b"", BASE.headers, 5, "t", 3),
    "headers in another order": WholeRow(b"ab", b"c", BASE.headers[::-1], 5, "t", 3),
    "a header fewer": WholeRow(b"ab", b"c", BASE.headers[:1], 5, "t", 3),
    "a header twice": WholeRow(b"ab", b"c", (*BASE.headers, BASE.headers[1]), 5, "t", 3),
    "empty header value": WholeRow(b"ab", b"c", ((b"h", b"v"), (b"i", b"")), 5, "t", 3),
    "header key and value swapped": WholeRow(b"ab", b"c", ((b"v", b"h"), (b"i", None)), 5, "t", 3),
    "a byte from header value to key": WholeRow(b"ab", b"c", ((b"hv", b""), (b"i", None)), 5, "t", 3),
    "a header's value in the next": WholeRow(b"ab", b"c", ((b"h", None), (b"i", b"v")), 5, "t", 3),
    "no timestamp": WholeRow(b"ab", b"c", BASE.headers, None, "t", 3),
    "timestamp 0": WholeRow(b"ab", b"c", BASE.headers, 0, "t", 3),
    "timestamp and partition swapped": WholeRow(b"ab", b"c", BASE.headers, 3, "t", 5),
    "no topic": WholeRow(b"ab", b"c", BASE.headers, 5, None, 3),
    "empty topic": WholeRow(b"ab", b"c", BASE.headers, 5, "", 3),
    "topic as a header": WholeRow(b"ab", b"c", ((b"", b"t"), *BASE.headers), 5, None, 3),
    "no partition": WholeRow(b"ab", b"c", BASE.headers, 5, "t", None),
    "partition -1": WholeRow(b"ab", b"c", BASE.headers, 5, "t", -1),
}


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
