from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.producer.buffer_pool import OUTSIDE, Buffer, BufferPool

TOTAL = 8_192


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
    pool = BufferPool(total_bytes=TOTAL, buffer_bytes=1_024)
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


def test_a_buffer_is_its_part_of_the_memory() -> None:
    pool = BufferPool(total_bytes=4_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(4)]
    for number, buffer in enumerate(buffers):
        assert buffer is not None
        buffer.view[:] = bytes([number]) * 1_000
    for number, buffer in enumerate(buffers):
        assert buffer is not None
        assert set(pool.memory[buffer.start : buffer.start + buffer.size].tolist()) == {number}


def test_what_came_back_last_is_taken_first() -> None:
    pool = BufferPool(total_bytes=4_000, buffer_bytes=1_000)
    first, second = pool.try_allocate(1_000), pool.try_allocate(1)
    assert first is not None and second is not None
    pool.deallocate(first)
    pool.deallocate(second)
    assert pool.try_allocate(1_000) is second
    assert pool.try_allocate(1_000) is first


def test_exhausted_from_a_refusal_until_memory_comes_back() -> None:
    pool = BufferPool(total_bytes=1_000, buffer_bytes=1_000)
    buffer = pool.try_allocate(1_000)
    assert buffer is not None and not pool.exhausted
    assert pool.try_allocate(1) is None
    assert pool.exhausted
    pool.deallocate(buffer)
    assert not pool.exhausted


def test_exhausted_until_there_is_enough_for_more_than_one_batch() -> None:
    pool = BufferPool(total_bytes=32_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(32)]
    assert pool.try_allocate(1) is None
    for buffer, is_exhausted in zip(buffers[:3], [True, False, False], strict=True):
        assert buffer is not None
        pool.deallocate(buffer)
        assert pool.exhausted == is_exhausted


def test_an_overdraft_is_granted_and_paid_back_before_anything_is_handed_out() -> None:
    pool = BufferPool(total_bytes=1_000, buffer_bytes=500)
    held = [pool.try_allocate(500), pool.try_allocate(500)]
    over = pool.overdraw(700)
    assert over.size == 700
    assert not pool.exhausted
    pool.deallocate(held[0])
    assert pool.available_bytes == -200
    assert pool.try_allocate(1) is None
    assert pool.exhausted
    pool.deallocate(over)
    assert pool.available_bytes == 500
    assert pool.try_allocate(500) is not None


def test_a_large_row_gets_the_place_of_the_last_one_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BufferPool(total_bytes=100_000, buffer_bytes=1_000)
    first = pool.try_allocate(3_500)
    assert first is not None and (first.start, first.size) == (0, 4_000)
    pool.deallocate(first)
    assert pool.try_allocate(3_001) is first
    assert pool.try_allocate(500) is not None
    pool.deallocate(first)
    # When singles run short it is cut up.
    assert all(pool.try_allocate(1_000) is not None for _ in range(99))
    assert pool.available_bytes == 0


@pytest.mark.parametrize(("given_back", "found"), [([0, 2], False), ([1, 2], True), ([3, 1, 2], True)])
def test_a_large_row_takes_neighbours(given_back: list[int], found: bool) -> None:
    pool = BufferPool(total_bytes=4_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(4)]
    for number in given_back:
        buffer = buffers[number]
        assert buffer is not None
        pool.deallocate(buffer)
    large = pool.try_allocate(1_001)
    assert (large is not None) == found
    assert pool.exhausted != found
    if large is not None:
        assert (large.start, large.size) == (1_000, 2_000)
        pool.deallocate(large)
        assert pool.available_bytes == 1_000 * len(given_back)
        assert all(pool.try_allocate(1_000) is not None for _ in given_back)


@pytest.mark.parametrize("given_back", list(itertools.permutations(range(4))))
def test_what_a_large_row_has_no_small_one_gets(given_back: tuple[int, ...]) -> None:
    pool = BufferPool(total_bytes=4_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(4)]
    for number in given_back:
        buffer = buffers[number]
        assert buffer is not None
        pool.deallocate(buffer)
    held = [pool.try_allocate(size) for size in (2_000, 1_000, 1_000)]
    assert pool.try_allocate(1) is None
    places = sorted((buffer.start, buffer.size) for buffer in held if buffer is not None)
    assert [start for start, _ in places] == [0, *itertools.accumulate(size for _, size in places)][:-1]
    assert sum(size for _, size in places) == 4_000


def test_buffers_of_the_old_size_are_cut_up_as_they_return() -> None:
    pool = BufferPool(total_bytes=2_000, buffer_bytes=1_000)
    held, idle = pool.try_allocate(1_000), pool.try_allocate(1_000)
    assert held is not None and idle is not None
    pool.deallocate(idle)
    pool.shrink_buffers(500)
    assert pool.buffer_bytes == 500
    small = [pool.try_allocate(1) for _ in range(2)]
    assert pool.try_allocate(1) is None
    pool.deallocate(held)
    small += [pool.try_allocate(500) for _ in range(2)]
    assert sorted((buffer.start, buffer.size) for buffer in small if buffer) == [(n, 500) for n in range(0, 2_000, 500)]


def test_memory_that_no_row_needed_is_never_touched() -> None:
    """A terabyte of it can be asked for where the system hands out pages when they are written to."""
    pool = BufferPool(total_bytes=2**33, buffer_bytes=2**20)
    buffer = pool.try_allocate(10)
    assert buffer is not None and buffer.start == 0
    assert pool.available_bytes == 2**33 - 2**20


def test_more_than_there_is_in_all_is_never_found() -> None:
    pool = BufferPool(total_bytes=1_024, buffer_bytes=512)
    whole = pool.try_allocate(1_024)
    assert whole is not None
    pool.deallocate(whole)
    assert pool.try_allocate(1_025) is None
    assert pool.available_bytes == 1_024


def test_memory_that_the_system_does_not_have_is_held_by_nobody() -> None:
    pool = BufferPool(total_bytes=1_024, buffer_bytes=512)
    with pytest.raises(MemoryError):
        pool.overdraw(2**62)
    assert pool.available_bytes == 1_024


def test_memory_goes_back_when_nothing_of_it_is_out() -> None:
    pool = BufferPool(total_bytes=1_000, buffer_bytes=100)
    first, large = pool.try_allocate(100), pool.try_allocate(300)
    assert first is not None
    assert large is not None
    memory = pool.memory
    pool.deallocate(large)
    pool.give_back()
    assert pool.memory is memory
    pool.deallocate(first)
    pool.give_back()
    assert pool.memory is not memory
    untouched = pool.memory
    pool.give_back()
    assert pool.memory is untouched
    out = [pool.try_allocate(100) for _ in range(10)]
    assert sorted(buffer.start for buffer in out if buffer is not None) == list(range(0, 1_000, 100))
    views = [np.frombuffer(buffer.view, np.uint8) for buffer in out if buffer is not None]
    assert all(np.shares_memory(view, untouched) for view in views)
