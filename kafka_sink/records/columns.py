"""The DataFrame columns of a Kafka record: the allowed columns, their types, and a checked view of them.

    value      binary or string, required; null is a tombstone
    key        binary or string; null: no key
    topic      string; required where the `topic` option is not set
    partition  int; null: the partitioner decides
    headers    array<struct<key: string, value: binary>>; order and null values kept; keys are UTF-8
    timestamp  timestamp, with or without a zone, from 1970 on; null: now
    dead_letter
               the record that the row was made of, and why it could not be decoded (`registry.deserialized`). Where it
               is not null the row is a bad row, and its other columns do not count

Scope: `check_schema` checks types, once per write, before any row moves. `RecordColumns.from_arrow` checks values, once
per Arrow batch. After that no code looks at Arrow types. Values, keys and headers stay Arrow arrays over the batch's
own memory (strings are read as their UTF-8 bytes). Numbers become numpy arrays. Only dictionaries and views are copied,
because their values are not in the order of the rows.

A map of headers is refused, although Arrow stores it like the list. A map has unique keys and no order; Kafka's headers
may repeat keys and have an order. With `map_entries` a user makes the conversion explicit.

Timestamps before 1970 are refused. Brokers store them (observed on 3.9.2 and 4.3.1) and consumers show them. But no
broker can rewrite such a batch (MemoryRecordsBuilder: "Invalid negative timestamp"). If the topic has its own
`compression.type`, the broker answers UNKNOWN_SERVER_ERROR. Compaction marks the partition as uncleanable, and it grows
from then on. Exactly -1 ms is Kafka's "no timestamp". Java's producer refuses all of them as well.

A time zone changes nothing: Arrow's timestamps with a zone are UTC. Those without (TIMESTAMP_NTZ) are read as UTC.

Column names match exactly, in lower case. Spark ignores case when it resolves a query. But its own Kafka sink does not
(KafkaWriter.expression: `schema.find(_.name == attrName)`): it silently drops a `Key`, and the rows arrive without
keys. Here a name that differs only in case is an error that says how to rename it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.errors import (
    ColumnTypeMismatch,
    DeadLettersRefused,
    DuplicateColumn,
    HeaderKeyNotUtf8,
    HeaderKeyNull,
    MissingColumn,
    TimestampOutOfRange,
    UnexpectedColumn,
)

Int64s = npt.NDArray[np.int64]

LAST_ASCII = 0x7F
DEAD_LETTER = "dead_letter"


# --- types --------------------------------------------------------------------------------------------------


_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())
_VIEWS = (pa.string_view(), pa.binary_view())


def _decoded_type(arrow_type: pa.DataType) -> pa.DataType:
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def _is_string(arrow_type: pa.DataType) -> bool:
    return _decoded_type(arrow_type) in _STRINGS


def _is_binary(arrow_type: pa.DataType) -> bool:
    decoded = _decoded_type(arrow_type)
    return decoded in _BINARIES or bool(pa.types.is_fixed_size_binary(decoded))


def _is_bytes(arrow_type: pa.DataType) -> bool:
    return _is_string(arrow_type) or _is_binary(arrow_type)


def _is_int32(arrow_type: pa.DataType) -> bool:
    decoded = _decoded_type(arrow_type)
    return bool(pa.types.is_signed_integer(decoded)) and decoded.bit_width <= 32


def _is_timestamp(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(_decoded_type(arrow_type)))


_LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def _is_headers(arrow_type: pa.DataType) -> bool:
    if not isinstance(arrow_type, _LIST_TYPES):
        return False
    entry = arrow_type.value_type
    if not pa.types.is_struct(entry) or [field.name for field in entry] != ["key", "value"]:
        return False
    key_type, value_type = (field.type for field in entry)
    return _is_string(key_type) and (_is_binary(value_type) or bool(pa.types.is_null(value_type)))


_DEAD_LETTER: Mapping[str, Callable[[pa.DataType], bool]] = {
    "reason": _is_string, "key": _is_binary, "value": _is_binary, "headers": _is_headers,
    "topic": _is_string, "partition": _is_int32, "offset": lambda arrow_type: bool(pa.types.is_int64(arrow_type)),
}  # fmt: skip


def is_dead_letter(arrow_type: pa.DataType) -> bool:
    if not pa.types.is_struct(arrow_type) or [field.name for field in arrow_type] != list(_DEAD_LETTER):
        return False
    return all(_DEAD_LETTER[field.name](field.type) for field in arrow_type)


@dataclass(frozen=True, slots=True)
class _ColumnRule:
    accepts: Callable[[pa.DataType], bool]
    expected: str
    fix: str


_TO_BYTES = "Convert it, e.g. cast('string') or to_json, or to_avro / to_protobuf for binary."
COLUMNS: Mapping[str, _ColumnRule] = MappingProxyType(
    {
        "value": _ColumnRule(_is_bytes, "binary or string", _TO_BYTES),
        "key": _ColumnRule(_is_bytes, "binary or string", _TO_BYTES),
        "topic": _ColumnRule(_is_string, "string", "Cast it: cast('string')."),
        "partition": _ColumnRule(_is_int32, "int", "Cast it: cast('int')."),
        "headers": _ColumnRule(
            _is_headers,
            "array<struct<key: string, value: binary>>",
            "Build it with array(struct(lit('name').alias('key'), col(...).cast('binary').alias('value'))), or from a "
            "map<string, binary> with map_entries(col(...)).",
        ),
        "timestamp": _ColumnRule(_is_timestamp, "timestamp", "Cast it: cast('timestamp')."),
        DEAD_LETTER: _ColumnRule(
            is_dead_letter,
            "the dead letter of kafka_sink.registry.deserialized with bad_rows='deadLetter'",
            "Rename a column of your own.",
        ),
    }
)


def check_schema(schema: pa.Schema, *, topic_option: bool, takes_dead_letters: bool = True) -> None:
    """Raise the first error in the columns of a write; return if every column can be part of a record.

    `topic_option`: the `topic` option is set, so no `topic` column is needed. `takes_dead_letters`: the write has a
    place for bad rows. A column of Arrow's null type (every row null) is always accepted. Raises MissingColumn,
    UnexpectedColumn, DuplicateColumn, ColumnTypeMismatch, DeadLettersRefused.
    """
    names = schema.names
    for name in names:
        lower = name.lower()
        if lower != name and lower in COLUMNS and lower not in names:
            hint = f"Names match exactly, as in Spark's own Kafka sink: rename {name!r} to {lower!r}."
            raise MissingColumn(column=lower, found=names, hint=hint)
    if "value" not in names:
        hint = "Name the bytes to be written, e.g. to_json(struct('*')).alias('value')."
        raise MissingColumn(column="value", found=names, hint=hint)
    if "topic" not in names and not topic_option:
        hint = "Set the 'topic' option, or add the column."
        raise MissingColumn(column="topic", found=names, hint=hint)
    for field in schema:
        if field.name not in COLUMNS:
            raise UnexpectedColumn(column=field.name, allowed=tuple(COLUMNS))
        if names.count(field.name) > 1:
            raise DuplicateColumn(column=field.name)
        rule = COLUMNS[field.name]
        if not pa.types.is_null(field.type) and not rule.accepts(field.type):
            raise ColumnTypeMismatch(column=field.name, found=str(field.type), expected=rule.expected, hint=rule.fix)
    if DEAD_LETTER in names and not takes_dead_letters:
        raise DeadLettersRefused(column=DEAD_LETTER)


# --- values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """The headers of all rows, flattened: row i has the entries `row_offsets[i]` to `row_offsets[i + 1]`.

    `row_offsets`: int64[n + 1]. `key`, `value`: binary or large_binary arrays with one element per entry. Keys are
    UTF-8 and never null.
    """

    row_offsets: Int64s
    key: pa.Array
    value: pa.Array

    @classmethod
    def from_arrow(cls, headers: pa.Array) -> Headers:
        """`headers`: an array of any list type. A null list is a row without headers. Raises HeaderKeyNull,
        HeaderKeyNotUtf8."""
        entries = headers.flatten()  # respects the array's offset, and omits entries of a null list
        key, value = as_binary(entries.field("key")), as_binary(entries.field("value"))
        if entries.null_count or key.null_count:
            raise HeaderKeyNull
        if not _is_utf8(key):
            raise HeaderKeyNotUtf8
        row_offsets = np.zeros(len(headers) + 1, np.int64)
        import pyarrow.compute as pc

        np.cumsum(_numpy(pc.list_value_length(headers), np.int64), out=row_offsets[1:])
        return cls(row_offsets, key, value)


def _is_utf8(array: pa.Array) -> bool:
    """Return True if each value of a binary array without nulls is UTF-8. Spark does not check its strings."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    # ASCII is always UTF-8, and checking for ASCII takes a tenth of the time.
    if not content.size or content.max() <= LAST_ASCII:
        return True
    try:
        array.cast(pa.large_string() if width is np.int64 else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """The rows of one Arrow batch, n of them, as records need them.

    `value`, `key`: binary or large_binary arrays that share the batch's memory. `key` is None if no row has one.
    `headers`: None without the column.
    `timestamp_ms`: int64[n], milliseconds since 1970, never negative.
    `timestamp_is_set`: bool[n] or one bool for all rows. False if the time is only the default.
    `topic`: string or large_string array, or None without the column.
    `partition`: int32[n], -1 for null, or None without the column.
    `partition_is_set`: bool[n] or None. It distinguishes a null from a row that names -1.
    """

    num_rows: int
    value: pa.Array
    key: pa.Array | None
    headers: Headers | None
    timestamp_ms: Int64s
    timestamp_is_set: npt.NDArray[np.bool_] | bool
    topic: pa.Array | None
    partition: npt.NDArray[np.int32] | None
    partition_is_set: npt.NDArray[np.bool_] | None

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, *, now_ms: int) -> RecordColumns:
        """Return views of a batch whose schema `check_schema` has accepted. `now_ms` is the timestamp of rows without
        one.

        Raises HeaderKeyNull, HeaderKeyNotUtf8, TimestampOutOfRange.
        """
        column = {name: decoded(array) for name, array in zip(batch.schema.names, batch.columns, strict=True)}
        key, headers, topic, partition, timestamp = (
            column.get(name) for name in ("key", "headers", "topic", "partition", "timestamp")
        )
        timestamp_ms, timestamp_is_set = _milliseconds(timestamp, batch.num_rows, now_ms)
        return cls(
            num_rows=batch.num_rows,
            value=as_binary(column["value"]),
            key=None if _is_all_null(key) else as_binary(key),
            headers=None if _is_all_null(headers) else Headers.from_arrow(headers),
            timestamp_ms=timestamp_ms,
            timestamp_is_set=timestamp_is_set,
            topic=None if topic is None else as_string(topic),
            partition=None if partition is None else _numpy(partition, np.int32, null=-1),
            partition_is_set=None if partition is None else is_valid(partition),
        )


