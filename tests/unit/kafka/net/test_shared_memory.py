from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from kafka_sink.kafka.net.shared_memory import (
    FLOOR_BYTES,
    LEDGER_PLACES,
    Ledger,
    RelayedMemory,
    SharedMemory,
    is_possible,
)

pytestmark = pytest.mark.skipif(not is_possible(), reason="memfd is Linux's")

MIB = 1024 * 1024


def resident_bytes(memory: SharedMemory) -> int:
    return os.fstat(memory.fd).st_blocks * 512


def test_another_process_sees_what_is_written_and_knows_where() -> None:
    memory = SharedMemory(4 * MIB)
    view = memory.array.data[5_000:5_100]
    view[:] = bytes(range(100))
    offset = memory.offset_of(view)
    assert offset == 5_000
    theirs = mmap.mmap(memory.fd, 4 * MIB, prot=mmap.PROT_READ)
    assert theirs[offset : offset + 100] == bytes(range(100))


def test_a_view_of_other_memory_has_no_place() -> None:
    memory, other = SharedMemory(MIB), SharedMemory(MIB)
    assert memory.offset_of(other.array.data[:10]) is None
    assert memory.offset_of(memoryview(bytearray(10))) is None


def test_memory_costs_only_what_was_touched_and_comes_back() -> None:
    memory = SharedMemory(8 * MIB)
    assert resident_bytes(memory) == 0
    memory.array[: 2 * MIB] = 1
    assert resident_bytes(memory) == 2 * MIB
    memory.release(MIB, MIB)
    assert resident_bytes(memory) == MIB
    assert memory.array[:MIB].all()
    memory.release(0, 8 * MIB)
    assert resident_bytes(memory) == 0
    assert not memory.array.any()


def test_only_whole_pages_of_a_part_come_back() -> None:
    memory = SharedMemory(MIB)
    memory.array[:] = 1
    memory.release(100, mmap.PAGESIZE)
    assert memory.array.all()
    memory.release(100, 2 * mmap.PAGESIZE)
    assert resident_bytes(memory) == MIB - mmap.PAGESIZE
    assert memory.array[: mmap.PAGESIZE].all() and memory.array[2 * mmap.PAGESIZE :].all()


def test_nothing_has_a_name() -> None:
    before = set(os.listdir("/dev/shm"))
    memory, ledger = SharedMemory(MIB), Ledger()
    assert set(os.listdir("/dev/shm")) == before
    memory.close()
    ledger.close()


def test_closing_twice_closes_one_file() -> None:
    memory = SharedMemory(MIB)
    memory.close()
    with open(os.devnull) as other:  # may have the same number
        memory.close()
        os.fstat(other.fileno())


# --- shares of an executor's memory -----------------------------------------------------------------------------------


def workers(number: int, size_bytes: int = 64 * MIB) -> list[RelayedMemory]:
    ledger = Ledger()
    memories = [RelayedMemory(size_bytes) for _ in range(number)]
    for place, memory in enumerate(memories):
        memory.join(Ledger(os.dup(ledger.fd)), place)
    return memories


def grow(memory: RelayedMemory, step: int = MIB) -> int:
    """Take as much as is allowed. Return how much that was."""
    taken = 0
    while memory.allows(step):
        memory.took(step)
        taken += step
    return taken


def test_a_worker_alone_may_have_everything() -> None:
    (memory,) = workers(1)
    assert grow(memory) == 64 * MIB


def test_workers_that_grow_together_get_equal_parts() -> None:
    memories = workers(8)
    taken = [0] * 8
    while grown := [i for i, memory in enumerate(memories) if memory.allows(MIB)]:
        for i in grown:
            if memories[i].allows(MIB):
                memories[i].took(MIB)
                taken[i] += MIB
    assert taken == [8 * MIB] * 8


def test_all_together_stay_in_bounds_in_any_order() -> None:
    for number in (2, 5, 16, 32):
        memories = workers(number)
        total = sum(grow(memory) for memory in memories)
        assert total <= 64 * MIB + number * FLOOR_BYTES


def test_a_latecomer_gets_the_floor_until_the_others_give_back() -> None:
    first, second = workers(2)
    grow(first)
    assert grow(second) == FLOOR_BYTES
    assert first.exceeds_part and not second.exceeds_part
    first.fresh()
    assert not first.exceeds_part
    assert grow(second) > 0


def test_workers_have_equal_parts_in_the_end_however_they_begin() -> None:
    first, second = workers(2)
    grow(first)
    grow(second)
    assert first.part_bytes == second.part_bytes == 32 * MIB
    while first.exceeds_part:
        first.release(0, MIB)
        grow(second)
    assert not second.exceeds_part
    assert not first.allows(MIB) and not second.allows(MIB)


def test_a_worker_that_moves_to_another_ledger_is_counted_there() -> None:
    first, second = workers(2)
    grow(first)
    another = Ledger()
    first.join(Ledger(os.dup(another.fd)), 7)
    second.join(Ledger(os.dup(another.fd)), 8)
    assert another.others(0) == (64 * MIB, 1)
    assert grow(second) == FLOOR_BYTES


def test_a_worker_that_its_relay_has_dropped_goes_on_alone() -> None:
    """A relay whose login fails drops its workers, who still have their batches to end."""
    ledger = Ledger()
    memory = RelayedMemory(64 * MIB)
    memory.join(Ledger(os.dup(ledger.fd)), 3)
    memory.took(2 * MIB)
    ledger.clear(3)
    assert memory.part_bytes == 64 * MIB
    assert not memory.exceeds_part
    assert memory.allows(MIB)


def test_a_place_that_is_cleared_counts_nothing() -> None:
    ledger = Ledger()
    ledger.note(3, 100)
    ledger.note(4, 10)
    ledger.note(5, 1)
    ledger.clear(3)
    assert ledger.others(5) == (10, 1)
    assert ledger.free_place({0, 1, 3}) == 2
    assert ledger.free_place(set(range(LEDGER_PLACES))) is None


def test_tainted_memory_is_not_used_again() -> None:
    memory = RelayedMemory(4 * MIB)
    memory.took(MIB)
    before, file = memory.shared.array, memory.shared
    before[:10] = 7
    memory.is_tainted = True
    after = memory.fresh()
    assert not np.shares_memory(before, after)
    assert (before[:10] == 7).all()  # what a stopped relay may still send
    assert memory.shared is not file and not memory.is_tainted


def test_memory_that_is_not_tainted_is_used_again() -> None:
    memory = RelayedMemory(4 * MIB)
    before = memory.fresh()
    memory.took(MIB)
    assert memory.fresh() is before
