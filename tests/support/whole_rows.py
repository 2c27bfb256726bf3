"""Rows with every column that there is, as tuples, and as Arrow batches of some choice of types.

Unlike a case of record_cases.py, a row may lack anything, as a row from Spark may.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

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
