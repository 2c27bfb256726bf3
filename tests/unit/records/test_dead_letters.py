"""Dead letters against a plain reading of the table of headers, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from given_rows import ALL, PLAIN_TYPES, ROWS, Given, Text, batch_of
from kafka_sink.records.bad_rows import Reason, plain
from kafka_sink.records.dead_letters import BadRows, LeftOut, Origin, dead_letters
from kafka_sink.text.topic_name import LONGEST

ORIGINS = st.builds(
    Origin,
    query_id=st.sampled_from([None, "a query"]),
    batch_id=st.sampled_from([None, 0, 7]),
    slot=st.integers(0, 3),
    topic=st.sampled_from([None, "of the option"]),
)


def as_key(key: Text) -> str:
    if isinstance(key, bytes):
        return f"pykafka.bytes.key.{key.hex()}"
    return "pykafka.null.key" if key is None else key


def expected(row: Given, reason: Reason, number: int, size: int, origin: Origin, left_out: LeftOut) -> Any:
    own = [] if row.headers is None or left_out == LeftOut.ALL else [entry or (None, None) for entry in row.headers]
    headers: list[tuple[str, Any]] = [(as_key(key), value) for key, value in own]
    topic = row.topic if origin.topic is None else origin.topic
    told = [
        ("reason", reason.name),
        ("query", origin.query_id),
        ("batch", origin.batch_id),
        ("slot", origin.slot),
        ("row", number),
        ("topic", topic.decode("utf-8", "backslashreplace") if isinstance(topic, bytes) else topic and topic[:LONGEST]),
        ("partition", row.partition),
        ("timestamp", None if row.timestamp is None else f"{row.timestamp} us"),
        ("size", size if reason is Reason.RecordTooLarge else None),
        ("left.out", [None, "value", "value, key, headers"][left_out]),
        ("value.size", None if left_out == LeftOut.NOTHING or row.value is None else len(row.value)),
    ]
    headers += [(f"pykafka.{name}", str(value).encode()) for name, value in told if value is not None]
    key = None if left_out == LeftOut.ALL else row.key
    return key, None if left_out else row.value, headers


@given(ROWS, ORIGINS, st.data())
def test_a_dead_letter_is_the_row_and_what_was_wrong(rows: list[Given], origin: Origin, data: st.DataObject) -> None:
    reasons = [data.draw(st.sampled_from(Reason)) for _ in rows]
    left_out = [data.draw(st.sampled_from(LeftOut)) for _ in rows]
    numbers = list(range(40, 40 + len(rows)))
    bad = BadRows(
        plain(batch_of(rows, PLAIN_TYPES, ALL)),
        np.array(reasons, np.uint8),
        np.array(numbers, np.int64),
        np.array(numbers, np.int64) * 1_000,
    )
    letters = dead_letters(bad, origin, np.array(left_out, np.uint8))
    found = [
        (letter["key"], letter["value"], [(entry["key"].decode(), entry["value"]) for entry in letter["headers"]])
        for letter in letters.to_pylist()
    ]
    assert found == [
        expected(row, reason, number, number * 1_000, origin, left)
        for row, reason, number, left in zip(rows, reasons, numbers, left_out, strict=True)
    ]


def test_rows_of_a_value_alone() -> None:
    rows = plain(pa.record_batch({"value": pa.array(["v"])}))
    bad = BadRows(rows, np.array([Reason.RecordTooLarge], np.uint8), np.zeros(1, np.int64), np.full(1, 9, np.int64))
    (letter,) = dead_letters(bad, Origin(None, None, 2, "t"), np.zeros(1, np.uint8)).to_pylist()
    assert (letter["key"], letter["value"]) == (None, b"v")
    assert [(entry["key"], entry["value"]) for entry in letter["headers"]] == [
        (b"pykafka.reason", b"RecordTooLarge"), (b"pykafka.slot", b"2"), (b"pykafka.row", b"0"),
        (b"pykafka.topic", b"t"), (b"pykafka.size", b"9"),
    ]  # fmt: skip


def test_what_is_no_topics_name_is_cut() -> None:
    rows = plain(pa.record_batch({"value": pa.array(["v"]), "topic": pa.array(["é" * 1_000_000])}))
    bad = BadRows(rows, np.array([Reason.PartitionOutOfRange], np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
    (letter,) = dead_letters(bad, Origin(None, None, 0), np.zeros(1, np.uint8)).to_pylist()
    headers = {entry["key"]: entry["value"] for entry in letter["headers"]}
    assert headers[b"pykafka.topic"].decode() == "é" * LONGEST
