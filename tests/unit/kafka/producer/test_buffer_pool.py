import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import OUTSIDE, Buffer, BufferPool
from kafka_sink.kafka.producer.producer_batch import Filling, ProducerBatch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import TOPIC_ID

TOTAL = 8_192


def pool_of(total_bytes: int, buffer_bytes: int = 1_000) -> BufferPool:
    return BufferPool(total_bytes=total_bytes, buffer_bytes=buffer_bytes)


def allocate(pool: BufferPool, *sizes: int) -> list[Buffer]:
    """Buffers of these sizes, which there are."""
    found = [pool.try_allocate(size) for size in sizes]
    return [buffer for buffer in found if buffer is not None or pytest.fail("there is no memory")]


def give_back(pool: BufferPool, *buffers: Buffer) -> None:
    for buffer in buffers:
        pool.deallocate(buffer)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("overdraw"), st.sampled_from([256, 1_000, 9_000])),
            st.tuples(st.just("take"), st.sampled_from([1, 256, 1_000, 1_025, 4_096])),
            st.tuples(st.just("give"), st.integers(0, 50)),
            st.tuples(st.just("shrink"), st.just(0)),
        ),
        max_size=80,
    )
)
def test_no_byte_has_two_holders_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    pool = pool_of(TOTAL, 1_024)
    held: list[Buffer] = []
    for what, number in steps:
        if what == "take":
            buffer = pool.try_allocate(number)
            if buffer is not None:
                assert buffer.size >= number and len(buffer.view) == buffer.size
                held.append(buffer)
            elif number <= pool.buffer_bytes:
                assert pool.available_bytes < pool.buffer_bytes or any(b.size > pool.buffer_bytes for b in held)
        elif what == "overdraw":
            held.append(pool.overdraw(number))
            assert held[-1].size == len(held[-1].view) == number
        elif what == "give" and held:
            pool.deallocate(held.pop(number % len(held)))
        elif what == "shrink" and pool.buffer_bytes > 256:
            pool.shrink_buffers(pool.buffer_bytes // 2)
        holders = np.zeros(TOTAL, np.int64)
        for buffer in held:
            if buffer.start != OUTSIDE:
                holders[buffer.start : buffer.start + buffer.size] += 1
        assert holders.max() <= 1
        assert pool.available_bytes == TOTAL - sum(buffer.size for buffer in held)
    for buffer in held:
        pool.deallocate(buffer)
    assert pool.try_allocate(TOTAL) is not None  # whatever came before, it is one piece again


def test_what_came_back_last_is_taken_first() -> None:
    pool = pool_of(4_000)
    first, second = allocate(pool, 1_000, 1)
    give_back(pool, first, second)
    assert allocate(pool, 1_000, 1_000) == [second, first]


@pytest.mark.parametrize("buffers", [1, 32])
def test_exhausted_from_a_refusal_until_there_is_enough_for_more_than_one_batch(buffers: int) -> None:
    pool = pool_of(1_000 * buffers)
    held = allocate(pool, *[1_000] * buffers)
    assert not pool.exhausted
    assert pool.try_allocate(1) is None
    assert pool.exhausted
    for number, buffer in enumerate(held[:3], start=1):
        give_back(pool, buffer)
        assert pool.exhausted == (number == 1 and buffers > 1)


def test_an_overdraft_is_granted_and_paid_back_before_anything_is_handed_out() -> None:
    pool = pool_of(1_000, 500)
    first, _ = allocate(pool, 500, 500)
    over = pool.overdraw(700)
    assert (over.size, pool.exhausted) == (700, False)
    give_back(pool, first)
    assert pool.available_bytes == -200
    assert pool.try_allocate(1) is None
    assert pool.exhausted
    give_back(pool, over)
    assert pool.available_bytes == 500
    allocate(pool, 500)


def test_a_large_row_gets_the_place_of_the_last_one_of_its_size() -> None:
    pool = pool_of(100_000)
    (first,) = allocate(pool, 3_500)
    assert (first.start, first.size) == (0, 4_000)
    give_back(pool, first)
    assert allocate(pool, 3_001, 500)[0] is first
    give_back(pool, first)
    # When singles run short it is cut up.
    allocate(pool, *[1_000] * 99)
    assert pool.available_bytes == 0


@pytest.mark.parametrize(("given_back", "found"), [([0, 2], False), ([1, 2], True), ([3, 1, 2], True)])
def test_a_large_row_takes_neighbours(given_back: list[int], found: bool) -> None:
    pool = pool_of(4_000)
    buffers = allocate(pool, *[1_000] * 4)
    give_back(pool, *(buffers[number] for number in given_back))
    large = pool.try_allocate(1_001)
    assert (large is not None) == found
    assert pool.exhausted != found
    if large is not None:
        assert (large.start, large.size) == (1_000, 2_000)
        pool.deallocate(large)
        assert pool.available_bytes == 1_000 * len(given_back)
        allocate(pool, *[1_000] * len(given_back))


def test_memory_that_no_row_needed_is_never_touched() -> None:
    """A terabyte of it can be asked for where the system hands out pages when they are written to."""
    pool = pool_of(2**33, 2**20)
    assert allocate(pool, 10)[0].start == 0
    assert pool.available_bytes == 2**33 - 2**20


def test_more_than_there_is_in_all_is_never_found() -> None:
    pool = pool_of(1_024, 512)
    give_back(pool, *allocate(pool, 1_024))
    assert pool.try_allocate(1_025) is None
    # Nor does anybody hold what the system does not have.
    with pytest.raises(MemoryError):
        pool.overdraw(2**62)
    assert pool.available_bytes == 1_024


def test_memory_goes_back_when_nothing_of_it_is_out() -> None:
    pool = pool_of(1_000, 100)
    first, large = allocate(pool, 100, 300)
    memory = pool.memory
    give_back(pool, large)
    pool.give_back()
    assert pool.memory is memory
    give_back(pool, first)
    pool.give_back()
    assert pool.memory is not memory
    untouched = pool.memory
    pool.give_back()
    assert pool.memory is untouched
    out = allocate(pool, *[100] * 10)
    assert sorted(buffer.start for buffer in out) == list(range(0, 1_000, 100))
    assert all(np.shares_memory(np.frombuffer(buffer.view, np.uint8), untouched) for buffer in out)


def batch(pool: BufferPool, partition: int = 0, base_timestamp: int = 0) -> ProducerBatch:
    at = TopicPartition("t", partition)
    return ProducerBatch(at, TOPIC_ID, *allocate(pool, 1_000), Acknowledgements(), base_timestamp, created_ms=0)


def test_a_batch_is_checked_out_until_it_is_checked_in_or_closed() -> None:
    pool = pool_of(10_000)
    filling = Filling([TopicPartition("t", 0)], Acknowledgements(), pool.memory, sums_records=False)
    one = batch(pool)
    assert not one.checked_out
    filling.adopt([0], [one], [1_000])
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


def test_places_keep_what_they_have_when_destinations_are_added() -> None:
    pool, known = pool_of(10_000), [TopicPartition("t", 0)]
    filling = Filling(known, Acknowledgements(), pool.memory, sums_records=True)
    one = batch(pool, base_timestamp=5)
    filling.adopt([0], [one], [1_000])
    filling.open_batches.record_count[0] = 3
    known += [TopicPartition("t", partition) for partition in (1, 2, 3)]
    filling.grow()
    assert filling.is_open.tolist() == [True, False, False, False]
    assert filling.checked_out.tolist() == filling.has_queue.tolist() == [False] * len(filling.queues) == [False] * 4
    filling.adopt([3], [batch(pool, 3, base_timestamp=8)], [1_000])
    assert filling.open_batches.base_timestamp[[0, 3]].tolist() == [5, 8]
    one.settle()
    assert one.record_count == 3
