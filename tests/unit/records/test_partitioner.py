"""Explicit, keyed and sticky partitions: which comes first, and what sticky promises."""

from __future__ import annotations

import random
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.partitioner import RowPartitioner, StickyPartitioner


def sticky_partitioner(batch_size: int = 1000, seed: int = 7) -> StickyPartitioner:
    return StickyPartitioner(batch_size=batch_size, rng=random.Random(seed))


def columns_of(**columns: pa.Array) -> RecordColumns:
    return RecordColumns.from_arrow(pa.RecordBatch.from_pydict(columns), now_ms=0)


def by_key(key: bytes, partition_count: int) -> int:
    return (kafka_python_murmur2(key) & 0x7FFFFFFF) % partition_count


def stays(partitions: np.ndarray) -> list[tuple[int, int]]:
    """(partition, rows) of each run of equal partitions."""
    return [(partition, len(list(run))) for partition, run in groupby(partitions.tolist())]


# --- sticky -------------------------------------------------------------------------------------------------


def test_moves_every_batch_size_bytes_to_another_partition() -> None:
    sticky = sticky_partitioner(batch_size=1000)
    partitions = sticky.assign(np.full(1000, 100), partition_count=8, available=range(8))
    assert partitions.dtype == np.int32
    # 100 stays of 10 rows of 100 bytes; groupby would melt two stays into one if the next were not another.
    assert [rows for _, rows in stays(partitions)] == [10] * 100


def test_all_partitions_get_their_share() -> None:
    partitions = sticky_partitioner(batch_size=100).assign(np.full(16_000, 100), partition_count=8, available=range(8))
    counts = np.bincount(partitions, minlength=8)
    assert counts.min() > 1_800
    assert counts.max() < 2_200


SIZES = st.lists(st.integers(1, 3000), min_size=1, max_size=100)


@given(SIZES, st.integers(1, 2000), st.integers(1, 6))
def test_a_stay_ends_with_the_row_that_fills_it(sizes: list[int], batch_size: int, count: int) -> None:
    partitions = sticky_partitioner(batch_size).assign(np.array(sizes), partition_count=count, available=range(count))
    if count == 1:
        assert set(partitions.tolist()) == {0}
        return
    starts = np.cumsum(sizes) - sizes
    moved = (np.diff(partitions) != 0).tolist()
    assert moved == (np.diff(starts // batch_size) > 0).tolist()


@given(SIZES, st.integers(1, 99), st.integers(1, 2000))
def test_state_carries_over_from_arrow_batch_to_arrow_batch(sizes: list[int], cut: int, batch_size: int) -> None:
    whole = sticky_partitioner(batch_size).assign(np.array(sizes), partition_count=5, available=range(5))
    parts = sticky_partitioner(batch_size)
    pieces = [
        parts.assign(np.array(piece, np.int64), partition_count=5, available=range(5))
        for piece in (sizes[:cut], sizes[cut:])
    ]
    assert np.concatenate(pieces).tolist() == whole.tolist()


@given(st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), SIZES), min_size=1, max_size=5))
def test_only_partitions_with_a_leader_also_after_leaders_changed(
    calls: list[tuple[set[int], list[int]]],
) -> None:
    sticky = sticky_partitioner(batch_size=500)
    for available, sizes in calls:
        partitions = sticky.assign(np.array(sizes), partition_count=10, available=sorted(available))
        assert set(partitions.tolist()) <= available


def test_stays_where_it_is_when_another_partition_loses_its_leader() -> None:
    sticky = sticky_partitioner(batch_size=10_000)
    (first,) = sticky.assign(np.array([1]), partition_count=4, available=range(4))
    others = [p for p in range(4) if p != first]
    for gone in others:
        available = [p for p in range(4) if p != gone]
        assert sticky.assign(np.array([1]), partition_count=4, available=available).tolist() == [first]


