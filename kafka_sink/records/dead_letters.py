"""Bad rows as rows of the dead-letter topic: what they were, and headers that say where they come from.

    key, value, headers       as they were; a header without a key has the key pykafka.null.key, one whose key is not
                              UTF-8 pykafka.bytes.key. and the key's bytes in hexadecimal digits
    pykafka.reason            the error's name: RecordTooLarge, PartitionOutOfRange, TopicNull, ...
    pykafka.query             the query's id; with exactly-once also a batch write's
    pykafka.batch             the micro-batch's
    pykafka.slot              the Spark partition's
    pykafka.row               which row of its task this was, from 0, in the order in which Spark delivered them; not of
                              one that a leader refused
    pykafka.topic             where it was to go; what is no name of a topic is cut to 249 characters, with escapes for
                              what is not UTF-8: "\\xfd"
    pykafka.partition         that it named
    pykafka.timestamp         that it brought, as a number of its unit since 1970: "-1000 us"
    pykafka.size              of a row that is too large: bytes as a record batch of its own
    pykafka.left.out          what is not here, as the dead letter would be too large itself: "value" or
                              "value, key, headers"; with it
    pykafka.value.size        bytes that the value had; none where that was null

All are text; one that does not apply is not there. The record's time is that of the write: a topic keeps rows for so
long after their time, and a dead letter is to be kept from now on.

They are no identity of a record (`row_identity.py`), whose five stand together in another order: a reader that leaves
out duplicates keeps every dead letter, also one that was written twice.

All of it is vectorised: a column that is wrong throughout makes a dead letter of every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.bad_rows import GOOD, TIMESTAMP, Reason, Reasons, time_texts, with_headers
from kafka_sink.records.row_identity import BATCH, QUERY, ROW, SLOT, TOPIC
from kafka_sink.text.topic_name import shown

Int64s = npt.NDArray[np.int64]

REASON = "pykafka.reason"
NO_NUMBER = -1


class LeftOut(IntEnum):
    NOTHING = 0
    VALUE = 1
    ALL = 2


# By number. Arrow arrays only where they are needed: to make the first one of a list imports pandas, in every worker.
_LEFT_OUT_TEXTS = (None, "value", "value, key, headers")
_REASON_TEXTS = tuple(None if code == GOOD else Reason(code).name for code in range(max(Reason) + 1))


@dataclass(frozen=True, slots=True)
class Origin:
    """The task whose rows they were; None: it has no such id. `topic`: that of the option."""

    query_id: str | None
    batch_id: int | None
    slot: int
    topic: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BadRows:
    """Some rows (`bad_rows.plain`), n of them, why they are bad, where each was in its task (int64[n], NO_NUMBER where
    that is not known), and the bytes of those that are too large (int64[n]; of others anything)."""

    rows: pa.RecordBatch
    reasons: Reasons
    numbers: Int64s
    sizes: Int64s


def dead_letters(bad: BadRows, origin: Origin, left_out: npt.NDArray[np.uint8]) -> pa.RecordBatch:
    """A batch of key, value, headers, one row for each. `left_out`: a LeftOut for each."""
    rows, count = bad.rows, bad.rows.num_rows
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
    return pa.RecordBatch.from_pydict(
        {
            "key": pc.if_else(pa.array(has_all), key, None),
            "value": pc.if_else(has_value, value, None),
            "headers": with_headers(_without_headers(rows, ~has_all), own),
        }
    )


def _same(value: object, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(str(value), count)


def _text(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string())


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
    """The same rows, those that are `without` (bool[n]) with no headers of their own."""
    place = rows.schema.get_field_index("headers")
    if place < 0 or not without.any():
        return rows
    headers = rows.column(place)
    kept = pc.if_else(pa.array(without), pa.scalar([], headers.type), headers)
    return rows.set_column(place, "headers", kept)