def _is_all_null(array: pa.Array | None) -> bool:
    return array is None or array.null_count == len(array)


def decoded(array: pa.Array) -> pa.Array:
    """Return the array without a dictionary. A dictionary is copied, and its null values become nulls."""
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary
    if values.type in (pa.string(), pa.binary(), *_VIEWS):
        # 64-bit offsets: a long value shared by many rows may exceed 32 bits once each row has a copy. Views have no
        # take.
        values = values.cast(pa.large_string() if values.type in _STRINGS else pa.large_binary())
    return values.take(array.indices)


def as_binary(array: pa.Array) -> pa.Array:
    """Return the array as binary or large_binary, also a null-type array. Only dictionaries and views are copied."""
    plain = decoded(array)
    is_large = plain.type in (pa.large_string(), pa.large_binary(), *_VIEWS)
    binary = pa.large_binary() if is_large else pa.binary()
    # A cast to the same type costs as much as the hashes of a few hundred keys.
    return plain if plain.type == binary else plain.cast(binary)


def as_string(array: pa.Array) -> pa.Array:
    return array if pa.types.is_large_string(array.type) else array.cast(pa.string())


def is_valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return bool[n]: False for a null."""
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _numpy(array: pa.Array, dtype: npt.DTypeLike, *, null: int = 0) -> npt.NDArray[np.signedinteger]:
    """Return an integer or null-type array as `dtype`, with `null` for nulls."""
    wanted = pa.from_numpy_dtype(dtype)
    filled = array if array.type == wanted else array.cast(wanted)
    if filled.null_count:
        filled = filled.fill_null(null)
    numbers: npt.NDArray[np.signedinteger] = filled.to_numpy()
    return numbers


# Ticks per millisecond of Arrow's units; seconds need the inverse factor.
_TICKS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_MS_PER_SECOND = 1_000
_LAST_SECOND = (2**63 - 1) // _MS_PER_SECOND


def _last_tick(unit: str) -> int:
    """Return the last tick whose milliseconds fit 64 bits."""
    return _LAST_SECOND if unit == "s" else np.iinfo(np.int64).max


def are_outside(timestamp: pa.Array) -> npt.NDArray[np.bool_]:
    """Return bool[n]: times of a timestamp column without a dictionary that no record can have. Null is False."""
    ticks = _numpy(timestamp.view(pa.int64()), np.int64)
    return (ticks < 0) | (ticks > _last_tick(timestamp.type.unit))


def _milliseconds(
    timestamp: pa.Array | None, num_rows: int, now_ms: int
) -> tuple[Int64s, npt.NDArray[np.bool_] | bool]:
    """Return int64[num_rows], rounded down, and which times are the rows' own. Raises TimestampOutOfRange."""
    if timestamp is None or timestamp.null_count == num_rows:
        return np.full(num_rows, now_ms, np.int64), False
    ticks, unit = _numpy(timestamp.view(pa.int64()), np.int64), timestamp.type.unit
    if ticks.min() < 0 or ticks.max() > _last_tick(unit):
        raise TimestampOutOfRange(timestamp=int(ticks[are_outside(timestamp).argmax()]), unit=unit)
    timestamp_ms = ticks * _MS_PER_SECOND if unit == "s" else ticks // _TICKS_PER_MS[unit]
    if not timestamp.null_count:
        return timestamp_ms, True
    is_set = is_valid(timestamp)
    return np.where(is_set, timestamp_ms, np.int64(now_ms)), is_set


