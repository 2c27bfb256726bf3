"""Judging all rows at once finds exactly those that the fast path refuses one by one, and what stands for them tells
them apart."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from given_rows import ALL, PLAIN_TYPES, ROWS, TYPES, Given, Types, batch_of
from kafka_sink.errors import BadRow
from kafka_sink.kafka.producer.router import Router
from kafka_sink.records.bad_rows import (
    GOOD,
    NULL_KEY,
    Reason,
    columns_for_fingerprint,
    judge_values,
    named_topics,
    plain,
    stand_ins,
)
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint

COLUMNS = st.sets(st.sampled_from(["key", "topic", "partition", "headers", "timestamp"])).map(lambda s: s | {"value"})


def refused(batch: pa.RecordBatch, *, topic_option: bool) -> str | None:
    """Why the fast path does not take a batch of one row."""
    try:
        columns = RecordColumns.from_arrow(batch, now_ms=0)
        Router(topic="t" if topic_option else None, batch_bytes=1, rng=random.Random()).topics_of(columns)
    except BadRow as error:
        return type(error).__name__
    return None


@given(ROWS, TYPES, COLUMNS, st.booleans())
def test_bad_are_exactly_those_that_the_fast_path_refuses(
    rows: list[Given], types: Types, columns: set[str], topic_option: bool
) -> None:
    batch = batch_of(rows, types, columns)
    reasons = judge_values(plain(batch), topic_option=topic_option)
    found = [None if code == GOOD else Reason(code).name for code in reasons.tolist()]
    assert found == [refused(batch.slice(row, 1), topic_option=topic_option) for row in range(len(rows))]


@given(ROWS, TYPES, COLUMNS)
def test_plain_rows_are_the_same_records(rows: list[Given], types: Types, columns: set[str]) -> None:
    batch = batch_of(rows, types, columns)
    good = judge_values(plain(batch), topic_option=True) == GOOD
    kept = [row for row, is_good in zip(rows, good.tolist(), strict=True) if is_good]
    chosen = plain(batch).filter(pa.array(good, pa.bool_()))
    assert fingerprint(chosen) == fingerprint(batch_of(kept, types, columns))


def fingerprint(batch: pa.RecordBatch) -> str:
    of = Fingerprint()
    of.update(columns_for_fingerprint(batch, now_ms=5))
    return of.digest()


MILD = Given(b"v", b"k", "t", 0, (("h", b"1"),), 1_000)


OTHERS = [
    replace(MILD, timestamp=-1), replace(MILD, timestamp=-2), replace(MILD, timestamp=-1_000),
    replace(MILD, timestamp=None), replace(MILD, topic=None), replace(MILD, topic=""),
    replace(MILD, partition=-1), replace(MILD, partition=99),
    replace(MILD, headers=((None, b"1"),)), replace(MILD, headers=((None, b"2"),)),
    replace(MILD, headers=((None, None),)), replace(MILD, headers=(("h", b"1"), (None, b"1"))),
    replace(MILD, headers=((b"\xfd", b"1"),)), replace(MILD, headers=((b"\xfe", b"1"),)),
    replace(MILD, topic=b"\xfd"), replace(MILD, topic=b"\xfe"), replace(MILD, topic="t\n"),
    replace(MILD, headers=((None, b"1"), ("h", b"1"))), replace(MILD, headers=((None, b"1"),), timestamp=-1),
]  # fmt: skip


@given(ROWS)
@example([])
def test_another_bad_row_is_another_fingerprint(beside: list[Given]) -> None:
    """Whatever else is in the batch, which decides how its columns are read."""
    seen = {fingerprint(batch_of([*beside, row], PLAIN_TYPES, ALL)) for row in [MILD, *OTHERS]}
    assert len(seen) == 1 + len(OTHERS)


@given(ROWS)
def test_what_stands_for_a_row_is_a_record_and_a_good_row_stands_for_itself(rows: list[Given]) -> None:
    batch = plain(batch_of(rows, PLAIN_TYPES, ALL))
    stand_in = stand_ins(batch)
    RecordColumns.from_arrow(stand_in, now_ms=0)
    good = judge_values(batch, topic_option=True) == GOOD
    mask = pa.array(good, pa.bool_())
    others = ["value", "key", "topic", "partition"]
    assert stand_in.select(others) == batch.select(others)
    assert stand_in.filter(mask)["headers"].to_pylist() == batch.filter(mask)["headers"].to_pylist()
    assert stand_in.filter(mask)["timestamp"] == batch.filter(mask)["timestamp"]


def test_what_is_wrong_is_in_the_headers_of_what_stands_for_it() -> None:
    row = Given(b"v", None, None, None, (("a", b"1"), (None, b"2"), None, (b"\xfd\xed", b"3")), -1_500)
    stand_in = stand_ins(plain(batch_of([row], PLAIN_TYPES, ALL)))
    assert [(entry["key"], entry["value"]) for entry in stand_in["headers"][0].as_py()] == [
        (b"a", b"1"), (NULL_KEY.encode(), b"2"), (NULL_KEY.encode(), None),
        (b"pykafka.bytes.key.fded", b"3"), (b"pykafka.timestamp", b"-1500 us"),
    ]  # fmt: skip
    assert stand_in["timestamp"].null_count == 1


def test_columns_of_nothing_but_nulls() -> None:
    nulls = pa.RecordBatch.from_pydict({name: pa.nulls(2) for name in ALL})
    assert judge_values(plain(nulls), topic_option=True).tolist() == [GOOD, GOOD]
    assert judge_values(plain(nulls), topic_option=False).tolist() == [Reason.TopicNull] * 2
    assert np.array_equal(RecordColumns.from_arrow(stand_ins(plain(nulls)), now_ms=7).timestamp_ms, [7, 7])


@given(ROWS, TYPES)
def test_topics_are_named_by_rows_that_may_have_been_sent(rows: list[Given], types: Types) -> None:
    batch = batch_of(rows, types, ALL)
    sent = [number for number in range(len(rows)) if refused(batch.slice(number, 1), topic_option=False) is None]
    assert named_topics(batch) == {rows[number].topic for number in sent}
