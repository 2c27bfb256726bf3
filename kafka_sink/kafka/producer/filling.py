"""The open batches of one write, as columns. The rows of an Arrow batch are encoded into them.

With thousands of partitions an Arrow batch has only a few rows for each. A Python statement per batch would cost more
than the rows. So while a batch is open, its numbers are in arrays here, with one place per destination of the write.
Thousands of batches are checked out, filled and checked in with a few calls. A batch that is full or leaves its queue
is settled: the numbers move into the batch, and its place becomes empty.

Guarded by the accumulator's lock. Checked-out places belong to their writer instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.open_batches import OpenBatches
from kafka_sink.records.record_batch import HEADER_BYTES

Int64s = npt.NDArray[np.int64]


class Filling:
    """`destinations`: the write's, as in its RoutedRows; place d is for `destinations[d]`. The list may grow.

    `queues[d]`: the partition's queue, valid if `has_queue[d]`. `is_open[d]`: a batch at d takes rows.
    `checked_out[d]`: a writer uses the batch without the lock. `open_batches`: the batches' numbers, including
    positions in the pool's `memory`. `sums_records`: the numbers include the CRC.
    """

    def __init__(
        self,
        destinations: Sequence[TopicPartition],
        acknowledgements: Acknowledgements,
        memory: npt.NDArray[np.uint8],
        *,
        sums_records: bool,
    ) -> None:
        self.destinations = destinations
        self.acknowledgements = acknowledgements
        self.queues: list[deque[ProducerBatch]] = []
        self.has_queue = np.zeros(0, np.bool_)
        self._batches: list[ProducerBatch | None] = []
        self.is_open = np.zeros(0, np.bool_)
        self.checked_out = np.zeros(0, np.bool_)
        nothing = np.zeros(0, np.int64)
        crc = nothing if sums_records else None
        self.open_batches = OpenBatches(memory, nothing, nothing, nothing, nothing, nothing, crc)
        self.grow()

    def grow(self) -> None:
        """Add places for destinations that are new since the last call. No place may be checked out."""
        more = len(self.destinations) - len(self._batches)
        if more <= 0:
            return
        self._batches += [None] * more
        self.queues += [deque()] * more
        self.has_queue = np.append(self.has_queue, np.zeros(more, np.bool_))
        self.is_open = np.append(self.is_open, np.zeros(more, np.bool_))
        self.checked_out = np.append(self.checked_out, np.zeros(more, np.bool_))
        old, new = self.open_batches, np.zeros(more, np.int64)
        self.open_batches = OpenBatches(
            old.memory,
            base_timestamp=np.append(old.base_timestamp, new),
            end=np.append(old.end, new),
            limit=np.append(old.limit, new),
            record_count=np.append(old.record_count, new),
            max_timestamp=np.append(old.max_timestamp, new),
            records_crc=None if old.records_crc is None else np.append(old.records_crc, new),
        )

    def adopt(self, places: Sequence[int], batches: Sequence[ProducerBatch], limits: Sequence[int]) -> None:
        """Take over the numbers of new, empty batches. `limits`: how many bytes of its buffer each batch may use."""
        columns = self.open_batches
        where = np.array(places, np.int64)
        columns.base_timestamp[where] = columns.max_timestamp[where] = [batch.base_timestamp for batch in batches]
        start = np.array([batch.buffer.start for batch in batches], np.int64)
        columns.end[where] = start + HEADER_BYTES
        columns.limit[where] = start + np.array(limits, np.int64)
        columns.record_count[where] = 0
        if columns.records_crc is not None:
            columns.records_crc[where] = 0
        self.is_open[where] = True
        for place, batch in zip(places, batches, strict=True):
            self._batches[place] = batch
            batch.filling, batch.place = self, place

    def size_bytes(self, place: int) -> int:
        """Return the current size in bytes of the batch at `place`, header and records."""
        batch = self._batches[place]
        assert batch is not None
        return int(self.open_batches.end[place]) - batch.buffer.start

    def take_out(self, places: Int64s, *, to_close: bool = False) -> list[ProducerBatch]:
        """Return the batches at `places` (int64[k]), and move their numbers into them. Each place must have a batch.
        The places stay occupied until `release`. `to_close`: the writer will close the batches without the lock."""
        columns = self.open_batches
        numbers = (columns.end, columns.record_count, columns.max_timestamp)
        crcs = [None] * len(places) if columns.records_crc is None else columns.records_crc[places].tolist()
        batches = []
        for place, end, record_count, max_timestamp, crc in zip(
            places.tolist(), *(number[places].tolist() for number in numbers), crcs, strict=True
        ):
            batch = self._batches[place]
            assert batch is not None
            self._batches[place] = None
            batch.being_closed = to_close
            batch.end = end - batch.buffer.start
            batch.record_count = record_count
            batch.max_timestamp = max_timestamp
            batch.records_crc = crc
            batch.filling = None
            batches.append(batch)
        return batches

    def release(self, places: Int64s) -> None:
        """Free `places` (int64[k]), whose batches were taken out, for new batches."""
        self.is_open[places] = self.checked_out[places] = False

    def settle(self, places: Int64s) -> list[ProducerBatch]:
        """Take out the batches at `places` (int64[k]) and free the places. Return the batches."""
        batches = self.take_out(places)
        self.release(places)
        return batches