def test_without_any_leader_all_partitions_are_as_good() -> None:
    partitions = sticky_partitioner(batch_size=1).assign(np.full(200, 1), partition_count=4, available=[])
    assert set(partitions.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("batch_size", [0, 1])
def test_batch_size_zero_is_a_batch_a_row(batch_size: int) -> None:
    partitions = sticky_partitioner(batch_size).assign(np.full(50, 80), partition_count=3, available=range(3))
    assert [rows for _, rows in stays(partitions)] == [1] * 50


def test_start_is_random() -> None:
    starts = {
        int(sticky_partitioner(seed=seed).assign(np.array([1]), partition_count=4, available=range(4))[0])
        for seed in range(40)
    }
    assert starts == {0, 1, 2, 3}


# --- rows ---------------------------------------------------------------------------------------------------


def test_explicit_before_key_before_sticky() -> None:
    columns = columns_of(
        key=pa.array([b"a", b"b", None, None, b""], pa.binary()),
        value=pa.array([b"v"] * 5, pa.binary()),
        partition=pa.array([3, None, 4, None, None], pa.int32()),
    )
    partitions = RowPartitioner(columns).assign_partitions(
        None, topic="t", partition_count=6, available=[5], sticky=sticky_partitioner()
    )
    assert partitions.dtype == np.int32
    # An empty key is a key.
    assert partitions.tolist() == [3, by_key(b"b", 6), 4, 5, by_key(b"", 6)]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=60), st.integers(1, 12), st.randoms())
def test_rows_of_one_topic_in_the_order_they_were_given(
    keys: list[bytes | None], count: int, shuffler: random.Random
) -> None:
    columns = columns_of(key=pa.array(keys, pa.binary()), value=pa.array([b"v" * 100] * len(keys), pa.binary()))
    rows = np.array(shuffler.sample(range(len(keys)), len(keys) // 2), np.int64)
    partitions = RowPartitioner(columns).assign_partitions(
        rows, topic="t", partition_count=count, available=[0], sticky=sticky_partitioner()
    )
    chosen = [keys[row] for row in rows]
    assert partitions.tolist() == [0 if key is None else by_key(key, count) for key in chosen]


def test_keys_go_to_their_partition_whether_it_has_a_leader_or_not() -> None:
    keys = [b"%d" % i for i in range(100)]
    columns = columns_of(key=pa.array(keys, pa.binary()), value=pa.nulls(100, pa.binary()))
    partitions = RowPartitioner(columns).assign_partitions(
        None, topic="t", partition_count=7, available=[], sticky=sticky_partitioner()
    )
    assert partitions.tolist() == [by_key(key, 7) for key in keys]


def test_sticky_counts_key_less_rows_by_their_own_size() -> None:
    # Without a key: big, small, big, small ...; the big ones alone fill a stay of 1000 bytes.
    sizes = [1000, 10] * 20
    columns = columns_of(value=pa.array([b"v" * size for size in sizes], pa.binary()))
    sticky = sticky_partitioner(batch_size=1000)
    big_rows, small_rows = np.arange(0, 40, 2), np.arange(1, 40, 2)
    partitioner = RowPartitioner(columns)

    def partitions_of(rows: np.ndarray) -> np.ndarray:
        return partitioner.assign_partitions(rows, topic="t", partition_count=4, available=range(4), sticky=sticky)

    assert len(stays(partitions_of(big_rows))) == 20
    assert len(stays(partitions_of(small_rows))) <= 2


@pytest.mark.parametrize("wrong", [-1, -2, 6, 2**31 - 1])
def test_explicit_partition_out_of_range(wrong: int) -> None:
    columns = columns_of(value=pa.array([b"v"] * 3, pa.binary()), partition=pa.array([None, 5, wrong], pa.int32()))
    sticky, untouched = sticky_partitioner(batch_size=1), sticky_partitioner(batch_size=1)
    with pytest.raises(PartitionOutOfRange) as raised:
        RowPartitioner(columns).assign_partitions(
            None, topic="orders", partition_count=6, available=range(6), sticky=sticky
        )
    assert (raised.value.topic, raised.value.partition, raised.value.partition_count) == ("orders", wrong, 6)
    following = [s.assign(np.full(20, 9), partition_count=6, available=range(6)).tolist() for s in (sticky, untouched)]
    assert following[0] == following[1]
