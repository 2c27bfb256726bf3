"""Which rows are too large for their topic, measured as a leader would measure them.

A row is too large when a record batch of it alone is refused: by `max.request.size` before compression, as for every
producer, or by its topic's `max.message.bytes` as it goes over the wire, compressed. What is larger than that before
compression is a candidate, and candidates alone are encoded and compressed one by one, in Python: they are few, or the
topic's limit is the wrong one for its rows.

A row that passes may be refused all the same together with others; then the Sender splits the batch, at the worst
down to this row alone. A leader whose topic has a `compression.type` of its own measures once more, as compressed by
that: it may refuse what passed here, and the write fails as it does without `badRows`.

Source: UnifiedLog.append (both checks), KIP-126.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import Codec
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.kernel import KERNEL
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_size import lone_batch_sizes

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

NO_COMPRESSION = 0


class SizeLimits:
    """What a row may take: `max_request_size` before compression, and what its topic allows after it. Topics become
    known as the write meets them. `dead_letter_topic`: no row's.

    `least`: what no row exceeds before compression is small enough for every topic of rows seen so far, which is one
    comparison a batch.
    """

    def __init__(self, max_request_size: int, dead_letter_topic: str | None) -> None:
        self.max_request_size = max_request_size
        self.least = max_request_size
        self._dead_letter_topic = dead_letter_topic
        self._of_topic: dict[str, int] = {}

    def unknown(self, topics: Collection[str]) -> set[str]:
        return {topic for topic in topics if topic not in self._of_topic}

    def of(self, topic: str) -> int:
        """What both limits allow."""
        return min(self.max_request_size, self._of_topic[topic])

    def learn(self, topics: Collection[str], max_message_bytes: Mapping[str, int]) -> None:
        """`max_message_bytes`: of those of `topics` that tell."""
        for topic in topics:
            self._of_topic[topic] = max_message_bytes.get(topic, self.max_request_size)
            if topic != self._dead_letter_topic:
                self.least = min(self.least, self._of_topic[topic])

    def too_large(
        self, columns: RecordColumns, topics: tuple[str, ...], topic_index: Int64s | None, codec: Codec
    ) -> tuple[Bools, Int64s]:
        """bool[n]: rows that are too large; int64[n]: the bytes that decided it. `topic_index` (int64[n]): each row's
        place in `topics`; None: they are of the first. `codec`: the calling thread's own."""
        sizes = lone_batch_sizes(KERNEL.payload_sizes(columns))
        too_large = sizes > self.max_request_size
        limit = np.array([self._of_topic[topic] for topic in topics], np.int64)
        limit = limit[np.zeros(columns.num_rows, np.int64) if topic_index is None else topic_index]
        candidates = np.flatnonzero(~too_large & (sizes > limit))
        if candidates.size:
            sizes[candidates] = wire_sizes(columns, candidates, codec)
            too_large[candidates] = sizes[candidates] > limit[candidates]
        return too_large, sizes


def wire_sizes(columns: RecordColumns, rows: Int64s, codec: Codec) -> Int64s:
    """int64[k]: bytes on the wire of a record batch of each of `rows` (int64[k]) alone."""
    none = np.zeros(len(rows), np.int64)
    data, offsets = RecordEncoder(columns, rows).encode(slice(None), none, none)
    records = [data[first:last].data for first, last in pairwise(offsets.tolist())]
    return np.array([HEADER_BYTES + _compressed_bytes(record, codec) for record in records], np.int64)


def _compressed_bytes(record: memoryview, codec: Codec) -> int:
    """As ProducerBatch.close: what compression makes larger stays as it is."""
    return len(record) if codec.id == NO_COMPRESSION else min(len(record), len(codec.compress(record)))
