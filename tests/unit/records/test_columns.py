"""Columns: the names and types that are let in, what the errors tell, and values as numpy and Arrow."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given_rows import converted
from kafka_sink import errors
from kafka_sink.records.columns import RecordColumns, check_schema, plain_bytes

NOW_MS = 1_700_000_000_000
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(ENTRY)
FULL_SCHEMA = {
    "value": pa.binary(), "key": pa.string(), "topic": pa.string(), "partition": pa.int32(), "headers": HEADERS,
    "timestamp": pa.timestamp("us", "Europe/Berlin"),
}  # fmt: skip
BYTES_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
ACCEPTED = {
    ("value", "key"): [
        *BYTES_TYPES, pa.null(), pa.binary(16), pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.uint8(), pa.large_binary()), pa.dictionary(pa.int64(), pa.binary_view()),
    ],
    ("topic",): [
        pa.string(), pa.large_string(), pa.string_view(), pa.null(), pa.dictionary(pa.int32(), pa.string()),
    ],
    ("partition",): [pa.int8(), pa.int16(), pa.int32(), pa.null(), pa.dictionary(pa.int8(), pa.int32())],
    ("headers",): [
        HEADERS, pa.list_(ENTRY, 2), pa.list_view(ENTRY), pa.large_list_view(ENTRY), pa.null(),
        pa.list_(pa.struct([("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.binary(4))])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.null())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    ],
    ("timestamp",): [
        *map(pa.timestamp, ("s", "ms", "us", "ns")), pa.timestamp("us", "America/New_York"), pa.null(),
        pa.dictionary(pa.int32(), pa.timestamp("us", "UTC")),
    ],
}  # fmt: skip
REFUSED = [
    ("value", pa.int64()), ("value", pa.struct([("a", pa.string())])), ("value", pa.bool_()),
    ("value", pa.decimal128(10, 2)), ("value", pa.dictionary(pa.int32(), pa.int64())),
    ("value", pa.run_end_encoded(pa.int32(), pa.string())), ("key", pa.int32()), ("key", pa.list_(pa.binary())),
    ("topic", pa.binary()), ("topic", pa.dictionary(pa.int32(), pa.binary())), ("partition", pa.int64()),
    ("partition", pa.uint32()), ("partition", pa.string()), ("headers", pa.map_(pa.string(), pa.binary())),
    ("headers", ENTRY), ("headers", pa.list_(pa.string())),
    ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ("headers", pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
    ("headers", pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))), ("timestamp", pa.int64()),
    ("timestamp", pa.date32()), ("timestamp", pa.dictionary(pa.int32(), pa.int64())), ("timestamp", pa.string()),
]  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30)).map(
    lambda moment: (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
)
ZONES = st.sampled_from([None, "UTC", "Asia/Tokyo", "-07:30"])
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
VIEW_HEADERS = pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))
KEY_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=20)
LONG = "long " * 2000
SHARED = pa.array([LONG, "s"])
# Views of 1,000 rows on one buffer: length, the first four bytes, buffer 0, offset 0.
VIEWS = np.array([[10_000, 0x676E6F6C, 0, 0], [1, ord("s"), 0, 0]] * 500, "<i4")


def columns_of(**columns: pa.Array) -> RecordColumns:
    return RecordColumns.from_arrow(pa.RecordBatch.from_pydict(columns), now_ms=NOW_MS)


def with_value(n: int, **columns: pa.Array) -> RecordColumns:
    return columns_of(value=pa.array([b"v"] * n, pa.binary()), **columns)


def test_accepted_types() -> None:
    for name, arrow_type in ((name, each) for names, types in ACCEPTED.items() for name in names for each in types):
        check_schema(pa.schema({**FULL_SCHEMA, name: arrow_type}), topic_option=False)


@pytest.mark.parametrize(("name", "arrow_type"), REFUSED)
def test_a_wrong_type_names_the_column_and_the_fix(name: str, arrow_type: pa.DataType) -> None:
    with pytest.raises(errors.ColumnTypeMismatch, match=r"cast|Convert") as raised:
        check_schema(pa.schema({**FULL_SCHEMA, name: arrow_type}), topic_option=True)
    assert (raised.value.column, raised.value.found) == (name, str(arrow_type))
    assert "No row of this write was sent" in str(raised.value)
    assert not pa.types.is_map(arrow_type) or "map_entries" in str(raised.value)


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.struct([("reason", pa.string())])])
def test_a_dead_letter_is_what_deserialized_makes(arrow_type: pa.DataType) -> None:
    with pytest.raises(errors.ColumnTypeMismatch, match="Rename a column of your own"):
        check_schema(pa.schema({**FULL_SCHEMA, "dead_letter": arrow_type}), topic_option=True)


def without(name: str) -> pa.Schema:
    return pa.schema({column: arrow_type for column, arrow_type in FULL_SCHEMA.items() if column != name})


WRONG_NAMES: list[tuple[pa.Schema, type[errors.SchemaError], str, str]] = [
    (without("value"), errors.MissingColumn, "value", "to_json"),
    (without("topic"), errors.MissingColumn, "topic", "'topic' option"),
    (pa.schema({**FULL_SCHEMA, "amount": pa.int64()}), errors.UnexpectedColumn, "amount", "to_json"),
    (pa.schema({**FULL_SCHEMA, "KEY": pa.string()}), errors.UnexpectedColumn, "KEY", ""),
]
for _name, _type in FULL_SCHEMA.items():
    _twice = pa.schema([*FULL_SCHEMA.items(), (_name, _type)])
    _titled = pa.schema({(each.title() if each == _name else each): of for each, of in FULL_SCHEMA.items()})
    # A name in another case is never dropped in silence.
    WRONG_NAMES += [
        (_twice, errors.DuplicateColumn, _name, f"more than one column '{_name}'"),
        (_titled, errors.MissingColumn, _name, f"rename '{_name.title()}' to '{_name}'"),
    ]


@pytest.mark.parametrize(("schema", "error", "column", "words"), WRONG_NAMES)
def test_absent_and_extra_columns(schema: pa.Schema, error: type[errors.SchemaError], column: str, words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        check_schema(schema, topic_option=False)
    assert raised.value.column == column  # type: ignore[attr-defined]
    for name in FULL_SCHEMA.keys() - {"value"}:
        check_schema(without(name), topic_option=name == "topic")


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bytes_are_not_copied(arrow_type: pa.DataType) -> None:
    array = pa.array(["some", "bytes"], pa.string()).cast(arrow_type)
    value = columns_of(value=array).value
    assert value.buffers()[2].address == array.buffers()[2].address
    assert pa.types.is_large_binary(value.type) == ("large" in str(arrow_type))


def test_columns_of_nulls_absent_columns_and_no_rows() -> None:
    nulls = columns_of(**{name: pa.nulls(3) for name in FULL_SCHEMA})
    assert (nulls.num_rows, nulls.key, nulls.headers) == (3, None, None)
    assert nulls.value.to_pylist() == nulls.topic.to_pylist() == [None] * 3
    found = nulls.timestamp_ms, nulls.partition, nulls.partition_is_set
    assert [each.tolist() for each in found] == [[NOW_MS] * 3, [-1] * 3, [False] * 3]
    absent = with_value(2)
    assert absent.timestamp_ms.tolist() == [NOW_MS] * 2
    assert {absent.key, absent.headers, absent.topic, absent.partition, absent.partition_is_set} == {None}
    none = RecordColumns.from_arrow(pa.RecordBatch.from_pylist([], schema=pa.schema(FULL_SCHEMA)), now_ms=NOW_MS)
    assert none.num_rows == len(none.value) == len(none.timestamp_ms) == len(none.partition) == 0


@pytest.mark.parametrize("arrow_type", [pa.int8(), pa.int16(), pa.int32()])
def test_a_partition_of_minus_one_is_not_a_null(arrow_type: pa.DataType) -> None:
    partition = pa.array([9, 3, None, -1], arrow_type).slice(1)
    columns = with_value(3, partition=partition)
    assert columns.partition.dtype == np.int32
    assert columns.partition.tolist() == [3, -1, -1]
    assert columns.partition_is_set.tolist() == [True, False, True]


@given(st.lists(st.one_of(st.none(), MICROSECONDS), max_size=20), ZONES)
def test_microseconds_round_down_whatever_the_zone(ticks: list[int | None], zone: str | None) -> None:
    padded = pa.array([-5, *ticks], pa.int64()).cast(pa.timestamp("us", zone)).slice(1)
    columns = with_value(len(ticks), timestamp=padded)
    assert columns.timestamp_ms.dtype == np.int64
    assert columns.timestamp_ms.tolist() == [NOW_MS if t is None else t // 1000 for t in ticks]
    is_set = np.broadcast_to(columns.timestamp_is_set, len(ticks))
    assert is_set.tolist() == [t is not None for t in ticks]


def test_units() -> None:
    for unit, tick, expected_ms in (
        ("s", 0, 0), ("s", 2, 2000), ("s", (2**63 - 1) // 1000, (2**63 - 1) // 1000 * 1000), ("ms", 2, 2),
        ("ms", 2**63 - 1, 2**63 - 1), ("us", 999, 0), ("us", 1001, 1), ("ns", 1_999_999, 1),
    ):  # fmt: skip
        timestamp = pa.array([tick, None], pa.int64()).cast(pa.timestamp(unit))
        assert with_value(2, timestamp=timestamp).timestamp_ms.tolist() == [expected_ms, NOW_MS]


def test_a_time_that_kafka_cannot_hold_is_a_bad_row() -> None:
    ends = [("ms", -(2**63) + 1), ("s", (2**63 - 1) // 1000 + 1)]
    for unit, tick in [*((unit, -1) for unit in ("s", "ms", "us", "ns")), *ends]:
        timestamp = pa.array([5, None, tick, 7], pa.int64()).cast(pa.timestamp(unit))
        with pytest.raises(errors.TimestampOutOfRange, match="null") as raised:
            with_value(4, timestamp=timestamp)
        assert (raised.value.timestamp, raised.value.unit) == (tick, unit)
        # ... but not of a row that the slice leaves out.
        assert with_value(2, timestamp=timestamp.slice(0, 2)).timestamp_ms.tolist()[1] == NOW_MS


def test_what_lies_under_a_null_is_neither_a_time_nor_a_header() -> None:
    hidden = pa.Array.from_buffers(
        pa.timestamp("us"), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([7_000, -7_000], np.int64))]
    )
    assert with_value(2, timestamp=hidden).timestamp_ms.tolist() == [7, NOW_MS]
    entries = pa.array([{"key": f"{i}", "value": b"v"} for i in range(4)], ENTRY)
    offsets, mask = pa.array([0, 1, 3, 4], pa.int32()), pa.array([False, True, False])
    columns = with_value(3, headers=pa.ListArray.from_arrays(offsets, entries, mask=mask))
    assert rows_of_headers(columns) == [[(b"0", b"v")], [], [(b"3", b"v")]]


def rows_of_headers(columns: RecordColumns) -> list[list[tuple[bytes, bytes | None]]]:
    headers = columns.headers
    entries = list(zip(headers.key.to_pylist(), headers.value.to_pylist(), strict=True))
    bounds = headers.row_offsets.tolist()
    return [entries[a:b] for a, b in pairwise(bounds)]


@pytest.mark.parametrize("arrow_type", [HEADERS, LARGE_HEADERS, VIEW_HEADERS, pa.list_view(ENTRY)])
@pytest.mark.parametrize("skipped", [0, 1])
def test_headers_keep_order_null_values_and_repeated_keys(arrow_type: pa.DataType, skipped: int) -> None:
    three = [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
    rows = [[{"key": "skipped", "value": b"0"}], three, None, [], [{"key": "é", "value": b"2"}]]
    array = pa.array(rows, arrow_type).slice(skipped)
    expected = [[(each["key"].encode(), each["value"]) for each in row or ()] for row in rows[skipped:]]
    assert rows_of_headers(with_value(len(array), headers=array)) == expected


@pytest.mark.parametrize("bad_entry", [None, {"key": None, "value": b"v"}])
def test_a_null_key_or_entry_is_a_bad_row(bad_entry: dict[str, bytes | None] | None) -> None:
    headers = pa.array([[{"key": "k", "value": b"v"}], [bad_entry]], HEADERS)
    with pytest.raises(errors.HeaderKeyNull):
        with_value(2, headers=headers)
    # ... but not a row that the slice leaves out.
    assert rows_of_headers(with_value(1, headers=headers.slice(0, 1))) == [[(b"k", b"v")]]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(
    st.lists(st.binary(max_size=3) | st.text(max_size=3).map(str.encode), max_size=6), st.sampled_from(KEY_TYPES),
    st.integers(0, 6),
)  # fmt: skip
@example([b"\xc3", b"\xa9"], pa.string(), 0)
@example([b"\xfd\xed", b"a"], pa.string(), 1)
@example([b"a", b"\xfd\xed"], pa.string(), 1)
def test_each_header_key_is_utf8_by_pythons_rule(keys: list[bytes], key_type: pa.DataType, skipped: int) -> None:
    key = converted(keys, key_type, pa.string())
    entries = pa.StructArray.from_arrays([key, pa.nulls(len(keys), pa.binary())], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(len(keys) + 1), pa.int32()), entries)[skipped:]
    with nullcontext() if all(map(is_utf8, keys[skipped:])) else pytest.raises(errors.HeaderKeyNotUtf8):
        with_value(len(headers), headers=headers)


def test_list_views_in_any_order() -> None:
    entries = pa.array([{"key": f"{i}", "value": b"v"} for i in range(3)], ENTRY)
    starts, lengths = pa.array([2, 0, 0, 1], pa.int32()), pa.array([1, 2, 0, 2], pa.int32())
    views = pa.ListViewArray.from_arrays(starts, lengths, entries)
    expected = [[(key.encode(), b"v") for key in keys] for keys in ("2", "01", "", "12")]
    assert rows_of_headers(with_value(4, headers=views)) == expected
    assert rows_of_headers(with_value(2, headers=views.slice(1, 2))) == expected[1:3]


def test_headers_in_lists_of_a_fixed_size_and_with_keys_of_a_dictionary() -> None:
    pairs = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, [{"key": "c", "value": b""}] * 2]
    columns = with_value(2, headers=pa.array(pairs, pa.list_(ENTRY, 2)).slice(1))
    assert rows_of_headers(columns) == [[], [(b"c", b"")] * 2]

    def with_keys(keys: pa.DictionaryArray, *offsets: int) -> list[list[tuple[bytes, bytes | None]]]:
        entries = pa.StructArray.from_arrays([keys, pa.nulls(len(keys))], ["key", "value"])
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries)
        return rows_of_headers(with_value(len(lists), headers=lists))

    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    assert with_keys(keys, 0, 2, 3) == [[(b"a", None), (b"b", None)], [(b"a", None)]]
    with pytest.raises(errors.HeaderKeyNull):
        with_keys(pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None])), 0, 2)


def dictionary_of(array: pa.Array, arrow_type: pa.DataType = None) -> pa.DictionaryArray:
    """`array` with a dictionary in which there are a null and a value that nobody uses."""
    encoded = array.dictionary_encode()
    values = pa.concat_arrays([encoded.dictionary, pa.nulls(1, array.type), array.slice(0, 1)])
    null = len(encoded.dictionary)
    indices = pa.array([null if i is None else i for i in encoded.indices.to_pylist()], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, values.cast(arrow_type or array.type))


@given(TEXTS, st.sampled_from(BYTES_TYPES), st.integers(0, 3), st.booleans())
def test_a_dictionary_changes_nothing(
    texts: list[str | None], arrow_type: pa.DataType, skipped: int, without_nulls_in_it: bool
) -> None:
    plain = pa.array([*["cut"] * skipped, *texts], pa.string())
    encoded = plain.dictionary_encode() if without_nulls_in_it else dictionary_of(plain, arrow_type)
    topic, encoded = dictionary_of(plain).slice(skipped), encoded.slice(skipped)
    columns = columns_of(value=encoded, key=encoded, topic=topic)
    expected = [None if text is None else text.encode() for text in texts]
    assert columns.value.to_pylist() == expected
    assert columns.value.null_count == expected.count(None)
    assert columns.key is None or columns.key.to_pylist() == expected
    assert (columns.key is None) == (set(expected) == {None})
    assert columns.topic.to_pylist() == texts


def test_dictionaries_of_partitions_and_timestamps_and_bytes_of_a_fixed_size() -> None:
    partition = dictionary_of(pa.array([9, 3, None, -1], pa.int32())).slice(1)
    timestamp = dictionary_of(pa.array([0, 5_000, 7_000, None], pa.timestamp("us", "UTC"))).slice(1)
    columns = with_value(3, partition=partition, timestamp=timestamp)
    assert columns.partition.tolist() == [3, -1, -1]
    assert columns.partition_is_set.tolist() == [True, False, True]
    assert columns.timestamp_ms.tolist() == [5, 7, NOW_MS]
    array = pa.array([b"cut!", b"four", None, b"wide"], pa.binary(4)).slice(1)
    assert columns_of(value=array).value.to_pylist() == [b"four", None, b"wide"]


@pytest.mark.parametrize("shared", [
    pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int32()), SHARED),
    pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int32()), SHARED.cast(pa.string_view())),
    pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(VIEWS), pa.py_buffer(LONG.encode())]),
], ids=["dictionary", "dictionary of views", "views"])  # fmt: skip
def test_rows_that_share_a_long_value_take_as_much_as_if_they_did_not(shared: pa.Array) -> None:
    shared.validate(full=True)
    expected = 500 * (len(LONG) + 1)
    entries = pa.StructArray.from_arrays([shared, pa.nulls(1000)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), entries)
    for columns in ({"value": shared}, {"value": pa.nulls(1000), "headers": headers}):
        batch = pa.RecordBatch.from_pydict(columns)
        check_schema(batch.schema, topic_option=True)
        assert batch.nbytes < expected / 10
        assert plain_bytes(batch) == pytest.approx(expected, rel=0.01)
        assert plain_bytes(batch.slice(10, 2)) == pytest.approx(expected / 500, rel=0.01)
    value = columns_of(value=shared).value
    assert value.type == pa.large_binary()
    assert value.to_pylist() == [LONG.encode(), b"s"] * 500
    # Of four views the third is null, whatever it says: rows are counted one by one.
    of_bits = [pa.py_buffer(b"\x0b"), pa.py_buffer(np.array([[n, 0, 0, 0] for n in (1, 2, 12, 4)], "<i4"))]
    views = pa.Array.from_buffers(pa.binary_view(), 4, of_bits)
    taken = [plain_bytes(pa.RecordBatch.from_pydict({"value": views.slice(start, 2)})) for start in range(3)]
    assert taken == [1 + 2, 2, 4]
