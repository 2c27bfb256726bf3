"""Headers that identify the row of a write from which a record was made. They are equal when the write is replayed, so
that a reader can recognise the row.

    pykafka.topic      the topic that the row was written to
    pykafka.query      the query's id, which its checkpoint keeps; for a batch write, the write's own id
    pykafka.batch      the micro-batch's id; for a batch write 0
    pykafka.slot       the Spark partition's id
    pykafka.row        the row's number in its task, from 0, in the order in which Spark delivered the rows

All are text. They follow the row's own headers, in this order, and only as the last five are they an identity: a row
that was read from Kafka with its headers has older ones. The topic is included for such a row too. If it is written
elsewhere without `rowIdentity`, perhaps as several rows, it must not look like the original. Dead letters have headers
of these names (`dead_letters.py`), but never these five as the last ones.

Per Arrow batch, all values are in one buffer, and each entry is a part of it. The names are always the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.columns import Headers, RecordColumns

Int64s = npt.NDArray[np.int64]

TOPIC, QUERY, BATCH, SLOT, ROW = NAMES = (
    "pykafka.topic", "pykafka.query", "pykafka.batch", "pykafka.slot", "pykafka.row",
)  # fmt: skip


class RowIdentity:
    """The identity of the rows of one task. `topic`: the option's; None if rows name their topics."""

    def __init__(self, query_id: str, batch_id: int, slot: int, topic: str | None) -> None:
        parts = [str(part).encode() for part in (query_id, batch_id, slot)]
        self._topic = None if topic is None else pa.scalar(topic.encode(), pa.binary())
        self._task = pa.scalar(b"".join(parts), pa.binary())
        # Where query, batch, slot and row begin, counted from the end of a row's topic.
        self._starts = np.cumsum([0, *map(len, parts)]).astype(np.int32)
        self._names = _names_of(0)

    def added_to(self, columns: RecordColumns, numbers: Int64s) -> RecordColumns:
        """Return the rows with these headers after their own. `numbers`: int64[n], the rows' numbers in the task. A row
        without a topic has an empty one here, because the router refuses it later."""
        if len(self._names) < len(NAMES) * len(numbers):
            self._names = _names_of(len(numbers))
        key, value = self._names.slice(0, len(NAMES) * len(numbers)), self._values(self._topics(columns), numbers)
        offsets = np.arange(len(numbers) + 1) * len(NAMES)
        ours = Headers(offsets, key, value)
        return replace(columns, headers=ours if columns.headers is None else _behind(columns.headers, ours))

    def _topics(self, columns: RecordColumns) -> pa.Array | pa.Scalar:
        """Return each row's topic, or one for all rows."""
        if self._topic is not None:
            return self._topic
        if columns.topic is None:
            return pa.scalar(b"", pa.binary())
        return columns.topic.cast(pa.binary()).fill_null(b"")

    def _values(self, topics: pa.Array | pa.Scalar, numbers: Int64s) -> pa.Array:
        texts = pc.binary_join_element_wise(
            topics, self._task, pa.array(numbers).cast(pa.string()).cast(pa.binary()), pa.scalar(b"", pa.binary())
        )
        _, offsets, data = texts.buffers()
        of_rows = np.frombuffer(offsets, np.int32)[: len(numbers) + 1]
        behind_topic = of_rows[:-1] + np.asarray(pc.binary_length(topics), np.int32)
        starts = np.empty((len(numbers), len(NAMES)), np.int32)
        starts[:, 0], starts[:, 1:] = of_rows[:-1], behind_topic[:, None] + self._starts
        of_entries = np.append(starts.ravel(), of_rows[-1:])
        return pa.Array.from_buffers(pa.binary(), len(of_entries) - 1, [None, pa.py_buffer(of_entries), data])


def _names_of(count: int) -> pa.Array:
    """Return the five names, `count` times."""
    lengths = np.tile([len(name) for name in NAMES], count)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    data = pa.py_buffer("".join(NAMES).encode() * count)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), data])


def _behind(own: Headers, more: Headers) -> Headers:
    """Return each row's `own` headers, followed by its `more`."""
    row_offsets = own.row_offsets + more.row_offsets
    of_row = np.repeat(np.arange(len(row_offsets) - 1), np.diff(more.row_offsets))
    # After the row's own headers, and all headers of earlier rows.
    place = own.row_offsets[1:][of_row] + np.arange(len(of_row))
    order = np.empty(row_offsets[-1], np.int64)
    is_own = np.ones(len(order), np.bool_)
    is_own[place] = False
    order[is_own] = np.arange(len(own.key))
    order[place] = len(own.key) + np.arange(len(of_row))
    take = pa.array(order)
    return Headers(row_offsets, _joined(own.key, more.key).take(take), _joined(own.value, more.value).take(take))


def _joined(own: pa.Array, more: pa.Array) -> pa.Array:
    # large_binary, because Arrow raises if the bytes exceed 32-bit offsets.
    binary = pa.large_binary()
    return pa.concat_arrays([own.cast(binary), more.cast(binary)])
