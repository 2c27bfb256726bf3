"""Rows as users might have them, bad ones too, as Arrow batches of any choice of types."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

# Bytes are of a Spark string that is not UTF-8: `cast(unhex('FDED') AS STRING)`.
Text = str | bytes | None
Headers = tuple[tuple[Text, bytes | None] | None, ...] | None
NOT_UTF8 = [b"\xfd\xed", b"caf\xe9", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"]


@dataclass(frozen=True)
class Given:
    """A row as a user might have it."""

    value: bytes | None
    key: bytes | None
    topic: Text
    partition: int | None
    headers: Headers
    timestamp: int | None


TEXT = st.one_of(st.none(), st.sampled_from([b"", b"a", b"longer than a view holds"]))
ENTRY = st.one_of(st.none(), st.tuples(st.sampled_from([None, "", "h", "h\xe9", *NOT_UTF8]), TEXT))
INT64 = 2**63
ROWS = st.lists(
    st.builds(
        Given, value=TEXT, key=TEXT, partition=st.sampled_from([0, 1, -1, 99, None]),
        topic=st.sampled_from(["t", "u", "", None, "t\n", "t\0", "\xe9", "..", "t" * 250, *NOT_UTF8]),
        headers=st.none() | st.lists(ENTRY, max_size=3).map(tuple),
        timestamp=st.sampled_from([0, 1_000, -1, -1_000, -INT64, INT64 - 1, None]),
    ),
    max_size=8,
)  # fmt: skip


def as_bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def as_entry(entry: tuple[Text, bytes | None] | None) -> dict[str, Any] | None:
    return None if entry is None else {"key": as_bytes(entry[0]), "value": entry[1]}


def texts(values: list[Text]) -> pa.Array:
    """pa.string(), unchecked, as Spark's are."""
    binary = pa.array(list(map(as_bytes, values)), pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers(), binary.null_count)


def header_lists(values: list[Headers], lists: Any) -> pa.Array:
    """As `texts`, with a column of keys beside them."""
    binary_type, text_type = (header_type(lists, key, pa.binary()) for key in (pa.binary(), pa.string()))
    binary = pa.array(
        [None if headers is None else [as_entry(entry) for entry in headers] for headers in values], binary_type
    )
    key, value = (binary.values.field(name) for name in ("key", "value"))
    key = pa.Array.from_buffers(pa.string(), len(key), key.buffers(), key.null_count)
    entries = pa.StructArray.from_arrays([key, value], ["key", "value"], mask=binary.values.is_null())
    own_buffers = binary.buffers()[: text_type.num_buffers]
    return pa.Array.from_buffers(text_type, len(binary), own_buffers, binary.null_count, children=[entries])


@dataclass(frozen=True)
class Types:
    text: pa.DataType
    topic: pa.DataType
    partition: pa.DataType
    lists: Any
    timestamp: pa.DataType


def header_type(lists: Any, key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return lists(pa.struct([("key", key), ("value", value)]))


TYPES = st.builds(
    Types,
    text=st.sampled_from([pa.binary(), pa.large_string(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]),
    topic=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]),
    partition=st.sampled_from([pa.int32(), pa.int8(), pa.dictionary(pa.int8(), pa.int32())]),
    lists=st.sampled_from([pa.list_, pa.large_list, pa.list_view]),
    timestamp=st.sampled_from([pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.timestamp("ns")]),
)


def converted(values: list[Any], arrow_type: pa.DataType, plain_type: pa.DataType) -> pa.Array:
    made = texts(values) if plain_type == pa.string() else pa.array(values, plain_type)
    return made.dictionary_encode().cast(arrow_type) if pa.types.is_dictionary(arrow_type) else made.cast(arrow_type)


def batch_of(rows: list[Given], types: Types, columns: set[str]) -> pa.RecordBatch:
    """Make a slice with one row cut off at each end, so that no offset is 0."""
    cut = Given(b"cut", b"cut", None, -7, ((None, b"cut"),), -7)
    stored = [cut, *rows, cut]
    arrays = {
        "value": converted([row.value for row in stored], types.text, pa.binary()),
        "key": converted([row.key for row in stored], types.text, pa.binary()),
        "topic": converted([row.topic for row in stored], types.topic, pa.string()),
        "partition": converted([row.partition for row in stored], types.partition, pa.int32()),
        "headers": header_lists([row.headers for row in stored], types.lists),
        "timestamp": pa.array([row.timestamp for row in stored], pa.int64()).view(types.timestamp),
    }
    return pa.RecordBatch.from_pydict({name: arrays[name] for name in arrays if name in columns}).slice(1, len(rows))


@dataclass(frozen=True)
class Letter:
    """A record that could not be decoded, as a row's column `dead_letter` has it."""

    value: bytes | None
    key: bytes | None
    headers: Headers


LETTERS = st.builds(
    Letter, value=TEXT, key=TEXT, headers=st.lists(st.tuples(st.sampled_from(["", "h"]), TEXT), max_size=3).map(tuple)
)  # fmt: skip


def with_letters(batch: pa.RecordBatch, letters: list[Letter | None], types: Types) -> pa.RecordBatch:
    """Return the rows with dead letters of topic `src` 3, from offset 40 on."""
    given = [letter or Letter(b"hidden", None, None) for letter in letters]
    parts = {
        "reason": converted([f"reason {n}" for n in range(len(given))], types.topic, pa.string()),
        "key": converted([each.key for each in given], types.text, pa.binary()),
        "value": converted([each.value for each in given], types.text, pa.binary()),
        "headers": header_lists([each.headers for each in given], types.lists),
        "topic": converted(["src"] * len(given), types.topic, pa.string()),
        "partition": converted([3] * len(given), types.partition, pa.int32()),
        "offset": pa.array(range(40, 40 + len(given)), pa.int64()),
    }
    mask = pa.array([letter is None for letter in letters], pa.bool_())
    column = pa.StructArray.from_arrays(list(parts.values()), names=list(parts), mask=mask)
    return batch.append_column("dead_letter", column)


PLAIN_TYPES = Types(pa.binary(), pa.string(), pa.int32(), pa.list_, pa.timestamp("us", "UTC"))
ALL = {"value", "key", "topic", "partition", "headers", "timestamp"}
