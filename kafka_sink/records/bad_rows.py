"""Finds the rows of an Arrow batch that cannot be records, and why. Used once a batch is known to have a bad row.

The code that writes an Arrow batch notices the first bad row by an error (`RecordColumns.from_arrow`, the Router, the
check of sizes). A batch without bad rows costs nothing extra. After such an error all of the batch's rows are judged,
here only by their values. `kafka/producer/row_limits.py` judges by the rules of topics.

Scope: `plain` converts rows to types from which rows can be selected. `judge_values` says which rows are bad.
`stand_ins` returns rows with the same information that can be read as records, for the fingerprint. A slot's
fingerprint covers all rows that Spark delivered, also bad rows, whatever was done with them: a partition that is out of
range today may exist in a replay.

From here on, and in dead letters, a header without a key has the key `pykafka.null.key`: Kafka has no other way to keep
its place and its value. A key that is not UTF-8 becomes `pykafka.bytes.key.` and its bytes in hexadecimal digits.

A row with a `dead_letter` stands for a record that could not be decoded. `originals` gives it that record's key, value
and headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import BadRow
from kafka_sink.errors.quoting import is_topic_name
from kafka_sink.records.columns import DEAD_LETTER, RecordColumns, are_outside, as_binary, as_string, decoded

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Reasons = npt.NDArray[np.uint8]

GOOD = 0
NULL_KEY = "pykafka.null.key"
BYTES_KEY = "pykafka.bytes.key."
TIMESTAMP = "pykafka.timestamp"


class Reason(IntEnum):
    """Why a row is bad. The names are those of the errors, except for reasons that depend only on the topic's settings.
    A row has the first reason that applies, and RecordUndecodable before all others. RefusedByLeader is found after
    sending."""

    TimestampOutOfRange = 1
    HeaderKeyNull = 2
    HeaderKeyNotUtf8 = 3
    TopicNull = 4
    TopicNameInvalid = 5
    PartitionOutOfRange = 6
    KeyNull = 7
    TimestampNotAllowed = 8
    RecordTooLarge = 9
    RefusedByLeader = 10
    RecordUndecodable = 11


# --- rows that can be selected ----------------------------------------------------------------------------------------


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without Arrow's dictionaries and views, which have no `take`. Headers become a large list. A null
    entry becomes an entry with null key and value. A null list becomes empty, because it makes the same record."""
    return pa.RecordBatch.from_arrays(
        [_plain_column(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)],
        names=batch.schema.names,
    )


def _plain_column(name: str, column: pa.Array) -> pa.Array:
    if name in ("value", "key"):
        return as_binary(column)
    if name in ("topic", "reason"):
        return as_string(decoded(column))
    if name == DEAD_LETTER:
        return _plain_letters(column)
    return _plain_headers(column) if name == "headers" else decoded(column)


def _plain_letters(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return column
    names = [field.name for field in column.type]
    parts = [_plain_column(name, part) for name, part in zip(names, column.flatten(), strict=True)]
    return pa.StructArray.from_arrays(parts, names=names, mask=column.is_null())


def _plain_headers(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return _header_lists(np.zeros(len(column) + 1, np.int64), pa.nulls(0), pa.nulls(0))
    key, value = column.flatten().flatten()  # the second one lets the entries' nulls be their fields'
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    return _header_lists(np.append(0, np.cumsum(lengths)), as_binary(key), as_binary(value))


def _header_lists(offsets: Int64s, key: pa.Array, value: pa.Array) -> pa.Array:
    """`offsets`: int64[n + 1]."""
    binary = pa.large_binary()
    entries = pa.StructArray.from_arrays([key.cast(binary), value.cast(binary)], names=["key", "value"])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), entries)


# --- which are bad ----------------------------------------------------------------------------------------------------


