"""Turns bad rows into rows of the dead-letter topic: their content, and headers that say where they come from.

    key, value, headers       unchanged, or those of a record that could not be decoded; a header without a key has the
                              key pykafka.null.key, one whose key is not UTF-8 pykafka.bytes.key. and the key's bytes in
                              hexadecimal digits
    pykafka.reason            the error's name: RecordTooLarge, PartitionOutOfRange, TopicNull, ...
    pykafka.query             the query's id; with exactly-once also a batch write's
    pykafka.batch             the micro-batch's id
    pykafka.slot              the Spark partition's id
    pykafka.row               the row's number in its task, from 0, in the order in which Spark delivered the rows;
                              absent for a row that a leader refused
    pykafka.topic             the row's topic; a text that is no topic name is cut to 249 characters, with escapes for
                              bytes that are not UTF-8: "\\xfd"
    pykafka.partition         the partition that the row named
    pykafka.timestamp         the row's own time, as a number of its unit since 1970: "-1000 us"
    pykafka.size              for a row that is too large: bytes as a record batch of its own
    pykafka.left.out          what is missing here, because the dead letter itself would be too large: "value" or
                              "value, key, headers"
    pykafka.value.size        with pykafka.left.out: bytes of the value; absent if the value was null
    pykafka.detail            for a record that could not be decoded: why, without its content
    pykafka.source.topic, pykafka.source.partition, pykafka.source.offset
                              its place

All headers are text. A header that does not apply is absent. The record's time is the time of the write: a topic keeps
rows for a period after their time, and a dead letter should be kept from now on.

These headers are no row identity (`row_identity.py`), whose five headers come last and in another order. A reader that
removes duplicates keeps every dead letter, even one that was written twice.

The work is vectorised, because a column that is wrong everywhere makes every row a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors.quoting import shown
from kafka_sink.records.bad_rows import (
    GOOD,
    TIMESTAMP,
    Reason,
    Reasons,
    letters_of,
    originals,
    time_texts,
    with_headers,
)
from kafka_sink.records.record_size import NULL_LENGTH
from kafka_sink.records.record_walk import read_length, read_varint
from kafka_sink.records.row_identity import BATCH, QUERY, ROW, SLOT, TOPIC

Int64s = npt.NDArray[np.int64]

REASON = "pykafka.reason"
NO_NUMBER = -1


class LeftOut(IntEnum):
    NOTHING = 0
    VALUE = 1
    ALL = 2


# By number. Arrow arrays only where needed: creating the first one from a list imports pandas, in every worker.
_LEFT_OUT_TEXTS = (None, "value", "value, key, headers")
_REASON_TEXTS = tuple(None if code == GOOD else Reason(code).name for code in range(max(Reason) + 1))


@dataclass(frozen=True, slots=True)
class Origin:
    """The task of the rows. An id is None if the task has none, and `slot` on Sail. `topic`: the option's."""

    query_id: str | None
    batch_id: int | None
    slot: int | None
    topic: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BadRows:
    """n rows (`bad_rows.plain`) with the reasons why they are bad. `numbers` (int64[n]): each row's number in its task,
    NO_NUMBER if unknown. `sizes` (int64[n]): bytes of rows that are too large; undefined for others."""

    rows: pa.RecordBatch
    reasons: Reasons
    numbers: Int64s
    sizes: Int64s


