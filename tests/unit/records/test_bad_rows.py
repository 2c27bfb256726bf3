"""Bad rows are those that the fast path refuses; dead letters and identity headers, read plainly by row."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from given_rows import ALL, LETTERS, PLAIN_TYPES, ROWS, TYPES, Given, Letter, Types, batch_of, with_letters
from kafka_sink.errors import BadRow
from kafka_sink.errors.quoting import LONGEST
from kafka_sink.kafka.producer.router import Router
from kafka_sink.records import bad_rows
from kafka_sink.records.columns import RecordColumns, check_schema, content_bytes
from kafka_sink.records.dead_letters import BadRows, LeftOut, Origin, dead_letters
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.records.row_identity import RowIdentity

COLUMNS = st.sets(st.sampled_from(["key", "topic", "partition", "headers", "timestamp"])).map(lambda s: s | {"value"})
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
ORIGINS = st.builds(
    Origin, query_id=st.sampled_from([None, "a query"]), batch_id=st.sampled_from([None, 0, 7]),
    slot=st.integers(0, 3), topic=st.sampled_from([None, "of the option"]),
)  # fmt: skip
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


def refused(batch: pa.RecordBatch, *, topic_option: bool) -> str | None:
    """Why the fast path does not take a batch of one row."""
    try:
        columns = RecordColumns.from_arrow(batch, now_ms=0)
        Router(topic="t" if topic_option else None, batch_bytes=1, rng=random.Random()).topics_of(columns)
    except BadRow as error:
        return type(error).__name__
    return None


@given(ROWS, TYPES, COLUMNS, st.booleans())
@example([MILD, *OTHERS], PLAIN_TYPES, ALL, True)
@example([MILD, *OTHERS], PLAIN_TYPES, ALL, False)
def test_bad_are_exactly_those_that_the_fast_path_refuses(
    rows: list[Given], types: Types, columns: set[str], topic_option: bool
) -> None:
    batch = batch_of(rows, types, columns)
    reasons = bad_rows.judge_values(bad_rows.plain(batch), topic_option=topic_option)
    found = [None if code == bad_rows.GOOD else bad_rows.Reason(code).name for code in reasons.tolist()]
    assert found == [refused(batch.slice(row, 1), topic_option=topic_option) for row in range(len(rows))]


@given(ROWS, TYPES, COLUMNS)
def test_plain_rows_are_the_same_records(rows: list[Given], types: Types, columns: set[str]) -> None:
    batch = batch_of(rows, types, columns)
    good = bad_rows.judge_values(bad_rows.plain(batch), topic_option=True) == bad_rows.GOOD
    kept = [row for row, is_good in zip(rows, good.tolist(), strict=True) if is_good]
    chosen = bad_rows.plain(batch).filter(pa.array(good, pa.bool_()))
    assert fingerprint(chosen) == fingerprint(batch_of(kept, types, columns))


def fingerprint(batch: pa.RecordBatch) -> str:
    of = Fingerprint()
    of.update(bad_rows.columns_for_fingerprint(batch, now_ms=5))
    return of.digest()


@given(ROWS)
@example([])
def test_another_bad_row_is_another_fingerprint(beside: list[Given]) -> None:
    """Whatever else is in the batch, which decides how its columns are read."""
    seen = {fingerprint(batch_of([*beside, row], PLAIN_TYPES, ALL)) for row in [MILD, *OTHERS]}
    assert len(seen) == 1 + len(OTHERS)


@given(ROWS)
def test_what_stands_for_a_row_is_a_record_and_a_good_row_stands_for_itself(rows: list[Given]) -> None:
    batch = bad_rows.plain(batch_of(rows, PLAIN_TYPES, ALL))
    stand_in = bad_rows.stand_ins(batch)
    RecordColumns.from_arrow(stand_in, now_ms=0)
    good = bad_rows.judge_values(batch, topic_option=True) == bad_rows.GOOD
    mask = pa.array(good, pa.bool_())
    others = ["value", "key", "topic", "partition"]
    assert stand_in.select(others) == batch.select(others)
    assert stand_in.filter(mask)["headers"].to_pylist() == batch.filter(mask)["headers"].to_pylist()
    assert stand_in.filter(mask)["timestamp"] == batch.filter(mask)["timestamp"]


def test_what_is_wrong_is_in_the_headers_of_what_stands_for_it() -> None:
    row = Given(b"v", None, None, None, (("a", b"1"), (None, b"2"), None, (b"\xfd\xed", b"3")), -1_500)
    stand_in = bad_rows.stand_ins(bad_rows.plain(batch_of([row], PLAIN_TYPES, ALL)))
    assert [(entry["key"], entry["value"]) for entry in stand_in["headers"][0].as_py()] == [
        (b"a", b"1"), (bad_rows.NULL_KEY.encode(), b"2"), (bad_rows.NULL_KEY.encode(), None),
        (b"pykafka.bytes.key.fded", b"3"), (b"pykafka.timestamp", b"-1500 us"),
    ]  # fmt: skip
    assert stand_in["timestamp"].null_count == 1


def test_columns_of_nothing_but_nulls() -> None:
    nulls = pa.RecordBatch.from_pydict({name: pa.nulls(2) for name in ALL})
    assert bad_rows.judge_values(bad_rows.plain(nulls), topic_option=True).tolist() == [bad_rows.GOOD, bad_rows.GOOD]
    assert bad_rows.judge_values(bad_rows.plain(nulls), topic_option=False).tolist() == [bad_rows.Reason.TopicNull] * 2
    assert np.array_equal(
        RecordColumns.from_arrow(bad_rows.stand_ins(bad_rows.plain(nulls)), now_ms=7).timestamp_ms, [7, 7]
    )


@given(ROWS, TYPES)
def test_topics_are_named_by_rows_that_may_have_been_sent(rows: list[Given], types: Types) -> None:
    batch = batch_of(rows, types, ALL)
    sent = [number for number in range(len(rows)) if refused(batch.slice(number, 1), topic_option=False) is None]
    assert bad_rows.named_topics(batch) == {rows[number].topic for number in sent}


def expected(row: Given, reason: bad_rows.Reason, number: int, size: int, origin: Origin, left_out: LeftOut) -> Any:
    own = [] if row.headers is None or left_out == LeftOut.ALL else [entry or (None, None) for entry in row.headers]
    headers: list[tuple[str, Any]] = [
        (
            f"pykafka.bytes.key.{key.hex()}" if isinstance(key, bytes) else "pykafka.null.key" if key is None else key,
            value,
        )
        for key, value in own
    ]
    topic = row.topic if origin.topic is None else origin.topic
    topic = topic.decode("utf-8", "backslashreplace") if isinstance(topic, bytes) else topic and topic[:LONGEST]
    told = {
        "reason": reason.name, "query": origin.query_id, "batch": origin.batch_id, "slot": origin.slot, "row": number,
        "topic": topic, "partition": row.partition,
        "timestamp": None if row.timestamp is None else f"{row.timestamp} us",
        "size": size if reason is bad_rows.Reason.RecordTooLarge else None,
        "left.out": [None, "value", "value, key, headers"][left_out],
        "value.size": None if left_out == LeftOut.NOTHING or row.value is None else len(row.value),
    }  # fmt: skip
    headers += [(f"pykafka.{name}", str(value).encode()) for name, value in told.items() if value is not None]
    key = None if left_out == LeftOut.ALL else row.key
    return key, None if left_out else row.value, headers


def letters_of(rows: pa.RecordBatch, reasons: Any, numbers: Any, sizes: Any, origin: Origin, left_out: Any) -> Any:
    bad = BadRows(rows, np.array(reasons, np.uint8), np.array(numbers, np.int64), np.array(sizes, np.int64))
    return [
        (letter["key"], letter["value"], [(entry["key"].decode(), entry["value"]) for entry in letter["headers"]])
        for letter in dead_letters(bad, origin, np.array(left_out, np.uint8)).to_pylist()
    ]


@given(ROWS, ORIGINS, st.data())
def test_a_dead_letter_is_the_row_and_what_was_wrong(rows: list[Given], origin: Origin, data: st.DataObject) -> None:
    reasons = [data.draw(st.sampled_from(bad_rows.Reason)) for _ in rows]
    left_out = [data.draw(st.sampled_from(LeftOut)) for _ in rows]
    numbers = list(range(40, 40 + len(rows)))
    sizes = [number * 1_000 for number in numbers]
    batch = bad_rows.plain(batch_of(rows, PLAIN_TYPES, ALL))
    assert letters_of(batch, reasons, numbers, sizes, origin, left_out) == [
        expected(row, reason, number, size, origin, left)
        for row, reason, number, size, left in zip(rows, reasons, numbers, sizes, left_out, strict=True)
    ]


BYTES = replace(PLAIN_TYPES, text=pa.large_binary(), lists=pa.large_list)


@given(ROWS, st.sampled_from([PLAIN_TYPES, BYTES]) | TYPES.filter(lambda types: "string" not in str(types.text)),
       COLUMNS, st.data())  # fmt: skip
def test_a_row_of_a_record_that_could_not_be_decoded_is_that_record(
    rows: list[Given], types: Types, columns: set[str], data: st.DataObject
) -> None:
    letters: list[Letter | None] = [data.draw(st.none() | LETTERS) for _ in rows]
    plain = batch_of(rows, types, columns)
    batch = with_letters(plain, letters, types)
    check_schema(batch.schema, topic_option=True)
    reasons = bad_rows.judge_values(bad_rows.plain(batch), topic_option=True)
    of_rows = bad_rows.judge_values(bad_rows.plain(plain), topic_option=True)
    assert reasons.tolist() == [
        own if letter is None else bad_rows.Reason.RecordUndecodable
        for own, letter in zip(of_rows.tolist(), letters, strict=True)
    ]
    assert content_bytes(batch) - content_bytes(plain) == sum(
        len(part or b"") for each in letters if each
        for part in (each.key, each.value, *(one for key, text in each.headers or () for one in (key.encode(), text)))
    )  # fmt: skip
    originals = [
        row if letter is None else replace(row, key=letter.key, value=letter.value, headers=letter.headers)
        for row, letter in zip(rows, letters, strict=True)
    ]
    absent: dict[str, Any] = dict.fromkeys({"key", "headers"} - columns)
    if any(letters):
        whole = [row if letter else replace(row, **absent) for row, letter in zip(originals, letters, strict=True)]
        assert fingerprint(batch) == fingerprint(batch_of(whole, types, columns | {"key", "headers"}))
    for row, letter in enumerate(letters):
        if letter is not None:
            one = bad_rows.plain(batch.slice(row, 1))
            ((key, value, headers),) = letters_of(one, reasons[[row]], [7], [0], Origin(None, None, 0, "t"), [0])
            assert (key, value, headers[: len(letter.headers or ())]) == (
                letter.key, letter.value, list(letter.headers or ()),
            )  # fmt: skip
            told = dict(headers[len(letter.headers or ()) :])
            assert [told[f"pykafka.{name}"] for name in ("reason", "detail", "source.topic", "source.partition")] == [
                b"RecordUndecodable", f"reason {row}".encode(), b"src", b"3",
            ]  # fmt: skip
            assert told["pykafka.source.offset"] == b"%d" % (40 + row)


def test_rows_of_a_value_alone_and_what_is_no_topics_name() -> None:
    rows = bad_rows.plain(pa.record_batch({"value": pa.array(["v"])}))
    assert letters_of(rows, [bad_rows.Reason.RecordTooLarge], [0], [9], Origin(None, None, 2, "t"), [0]) == [
        (None, b"v", [("pykafka.reason", b"RecordTooLarge"), ("pykafka.slot", b"2"), ("pykafka.row", b"0"),
                      ("pykafka.topic", b"t"), ("pykafka.size", b"9")]),
    ]  # fmt: skip
    rows = bad_rows.plain(pa.record_batch({"value": pa.array(["v"]), "topic": pa.array(["é" * 1_000_000])}))
    ((_, _, headers),) = letters_of(rows, [bad_rows.Reason.PartitionOutOfRange], [0], [0], Origin(None, None, 0), [0])
    assert dict(headers)["pykafka.topic"].decode() == "é" * LONGEST


def columns_of(
    headers: list[Any], list_type: pa.DataType | None = None, topics: pa.Array | None = None
) -> RecordColumns:
    batch = {"value": pa.nulls(len(headers), pa.binary())}
    if topics is not None:
        batch["topic"] = topics
    if list_type is not None:
        batch["headers"] = pa.array(headers, list_type)
    return RecordColumns.from_arrow(pa.record_batch(batch), now_ms=0)


def told(topic: str, query: str, batch: int, slot: int, row: int) -> list[tuple[bytes, bytes]]:
    texts = {"topic": topic, "query": query, "batch": batch, "slot": slot, "row": row}
    return [(f"pykafka.{name}".encode(), str(text).encode()) for name, text in texts.items()]


def identified(identity: RowIdentity, columns: RecordColumns, numbers: Any) -> list[list[tuple[bytes, bytes | None]]]:
    headers = identity.added_to(columns, np.array(numbers, np.int64)).headers
    assert headers is not None
    entries = list(zip(headers.key.to_pylist(), headers.value.to_pylist(), strict=True))
    return [entries[start:end] for start, end in pairwise(headers.row_offsets.tolist())]


@given(
    st.lists(st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3),
             max_size=8),
    st.sampled_from([None, pa.list_(ENTRY), pa.large_list(ENTRY)]),
    st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]),
    st.none() | st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1),
    st.data(),
)  # fmt: skip
def test_each_row_has_its_identity_behind_its_own_headers(
    rows: list[Any], list_type: pa.DataType | None, topic_type: pa.DataType, option: str | None, query: str,
    batch: int, slot: int, data: st.DataObject,
) -> None:  # fmt: skip
    """Without any topic an empty one: that is the router's to refuse."""
    numbers = data.draw(st.lists(st.integers(0, 2**62), min_size=len(rows), max_size=len(rows)))
    topics = data.draw(st.lists(st.none() | st.text(max_size=3), min_size=len(rows), max_size=len(rows)))
    columns = columns_of(rows, list_type, data.draw(st.sampled_from([None, pa.array(topics, topic_type)])))
    topics = topics if columns.topic is not None else [None] * len(rows)
    assert identified(RowIdentity(query, batch, slot, option), columns, numbers) == [
        [(key.encode(), value) for key, value in (own or ()) if list_type is not None]
        + told((topic or "") if option is None else option, query, batch, slot, row)
        for own, topic, row in zip(rows, topics, numbers, strict=True)
    ]


def test_the_next_rows_may_be_more_or_fewer() -> None:
    identity = RowIdentity("q", 0, 1, "t")
    for rows in (range(3), range(3, 1_003), range(1_003, 1_005)):
        assert identified(identity, columns_of([None] * len(rows)), rows) == [told("t", "q", 0, 1, row) for row in rows]
    assert identified(RowIdentity("q", 0, 1, None), columns_of([None]), [2]) == [told("", "q", 0, 1, 2)]