def judge_values(rows: pa.RecordBatch, *, topic_option: bool) -> Reasons:
    """Return uint8[n]: GOOD or a Reason for each of `rows` (`plain`), without sizes and the rules of topics.
    `topic_option`: the option is set, so the rows' own topics do not matter."""
    reasons = np.full(rows.num_rows, GOOD, np.uint8)
    # Later assignments overwrite earlier ones, so the reason with the lowest number is assigned last.
    if not topic_option:
        topic = _column(rows, "topic")
        if topic is not None:
            reasons[_name_no_topic(topic)] = Reason.TopicNameInvalid
        reasons[_are_without_topic(topic, rows.num_rows)] = Reason.TopicNull
    headers, timestamp = _column(rows, "headers"), _column(rows, "timestamp")
    if headers is not None:
        keys = headers.flatten().field("key")
        reasons[_rows_of(headers, _of_distinct(keys, lambda key: not is_utf8(key)))] = Reason.HeaderKeyNotUtf8
        reasons[_rows_of(headers, keys.is_null())] = Reason.HeaderKeyNull
    if timestamp is not None:
        reasons[are_outside(timestamp)] = Reason.TimestampOutOfRange
    if (letters := letters_of(rows)) is not None:
        reasons[letters.is_valid().to_numpy(zero_copy_only=False)] = Reason.RecordUndecodable
    return reasons


def letters_of(rows: pa.RecordBatch) -> pa.Array | None:
    """Return the column of dead letters, or None if no row has one."""
    letters = _column(rows, DEAD_LETTER)
    return None if letters is None or letters.null_count == len(letters) else letters


