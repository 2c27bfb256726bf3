from __future__ import annotations

import numpy as np
import pytest

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.filling import Filling
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.record_batch import HEADER_BYTES
from producer_core import TOPIC_ID

POOL_BYTES, BUFFER_BYTES = 10_000, 1_000


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(total_bytes=POOL_BYTES, buffer_bytes=BUFFER_BYTES)


def destinations(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in range(count)]


def batch(pool: BufferPool, partition: int, base_timestamp: int = 0) -> ProducerBatch:
    buffer = pool.try_allocate(BUFFER_BYTES)
    assert buffer is not None
    topic_partition = TopicPartition("t", partition)
    return ProducerBatch(topic_partition, TOPIC_ID, buffer, Acknowledgements(), base_timestamp, created_ms=0)


def test_a_new_batch_begins_behind_its_header_and_ends_with_its_buffer(pool: BufferPool) -> None:
    filling = Filling(destinations(3), Acknowledgements(), pool.memory, sums_records=True)
    batches = [batch(pool, 2, base_timestamp=70), batch(pool, 0, base_timestamp=50)]
    filling.adopt([2, 0], batches, [BUFFER_BYTES, 800])
    columns = filling.open_batches
    assert filling.is_open.tolist() == [True, False, True]
    assert columns.end[[2, 0]].tolist() == [HEADER_BYTES, BUFFER_BYTES + HEADER_BYTES]
    assert columns.limit[[2, 0]].tolist() == [BUFFER_BYTES, BUFFER_BYTES + 800]
    assert columns.base_timestamp[[2, 0]].tolist() == columns.max_timestamp[[2, 0]].tolist() == [70, 50]
    assert columns.record_count[[2, 0]].tolist() == [0, 0]


def test_a_settled_batch_has_its_numbers_and_its_place_is_empty(pool: BufferPool) -> None:
    filling = Filling(destinations(2), Acknowledgements(), pool.memory, sums_records=True)
    first, second = batch(pool, 0), batch(pool, 1)
    filling.adopt([0, 1], [first, second], [BUFFER_BYTES] * 2)
    filling.open_batches.end[1] += 200
    filling.open_batches.record_count[1] = 7
    filling.open_batches.max_timestamp[1] = 99
    assert filling.open_batches.records_crc is not None
    filling.open_batches.records_crc[1] = 2**32 - 1
    assert (first.size_bytes, second.size_bytes) == (HEADER_BYTES, HEADER_BYTES + 200)
    second.settle()
    assert (second.end, second.record_count, second.max_timestamp) == (HEADER_BYTES + 200, 7, 99)
    assert second.records_crc == 2**32 - 1
    assert filling.is_open.tolist() == [True, False]
    filling.open_batches.end[1] = 5  # another batch's business by now
    second.settle()
    assert second.end == HEADER_BYTES + 200
    third = batch(pool, 1)
    filling.adopt([1], [third], [BUFFER_BYTES])
    assert filling.settle(np.array([0, 1])) == [first, third]
    assert (third.record_count, third.records_crc) == (0, 0)


def test_checked_out_until_checked_in_or_closed(pool: BufferPool) -> None:
    filling = Filling(destinations(1), Acknowledgements(), pool.memory, sums_records=False)
    one = batch(pool, 0)
    assert not one.checked_out
    filling.adopt([0], [one], [BUFFER_BYTES])
    assert not one.checked_out
    filling.checked_out[0] = True
    assert one.checked_out
    (taken,) = filling.take_out(np.array([0]), to_close=True)
    assert filling.open_batches.records_crc is taken.records_crc is None
    assert taken is one and one.checked_out  # its writer compresses it: the place says nothing of it any more
    filling.release(np.array([0]))
    assert one.checked_out and not filling.checked_out[0]
    one.being_closed = False
    assert not one.checked_out


def test_places_keep_what_they_have_when_destinations_are_added(pool: BufferPool) -> None:
    known = destinations(1)
    filling = Filling(known, Acknowledgements(), pool.memory, sums_records=True)
    one = batch(pool, 0, base_timestamp=5)
    filling.adopt([0], [one], [BUFFER_BYTES])
    filling.open_batches.record_count[0] = 3
    known += destinations(4)[1:]
    filling.grow()
    assert filling.is_open.tolist() == [True, False, False, False]
    assert filling.checked_out.tolist() == filling.has_queue.tolist() == [False] * len(filling.queues) == [False] * 4
    filling.adopt([3], [batch(pool, 3, base_timestamp=8)], [BUFFER_BYTES])
    assert filling.open_batches.base_timestamp[[0, 3]].tolist() == [5, 8]
    one.settle()
    assert one.record_count == 3
