"""Columns: the names and types that are let in, what the errors tell, and values as numpy and Arrow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import (
    ColumnTypeMismatch,
    HeaderKeyNull,
    MissingColumn,
    SchemaError,
    UnexpectedColumn,
)
from kafka_sink.records.columns import RecordColumns, check_schema

NOW_MS = 1_700_000_000_000
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(ENTRY)
FULL_SCHEMA = {
    "value": pa.binary(),
    "key": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
    "timestamp": pa.timestamp("us", "Europe/Berlin"),
}


def columns_of(**columns: pa.Array) -> RecordColumns:
    return RecordColumns.from_arrow(pa.RecordBatch.from_pydict(columns), now_ms=NOW_MS)


def with_value(n: int, **columns: pa.Array) -> RecordColumns:
    return columns_of(value=pa.array([b"v"] * n, pa.binary()), **columns)


# --- check_schema -------------------------------------------------------------------------------------------


ACCEPTED = [
    *[
        (name, arrow_type)
        for name in ("value", "key")
        for arrow_type in (
            pa.binary(),
            pa.large_binary(),
            pa.binary_view(),
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.null(),
        )
    ],
    *[("topic", t) for t in (pa.string(), pa.large_string(), pa.string_view(), pa.null())],
    *[("partition", t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.null())],
    ("headers", HEADERS),
    ("headers", pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))),
    ("headers", pa.null()),
    *[("timestamp", pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")],
    ("timestamp", pa.timestamp("us", "America/New_York")),
    ("timestamp", pa.null()),
]


@pytest.mark.parametrize(("name", "arrow_type"), ACCEPTED)
def test_accepted_types(name: str, arrow_type: pa.DataType) -> None:
    check_schema(pa.schema({**FULL_SCHEMA, name: arrow_type}), topic_option=False)


REFUSED = [
    ("value", pa.int64()),
    ("value", pa.struct([("a", pa.string())])),
    ("key", pa.int32()),
    ("key", pa.list_(pa.binary())),
    ("topic", pa.binary()),
    ("partition", pa.int64()),
    ("partition", pa.uint32()),
    ("partition", pa.string()),
    ("headers", pa.map_(pa.string(), pa.binary())),
    ("headers", ENTRY),
    ("headers", pa.list_(pa.string())),
    ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ("headers", pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
    ("headers", pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))),
    ("timestamp", pa.int64()),
    ("timestamp", pa.date32()),
    ("timestamp", pa.string()),
]


@pytest.mark.parametrize(("name", "arrow_type"), REFUSED)
def test_a_wrong_type_names_the_column_and_the_fix(name: str, arrow_type: pa.DataType) -> None:
    with pytest.raises(ColumnTypeMismatch, match=r"cast|Convert") as raised:
        check_schema(pa.schema({**FULL_SCHEMA, name: arrow_type}), topic_option=True)
    assert raised.value.column == name
    assert raised.value.found == str(arrow_type)


def without(name: str) -> pa.Schema:
    return pa.schema({column: arrow_type for column, arrow_type in FULL_SCHEMA.items() if column != name})


def test_value_is_required() -> None:
    with pytest.raises(MissingColumn, match="to_json") as raised:
        check_schema(without("value"), topic_option=True)
    assert raised.value.column == "value"


def test_topic_is_required_where_the_option_is_not_set() -> None:
    check_schema(without("topic"), topic_option=True)
    with pytest.raises(MissingColumn, match="'topic' option") as raised:
        check_schema(without("topic"), topic_option=False)
    assert raised.value.column == "topic"


@pytest.mark.parametrize("name", ["key", "partition", "headers", "timestamp"])
def test_the_other_columns_are_optional(name: str) -> None:
    check_schema(without(name), topic_option=False)


def test_any_other_column_is_an_error_that_says_where_to_put_it() -> None:
    schema = pa.schema({**FULL_SCHEMA, "amount": pa.int64()})
    with pytest.raises(UnexpectedColumn, match="to_json") as raised:
        check_schema(schema, topic_option=True)
    assert raised.value.column == "amount"


@pytest.mark.parametrize("name", list(FULL_SCHEMA))
def test_a_name_in_another_case_is_never_dropped_in_silence(name: str) -> None:
    schema = pa.schema({(n.title() if n == name else n): t for n, t in FULL_SCHEMA.items()})
    with pytest.raises(MissingColumn, match=f"rename '{name.title()}' to '{name}'"):
        check_schema(schema, topic_option=True)


def test_the_same_name_twice_in_two_cases_is_an_extra_column() -> None:
    with pytest.raises(UnexpectedColumn) as raised:
        check_schema(pa.schema({**FULL_SCHEMA, "KEY": pa.string()}), topic_option=True)
    assert raised.value.column == "KEY"


def test_errors_of_the_schema_say_that_nothing_was_sent() -> None:
    with pytest.raises(SchemaError, match="No row of this write was sent"):
        check_schema(pa.schema({"value": pa.int64()}), topic_option=True)


# --- value, key, topic, partition ---------------------------------------------------------------------------


BYTES_TYPES = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
]


@pytest.mark.parametrize("arrow_type", BYTES_TYPES)
@pytest.mark.parametrize("sliced", [False, True])
def test_bytes_are_taken_as_they_are(arrow_type: pa.DataType, sliced: bool) -> None:
    texts = ["", "yé", None, "a long value, longer than a view's inline part"]
    array = pa.array(["before", *texts, "after"], pa.string()).cast(arrow_type)
    columns = columns_of(value=array.slice(1, 4) if sliced else array, key=array.slice(1, 4) if sliced else array)
    expected = [None if text is None else text.encode() for text in texts]
    for part in (columns.value, columns.key):
        assert part.type in (pa.binary(), pa.large_binary())
        assert part.to_pylist() == (expected if sliced else [b"before", *expected, b"after"])


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bytes_are_not_copied(arrow_type: pa.DataType) -> None:
    array = pa.array(["some", "bytes"], pa.string()).cast(arrow_type)
    value = columns_of(value=array).value
    assert value.buffers()[2].address == array.buffers()[2].address
    assert pa.types.is_large_binary(value.type) == ("large" in str(arrow_type))


def test_null_type_is_all_null() -> None:
    columns = columns_of(**{name: pa.nulls(3) for name in FULL_SCHEMA})
    assert columns.num_rows == 3
    assert columns.value.to_pylist() == [None] * 3
    assert columns.key is None
    assert columns.headers is None
    assert columns.timestamp_ms.tolist() == [NOW_MS] * 3
    assert columns.topic.to_pylist() == [None] * 3
    assert columns.partition.tolist() == [-1] * 3
    assert columns.partition_is_set.tolist() == [False] * 3


def test_absent_columns() -> None:
    columns = with_value(2)
    assert columns.timestamp_ms.tolist() == [NOW_MS] * 2
    assert (columns.key, columns.headers, columns.topic) == (None, None, None)
    assert (columns.partition, columns.partition_is_set) == (None, None)


def test_no_rows() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=pa.schema(FULL_SCHEMA))
    columns = RecordColumns.from_arrow(batch, now_ms=NOW_MS)
    assert columns.num_rows == 0
    assert len(columns.value) == len(columns.timestamp_ms) == len(columns.partition) == 0


@pytest.mark.parametrize("arrow_type", [pa.int8(), pa.int16(), pa.int32()])
def test_a_partition_of_minus_one_is_not_a_null(arrow_type: pa.DataType) -> None:
    partition = pa.array([9, 3, None, -1], arrow_type).slice(1)
    columns = with_value(3, partition=partition)
    assert columns.partition.dtype == np.int32
    assert columns.partition.tolist() == [3, -1, -1]
    assert columns.partition_is_set.tolist() == [True, False, True]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_topics(arrow_type: pa.DataType) -> None:
    topic = pa.array(["x", "a", None], pa.string()).cast(arrow_type).slice(1)
    columns = with_value(2, topic=topic)
    assert columns.topic.type in (pa.string(), pa.large_string())
    assert columns.topic.to_pylist() == ["a", None]


# --- timestamp ----------------------------------------------------------------------------------------------


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda moment: (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
)


@given(st.lists(st.one_of(st.none(), MICROSECONDS), max_size=20), st.sampled_from([None, "Asia/Tokyo"]))
def test_microseconds_round_down_on_both_sides_of_1970(ticks: list[int | None], zone: str | None) -> None:
    padded = pa.array([5, *ticks], pa.int64()).cast(pa.timestamp("us", zone)).slice(1)
    columns = with_value(len(ticks), timestamp=padded)
    assert columns.timestamp_ms.dtype == np.int64
    assert columns.timestamp_ms.tolist() == [NOW_MS if t is None else t // 1000 for t in ticks]


@pytest.mark.parametrize(
    ("unit", "tick", "expected_ms"),
    [
        ("s", -2, -2000),
        ("ms", -2, -2),
        ("us", -1, -1),
        ("us", -1001, -2),
        ("ns", -1, -1),
        ("ns", 1_999_999, 1),
    ],
)
def test_units(unit: str, tick: int, expected_ms: int) -> None:
    timestamp = pa.array([tick, None], pa.int64()).cast(pa.timestamp(unit))
    assert with_value(2, timestamp=timestamp).timestamp_ms.tolist() == [expected_ms, NOW_MS]


# --- headers ------------------------------------------------------------------------------------------------


LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
VIEW_HEADERS = pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))


def rows_of_headers(columns: RecordColumns) -> list[list[tuple[bytes, bytes | None]]]:
    headers = columns.headers
    entries = list(zip(headers.key.to_pylist(), headers.value.to_pylist(), strict=True))
    bounds = headers.row_offsets.tolist()
    return [entries[a:b] for a, b in pairwise(bounds)]


@pytest.mark.parametrize("arrow_type", [HEADERS, LARGE_HEADERS, VIEW_HEADERS])
@pytest.mark.parametrize("skipped", [0, 1])
def test_headers_keep_order_null_values_and_repeated_keys(arrow_type: pa.DataType, skipped: int) -> None:
    array = pa.array(
        [
            [{"key": "skipped", "value": b"0"}],
            [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}],
            None,
            [],
            [{"key": "é", "value": b"2"}],
        ],
        arrow_type,
    ).slice(skipped)
    expected = [
        [(b"skipped", b"0")],
        [(b"b", b"1"), (b"a", None), (b"b", b"")],
        [],
        [],
        [("é".encode(), b"2")],
    ][skipped:]
    assert rows_of_headers(with_value(len(array), headers=array)) == expected


def test_what_lies_under_a_null_list_is_not_a_header() -> None:
    entries = pa.array([{"key": f"{i}", "value": b"v"} for i in range(4)], ENTRY)
    null_over_two = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), entries, mask=pa.array([False, True, False])
    )
    columns = with_value(3, headers=null_over_two)
    assert rows_of_headers(columns) == [[(b"0", b"v")], [], [(b"3", b"v")]]


@pytest.mark.parametrize("bad_entry", [None, {"key": None, "value": b"v"}])
def test_a_null_key_or_entry_is_a_bad_row(bad_entry: dict[str, bytes | None] | None) -> None:
    headers = pa.array([[{"key": "k", "value": b"v"}], [bad_entry]], HEADERS)
    with pytest.raises(HeaderKeyNull):
        with_value(2, headers=headers)
    # ... but not a row that the slice leaves out.
    assert rows_of_headers(with_value(1, headers=headers.slice(0, 1))) == [[(b"k", b"v")]]