# --- memory -------------------------------------------------------------------------------------------------


def plain_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch as RecordColumns will hold it, without dictionaries and views. There many rows may
    share a long value, so `batch.nbytes` may be much smaller. `check_schema` must have accepted the schema."""
    return sum(_plain_bytes(array) for array in batch.columns)


def _plain_bytes(array: pa.Array) -> int:
    if isinstance(array.type, _LIST_TYPES):
        entries = array.flatten()
        return sum(_plain_bytes(entries.field(i)) for i in range(entries.type.num_fields))
    if array.type in _VIEWS or (pa.types.is_dictionary(array.type) and _is_bytes(array.type)):
        return _content_bytes(array)
    return int(array.nbytes)


def content_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of the keys, values and headers of a batch whose schema `check_schema` has accepted, and of its
    dead letters."""
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    columns += [
        (field.name, part)
        for name, array in columns
        if name == DEAD_LETTER and array.null_count < len(array)
        for field, part in zip(array.type, array.flatten(), strict=True)
    ]
    return sum(_content_bytes(array) for name, array in columns if name in ("key", "value", "headers"))


def _content_bytes(array: pa.Array) -> int:
    if isinstance(array.type, _LIST_TYPES):
        entries = array.flatten()
        return sum(_content_bytes(entries.field(i)) for i in range(entries.type.num_fields))
    if pa.types.is_dictionary(array.type):
        return _total(_lengths(array.dictionary).take(array.indices))
    return 0 if pa.types.is_null(array.type) else _total(_lengths(array))


def _lengths(array: pa.Array) -> pa.Array:
    """Return the bytes of each value of a binary or string array. Arrow has no length function for views; the first
    four of a view's 16 bytes are its length."""
    if array.type not in _VIEWS:
        import pyarrow.compute as pc

        return pc.binary_length(array)
    views = np.frombuffer(array.buffers()[1], "<i4").reshape(-1, 4)[array.offset : array.offset + len(array)]
    return pa.array(views[:, 0], mask=~is_valid(array))


def _total(numbers: pa.Array) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(numbers.cast(pa.int64()), min_count=0).as_py())
