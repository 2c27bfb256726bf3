from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.producer.buffer_pool import BufferPool


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.sampled_from([256, 1_000, 4_096])),
            st.tuples(st.just("overdraw"), st.sampled_from([256, 1_000, 9_000])),
            st.tuples(st.just("give"), st.integers(0, 50)),
            st.tuples(st.just("shrink"), st.sampled_from([512, 256])),
        ),
        max_size=80,
    )
)
def test_memory_held_and_kept_exceeds_the_total_by_an_overdraft_alone(steps: list[tuple[str, int]]) -> None:
    pool = BufferPool(total_bytes=8_192, buffer_bytes=1_000)
    held = []
    for what, number in steps:
        if what == "take":
            free = 8_192 - sum(buffer.size for buffer in held)
            buffer = pool.try_allocate(number)
            assert (buffer is not None) == (number <= free)
            if buffer is not None:
                assert buffer.size == number
                held.append(buffer)
        elif what == "overdraw":
            held.append(pool.overdraw(number))
            assert held[-1].size == number
        elif what == "give" and held:
            pool.deallocate(held.pop(number % len(held)))
        elif what == "shrink":
            pool.shrink_buffers(number)
        kept = sum(buffer.size for buffer in pool._free)
        assert kept == 0 or sum(buffer.size for buffer in held) + kept <= 8_192
        assert pool.available_bytes == 8_192 - sum(buffer.size for buffer in held)


def test_two_holders_never_share_a_buffer() -> None:
    pool = BufferPool(total_bytes=4_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(4)]
    pool.deallocate(buffers[0])
    again = pool.try_allocate(1_000)
    assert again is buffers[0]
    assert len({id(buffer) for buffer in [again, *buffers[1:]]}) == 4


def test_exhausted_from_a_refusal_until_memory_comes_back() -> None:
    pool = BufferPool(total_bytes=1_000, buffer_bytes=1_000)
    buffer = pool.try_allocate(1_000)
    assert not pool.exhausted
    assert pool.try_allocate(1) is None
    assert pool.exhausted
    pool.deallocate(buffer)
    assert not pool.exhausted


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


def test_kept_buffers_make_room_for_one_of_another_size() -> None:
    pool = BufferPool(total_bytes=8_000, buffer_bytes=1_000)
    buffers = [pool.try_allocate(1_000) for _ in range(8)]
    alive = [weakref.ref(buffer) for buffer in buffers]
    while buffers:
        pool.deallocate(buffers.pop())
    large = pool.try_allocate(5_500)
    assert large is not None
    assert sum(reference() is not None for reference in alive) <= 2
