"""Identity headers against a plain reading of the rule, row by row, through both encoders."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.columns import Headers, RecordColumns
from kafka_sink.records.row_identity import RowIdentity

HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3)
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


def columns_of(
    headers: list[Any], list_type: pa.DataType | None = None, topics: pa.Array | None = None
) -> RecordColumns:
    batch = {"value": pa.nulls(len(headers), pa.binary())}
    if topics is not None:
        batch["topic"] = topics
    if list_type is not None:
        batch["headers"] = pa.array(headers, list_type)
    return RecordColumns.from_arrow(pa.record_batch(batch), now_ms=0)


def by_row(headers: Headers) -> list[list[tuple[bytes, bytes | None]]]:
    entries = list(zip(headers.key.to_pylist(), headers.value.to_pylist(), strict=True))
    bounds = headers.row_offsets.tolist()
    return [entries[start:end] for start, end in pairwise(bounds)]


def told(topic: str, query: str, batch: int, slot: int, row: int) -> list[tuple[bytes, bytes]]:
    texts = {"topic": topic, "query": query, "batch": batch, "slot": slot, "row": row}
    return [(f"pykafka.{name}".encode(), str(text).encode()) for name, text in texts.items()]


@given(
    st.lists(st.none() | HEADERS, max_size=8),
    st.sampled_from([None, pa.list_(ENTRY), pa.large_list(ENTRY)]),
    st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]),
    st.none() | st.text(max_size=9),
    st.text(max_size=9),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.data(),
)
def test_each_row_has_them_behind_its_own(
    rows: list[Any], list_type: pa.DataType | None, topic_type: pa.DataType, option: str | None, query: str,
    batch: int, slot: int, data: st.DataObject,
) -> None:  # fmt: skip
    numbers = data.draw(st.lists(st.integers(0, 2**62), min_size=len(rows), max_size=len(rows)))
    topics = data.draw(st.lists(st.none() | st.text(max_size=3), min_size=len(rows), max_size=len(rows)))
    identity = RowIdentity(query, batch, slot, option)
    columns = columns_of(rows, list_type, pa.array(topics, topic_type))
    added = identity.added_to(columns, np.array(numbers, np.int64)).headers
    assert added is not None
    assert by_row(added) == [
        [(key.encode(), value) for key, value in (own or ()) if list_type is not None]
        + told((topic or "") if option is None else option, query, batch, slot, row)
        for own, topic, row in zip(rows, topics, numbers, strict=True)
    ]


def test_the_next_rows_may_be_more_or_fewer() -> None:
    identity = RowIdentity("q", 0, 1, "t")
    for start, count in ((0, 3), (3, 1_000), (1_003, 2)):
        headers = identity.added_to(columns_of([None] * count), np.arange(start, start + count)).headers
        assert headers is not None
        assert by_row(headers) == [told("t", "q", 0, 1, row) for row in range(start, start + count)]


def test_a_row_without_any_topic_is_the_routers_to_refuse() -> None:
    headers = RowIdentity("q", 0, 1, None).added_to(columns_of([None]), np.array([2])).headers
    assert headers is not None
    assert by_row(headers) == [told("", "q", 0, 1, 2)]