def originals(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` (`plain`) with the key, value and headers of the records that their dead letters have."""
    if (letters := letters_of(rows)) is None:
        return rows
    without = pa.nulls(rows.num_rows, pa.large_binary())
    no_headers = _header_lists(np.zeros(rows.num_rows + 1, np.int64), pa.nulls(0), pa.nulls(0))
    columns = {name: rows.column(name) for name in rows.schema.names}
    for name, absent in (("key", without), ("value", without), ("headers", no_headers)):
        own = _column(rows, name)
        own = absent if own is None else own.cast(absent.type)
        columns[name] = pc.if_else(letters.is_valid(), letters.field(name).cast(absent.type), own)
    return pa.RecordBatch.from_pydict(columns)


def named_topics(batch: pa.RecordBatch) -> set[str]:
    """Return the topics of a batch's rows, without rows that have bad values, which may name impossible topics."""
    rows = plain(batch)
    good = judge_values(rows, topic_option=False) == GOOD
    return set(rows.column("topic").filter(pa.array(good)).unique().to_pylist())


def topic_of(rows: pa.RecordBatch, row: int) -> str | None:
    """Return the topic that the row (of `plain` rows) names, or None if that is no valid name."""
    topic = _column(rows, "topic")
    name = None if topic is None else as_binary(topic)[row].as_py()
    return name.decode() if name is not None and is_utf8(name) and is_topic_name(name.decode()) else None


def key_bytes(rows: pa.RecordBatch, row: int) -> int | None:
    """Return the length of the row's key in bytes (of `plain` rows), or None without a key."""
    key = _column(rows, "key")
    length: int | None = None if key is None else pc.binary_length(key)[row].as_py()
    return length


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the column, or None if it is missing or has Arrow's null type."""
    place = rows.schema.get_field_index(name)
    return None if place < 0 or pa.types.is_null(rows.schema.types[place]) else rows.column(place)


def _are_without_topic(topic: pa.Array | None, num_rows: int) -> Bools:
    if topic is None:
        return np.ones(num_rows, np.bool_)
    without: Bools = pc.equal(pc.binary_length(topic), 0).fill_null(True).to_numpy(zero_copy_only=False)
    return without


def _name_no_topic(topic: pa.Array) -> Bools:
    def is_no_name(name: bytes) -> bool:
        return not is_utf8(name) or not is_topic_name(name.decode())

    names_none: Bools = _of_distinct(as_binary(topic), is_no_name).to_numpy(zero_copy_only=False)
    return names_none


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_distinct(binary: pa.Array, is_such: Callable[[bytes], bool]) -> pa.Array:
    """Return `is_such` of each value, called once per distinct value. False for null."""
    encoded = binary.dictionary_encode()
    results = np.array([is_such(value) for value in encoded.dictionary.to_pylist()], np.bool_)
    return pa.array(results).take(encoded.indices).fill_null(False)


def _rows_of(headers: pa.Array, chosen: pa.Array) -> Int64s:
    """Return the rows of the `chosen` entries (bool[m]) of a large list without nulls."""
    return _rows_of_entries(headers)[np.flatnonzero(chosen.to_numpy(zero_copy_only=False))]


def _rows_of_entries(headers: pa.Array) -> Int64s:
    """Return int64[m]: the row of each entry of a large list without nulls."""
    return np.repeat(np.arange(len(headers)), pc.list_value_length(headers).to_numpy())


# --- what stands for them ---------------------------------------------------------------------------------------------


def columns_for_fingerprint(batch: pa.RecordBatch, *, now_ms: int) -> RecordColumns:
    """Return the columns of all rows of a batch, with stand-ins for bad rows."""
    if letters_of(batch) is not None:
        batch = originals(plain(batch))
    try:
        return RecordColumns.from_arrow(batch, now_ms=now_ms)
    except BadRow:
        return RecordColumns.from_arrow(stand_ins(plain(batch)), now_ms=now_ms)


def stand_ins(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` (`plain`) with legal values of the same information. A header key that is null or not UTF-8 is
    replaced (`with_headers`). A time that no record can have becomes an additional header TIMESTAMP. Good rows do not
    change."""
    stand_in = {name: rows.column(name) for name in rows.schema.names}
    timestamp = _column(rows, "timestamp")
    described = []
    if timestamp is not None:
        outside = are_outside(timestamp)
        described.append((TIMESTAMP, pc.if_else(outside, time_texts(timestamp), None)))
        stand_in["timestamp"] = pc.if_else(outside, None, timestamp)
    stand_in["headers"] = with_headers(rows, described)
    return pa.RecordBatch.from_pydict(stand_in)


def time_texts(timestamp: pa.Array) -> pa.Array:
    """Return each time in full, as "-1000 us" (number and unit since 1970), or null without a time."""
    ticks = timestamp.view(pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(ticks, pa.scalar(timestamp.type.unit), " ")


def with_headers(rows: pa.RecordBatch, more: Iterable[tuple[str, pa.Array]]) -> pa.Array:
    """Return the headers of `rows` (`plain`) with legal keys. Each of `more` (name, array) adds a header after them, to
    the rows where its array is not null."""
    binary = pa.large_binary()
    headers = _column(rows, "headers")
    keys, values, of_row = [pa.nulls(0, binary)], [pa.nulls(0, binary)], [np.zeros(0, np.int64)]
    if headers is not None:
        entries = headers.flatten()
        keys.append(_text_keys(entries.field("key")))
        values.append(entries.field("value"))
        of_row.append(_rows_of_entries(headers))
    for name, value in more:
        present = np.flatnonzero(value.is_valid().to_numpy(zero_copy_only=False))
        keys.append(pa.repeat(pa.scalar(name.encode(), binary), len(present)))
        values.append(value.drop_null().cast(binary))
        of_row.append(present)
    row = np.concatenate(of_row)
    order = pa.array(np.argsort(row, kind="stable"))
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=rows.num_rows)))
    return _header_lists(offsets, pa.concat_arrays(keys).take(order), pa.concat_arrays(values).take(order))


def _text_keys(keys: pa.Array) -> pa.Array:
    """Return the keys as large_binary, as a record can have them."""
    encoded = keys.dictionary_encode()
    texts = [key if is_utf8(key) else f"{BYTES_KEY}{key.hex()}".encode() for key in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.large_binary()).take(encoded.indices).fill_null(NULL_KEY.encode())