def dead_letters(bad: BadRows, origin: Origin, left_out: npt.NDArray[np.uint8]) -> pa.RecordBatch:
    """Return a batch of key, value, headers, with one dead letter per row. `left_out`: a LeftOut for each row."""
    rows, count = originals(bad.rows), bad.rows.num_rows
    has_value, has_all = pa.array(left_out == LeftOut.NOTHING), left_out < LeftOut.ALL
    value = rows.column("value")
    key = rows.column("key") if "key" in rows.schema.names else pa.nulls(count, pa.binary())
    value_size = pc.if_else(has_value, None, pc.binary_length(value).cast(pa.int64()))
    own = [
        (REASON, pa.array(_REASON_TEXTS).take(pa.array(bad.reasons))),
        (QUERY, _same(origin.query_id, count)),
        (BATCH, _same(origin.batch_id, count)),
        (SLOT, _same(origin.slot, count)),
        (ROW, _text(pa.array(bad.numbers, mask=bad.numbers == NO_NUMBER))),
        (TOPIC, _topics(rows, origin.topic)),
        ("pykafka.partition", _text(_column(rows, "partition"))),
        (TIMESTAMP, _times(rows)),
        ("pykafka.size", _text(pa.array(bad.sizes, mask=bad.reasons != Reason.RecordTooLarge))),
        ("pykafka.left.out", pa.array(_LEFT_OUT_TEXTS).take(pa.array(left_out))),
        ("pykafka.value.size", _text(value_size)),
    ]
    if (letters := letters_of(rows)) is not None:
        parts = dict(zip((field.name for field in letters.type), letters.flatten(), strict=True))
        own += [("pykafka.detail", _text(parts["reason"]))]
        own += [(f"pykafka.source.{name}", _text(parts[name])) for name in ("topic", "partition", "offset")]
    return pa.RecordBatch.from_pydict(
        {
            "key": pc.if_else(pa.array(has_all), key, None),
            "value": pc.if_else(has_value, value, None),
            "headers": with_headers(_without_headers(rows, ~has_all), own),
        }
    )


def _same(value: object, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(str(value), count)


def _text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    return rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows)


def _topics(rows: pa.RecordBatch, option: str | None) -> pa.Array:
    if option is not None:
        return _same(option, rows.num_rows)
    encoded = _column(rows, "topic").cast(pa.binary()).dictionary_encode()
    texts = [shown(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _times(rows: pa.RecordBatch) -> pa.Array:
    timestamp = _column(rows, "timestamp")
    return timestamp.cast(pa.string()) if pa.types.is_null(timestamp.type) else time_texts(timestamp)


def _without_headers(rows: pa.RecordBatch, without: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows with the headers of those in `without` (bool[n]) removed."""
    place = rows.schema.get_field_index("headers")
    if place < 0 or not without.any():
        return rows
    headers = rows.column(place)
    kept = pc.if_else(pa.array(without), pa.scalar([], headers.type), headers)
    return rows.set_column(place, "headers", kept)


# --- rows that their leader refused, from their records ---------------------------------------------------------------
# In Python per row, because such rows are few or their batches were refused before. Two facts are lost: if the row or
# the partitioner chose the partition, and if the time was the row's own or the write's.


@dataclass(frozen=True, slots=True)
class SentRow:
    """`body`: key, value and headers as in a record (`record_runs.records_at`)."""

    topic: str
    partition: int
    timestamp_ms: int
    body: bytes


def rows_before(sent: Iterable[SentRow], *, added_headers: int) -> pa.RecordBatch:
    """Return the rows as in `bad_rows.plain`. `added_headers`: the number of last headers that the sink has added."""
    binary = pa.large_binary()
    entry = pa.struct([("key", binary), ("value", binary)])
    rows = [(row, *_read(row.body)) for row in sent]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for _, key, _, _ in rows], binary),
            "value": pa.array([value for _, _, value, _ in rows], binary),
            "topic": pa.array([row.topic for row, *_ in rows], pa.string()),
            "partition": pa.array([row.partition for row, *_ in rows], pa.int32()),
            "timestamp": pa.array([row.timestamp_ms for row, *_ in rows], pa.timestamp("ms")),
            "headers": pa.array(
                [headers[: len(headers) - added_headers] for *_, headers in rows], pa.large_list(entry)
            ),
        }
    )


def key_bytes_of(body: bytes) -> int | None:
    """Return the length of the key in bytes, or None without a key."""
    length, _ = read_length(body, 0)
    return None if length == NULL_LENGTH else length


def _read(body: bytes) -> tuple[bytes | None, bytes | None, list[dict[str, bytes | None]]]:
    key, at = _read_bytes(body, 0)
    value, at = _read_bytes(body, at)
    count, at = read_varint(body, at)
    headers = []
    for _ in range(count):
        header_key, at = _read_bytes(body, at)
        header_value, at = _read_bytes(body, at)
        headers.append({"key": header_key, "value": header_value})
    return key, value, headers


def _read_bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_length(body, at)
    end = at + max(length, 0)
    return None if length == NULL_LENGTH else body[at:end], end
