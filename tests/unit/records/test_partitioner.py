"""Explicit, keyed and spread rows: which comes first, what spreaders promise; hashes of keys against others'."""

import hashlib
import math
import random
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL
from kafka_sink.records.key_hashes import crc32, fnv1a, murmur2, murmur3
from kafka_sink.records.partitioner import (
    PARTITIONERS,
    Int32s,
    Int64s,
    RoundRobinPartitioner,
    RowPartitioner,
    Spreader,
    StickyPartitioner,
)
from record_cases import scalar_fnv1a

SIZES = st.lists(st.integers(1, 3000), min_size=1, max_size=100)
FNV_LEAST = b"hp4gi_"
# Output of Murmur2Digests.java, beside it.
JAVA_DIGESTS = Path(__file__).with_name("murmur2_digests.csv")


def sticky_partitioner(batch_size: int = 1000, seed: int = 7) -> StickyPartitioner:
    return StickyPartitioner(batch_size=batch_size, rng=random.Random(seed))


def columns_of(**columns: pa.Array) -> RecordColumns:
    return RecordColumns.from_arrow(pa.RecordBatch.from_pydict(columns), now_ms=0)


def assign(
    columns: RecordColumns, *, partition_count: int, partitioner: str = "murmur2", rows: Int64s | None = None,
    key_partition_count: int | None = None, available: list[int] | None = None, spreader: Spreader | None = None,
) -> Int32s:  # fmt: skip
    return RowPartitioner(columns, PARTITIONERS[partitioner]).assign_partitions(
        rows, topic="orders", partition_count=partition_count, spreader=spreader or sticky_partitioner(),
        key_partition_count=partition_count if key_partition_count is None else key_partition_count,
        available=list(range(partition_count)) if available is None else available,
    )  # fmt: skip


def test_moves_every_batch_size_bytes_to_another_partition() -> None:
    partitions = sticky_partitioner(batch_size=1000).assign(np.full(1000, 100), partition_count=8, available=range(8))
    assert partitions.dtype == np.int32
    # 100 stays of 10 rows of 100 bytes; groupby would melt two stays into one if the next were not another.
    assert [len(list(run)) for _, run in groupby(partitions.tolist())] == [10] * 100
    # Rows without a key have their own sizes: the big ones alone fill a stay.
    columns = columns_of(value=pa.array([b"v" * size for size in [1000, 10] * 20], pa.binary()))
    sticky = sticky_partitioner(batch_size=1000)
    for rows, stays in ((np.arange(0, 40, 2), {20}), (np.arange(1, 40, 2), {1, 2})):
        partitions = assign(columns, rows=rows, partition_count=4, spreader=sticky)
        assert len(list(groupby(partitions.tolist()))) in stays


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
    given: Any = {"partition_count": 5, "available": range(5)}
    pieces = [parts.assign(np.array(piece, np.int64), **given) for piece in (sizes[:cut], sizes[cut:])]
    assert np.concatenate(pieces).tolist() == whole.tolist()


@given(st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), SIZES), min_size=1, max_size=5))
def test_only_partitions_with_a_leader_also_after_leaders_changed(calls: list[tuple[set[int], list[int]]]) -> None:
    sticky = sticky_partitioner(batch_size=500)
    for available, sizes in calls:
        partitions = sticky.assign(np.array(sizes), partition_count=10, available=sorted(available))
        assert set(partitions.tolist()) <= available


def test_stays_where_it_is_when_others_lose_their_leader_or_all_have_none() -> None:
    sticky = sticky_partitioner(batch_size=10_000)
    (first,) = sticky.assign(np.array([1]), partition_count=4, available=range(4))
    others = [p for p in range(4) if p != first]
    for gone in others:
        available = [p for p in range(4) if p != gone]
        assert sticky.assign(np.array([1]), partition_count=4, available=available).tolist() == [first]
    partitions = sticky_partitioner(batch_size=1).assign(np.full(200, 1), partition_count=4, available=[])
    assert set(partitions.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", [StickyPartitioner, RoundRobinPartitioner])
def test_the_start_is_random(kind: Any) -> None:
    given = {"batch_size": 1000} if kind is StickyPartitioner else {}
    spreaders = [kind(rng=random.Random(seed), **given) for seed in range(400)]
    starts = [int(each.assign(np.ones(1, np.int64), partition_count=4, available=range(4))[0]) for each in spreaders]
    assert min(np.bincount(starts, minlength=4)) > 60


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(1, 7), st.integers(0, 99))
def test_takes_turns_over_arrow_batches(row_counts: list[int], partition_count: int, seed: int) -> None:
    spreader = RoundRobinPartitioner(rng=random.Random(seed))
    given: Any = {"partition_count": partition_count, "available": range(partition_count)}
    turns = np.concatenate([spreader.assign(np.ones(count, np.int64), **given) for count in row_counts])
    assert turns.dtype == np.int32
    assert ((np.diff(turns) - 1) % partition_count == 0).all()
    # Over the partitions with a leader, if there is one.
    turns = spreader.assign(np.ones(9, np.int64), partition_count=6, available=[1, 4, 5])
    assert np.bincount(turns, minlength=6).tolist() == [0, 3, 0, 0, 3, 3]
    assert set(spreader.assign(np.ones(9, np.int64), partition_count=6, available=[]).tolist()) == set(range(6))


def sarama(key: bytes, partition_count: int) -> int:
    """hashPartitioner.Partition: in Go, as in C, a remainder has the sign of the dividend; it is then dropped."""
    signed = scalar_fnv1a(key)
    signed -= (signed >> 31) << 32
    return abs(int(math.fmod(signed, partition_count)))


BY_KEY = {
    "murmur2": lambda key, count: (kafka_python_murmur2(key) & 0x7FFFFFFF) % count,
    "murmur3": lambda key, count: (mmh3.hash(key) & 0x7FFFFFFF) % count,
    "consistent": lambda key, count: zlib.crc32(key) % count,
    "fnv1a": sarama,
}
# FNV-1a of FNV_LEAST is 0x80000000, whose sign 32-bit arithmetic cannot drop; the empty key's is negative, too.
KEYS = st.lists(st.one_of(st.sampled_from([FNV_LEAST, b""]), st.binary(max_size=20)), max_size=30)


@pytest.mark.parametrize("partitioner", list(BY_KEY))
@given(keys=KEYS, count=st.integers(1, 50))
def test_a_key_goes_to_the_partition_of_its_hash(partitioner: str, keys: list[bytes], count: int) -> None:
    columns = columns_of(key=pa.array(keys, pa.binary()), value=pa.nulls(len(keys), pa.binary()))
    partitions = assign(columns, partition_count=count, partitioner=partitioner, available=[])
    assert partitions.dtype == np.int32
    assert partitions.tolist() == [BY_KEY[partitioner](key, count) for key in keys]


@pytest.mark.parametrize("partitioner", list(BY_KEY))
def test_keys_keep_their_partition_when_the_topic_grows(partitioner: str) -> None:
    keys = [b"%d" % i for i in range(200)]
    columns = columns_of(key=pa.array(keys, pa.binary()), value=pa.nulls(200, pa.binary()))
    grown = assign(columns, partition_count=9, key_partition_count=4, partitioner=partitioner)
    assert grown.tolist() == assign(columns, partition_count=4, partitioner=partitioner).tolist()


@pytest.mark.parametrize(("partitioner", "goes_to"), [
    ("murmur2", 41), ("murmur3", 41), ("fnv1a", 41), ("consistent", 0),
])  # fmt: skip
@pytest.mark.parametrize("key", [None, pa.nulls(3), pa.array([None, b"k", None], pa.binary())])
def test_rows_without_a_key_are_spread_or_go_where_the_empty_key_goes(
    partitioner: str, goes_to: int, key: pa.Array | None
) -> None:
    columns = columns_of(value=pa.array([b"v"] * 3), **({} if key is None else {"key": key}))
    partitions = assign(columns, partition_count=50, partitioner=partitioner, available=[41])
    assert partitions[[0, 2]].tolist() == [goes_to] * 2
    mixed = columns_of(key=pa.array([b"a", None, b"b", b""]), value=pa.array([b"v"] * 4))
    expected = [BY_KEY["consistent"](key, 50) for key in (b"a", b"", b"b", b"")]
    assert assign(mixed, partition_count=50, partitioner="consistent").tolist() == expected


def test_the_least_fnv1a_hash_and_bytes_under_a_null_are_no_keys_of_their_own() -> None:
    offsets, data = pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab")
    first_is_null = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, data])
    columns = columns_of(value=pa.array([b"v"] * 2), key=first_is_null)
    assert assign(columns, partition_count=50, partitioner="consistent").tolist() == [0, zlib.crc32(b"b") % 50]
    assert scalar_fnv1a(FNV_LEAST) == 1 << 31


@pytest.mark.parametrize(("partitioner", "kind"), [
    ("roundrobin", RoundRobinPartitioner), ("sticky", StickyPartitioner),
])  # fmt: skip
def test_keys_are_ignored(partitioner: str, kind: type) -> None:
    rule = PARTITIONERS[partitioner]
    first, second = (rule.spreader(batch_size=1000, rng=random.Random(5)) for _ in range(2))
    assert isinstance(first, kind)
    keyed = columns_of(key=pa.array([b"k", b"k", None] * 40), value=pa.array([b"v" * 100] * 120))
    partitions = assign(keyed, partition_count=6, partitioner=partitioner, spreader=first)
    sizes = KERNEL.payload_sizes(keyed)
    assert partitions.tolist() == second.assign(sizes, partition_count=6, available=range(6)).tolist()
    assert len(set(partitions.tolist())) > 3


@pytest.mark.parametrize("partitioner", list(PARTITIONERS))
def test_an_explicit_partition_comes_before_every_partitioner(partitioner: str) -> None:
    partition = pa.array([3, 4, 1, 0], pa.int32())
    columns = columns_of(key=pa.array([b"a", None, b"a", None]), value=pa.array([b"v"] * 4), partition=partition)
    # Partition 4 is new: beyond what keys are spread over.
    assigned = assign(columns, partition_count=5, key_partition_count=4, partitioner=partitioner)
    assert assigned.tolist() == partition.to_pylist()


@pytest.mark.parametrize("wrong", [-1, -2, 6, 2**31 - 1])
def test_explicit_partition_out_of_range(wrong: int) -> None:
    columns = columns_of(value=pa.array([b"v"] * 3, pa.binary()), partition=pa.array([None, 5, wrong], pa.int32()))
    sticky, untouched = sticky_partitioner(batch_size=1), sticky_partitioner(batch_size=1)
    with pytest.raises(PartitionOutOfRange) as raised:
        assign(columns, partition_count=6, spreader=sticky)
    assert (raised.value.topic, raised.value.partition, raised.value.partition_count) == ("orders", wrong, 6)
    following = [s.assign(np.full(20, 9), partition_count=6, available=range(6)).tolist() for s in (sticky, untouched)]
    assert following[0] == following[1]


def keys_of_murmur2_digests() -> list[bytes]:
    """The 101,000 keys of Murmur2Digests.java: key i is the next i % 101 bytes of SHA-256(0), SHA-256(1) and so on."""
    lengths = [i % 101 for i in range(101_000)]
    block_count = -(-sum(lengths) // 32)
    stream = b"".join(hashlib.sha256(block.to_bytes(4, "big")).digest() for block in range(block_count))
    ends = np.cumsum(lengths).tolist()
    return [stream[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def test_equals_kafkas_own_class_and_mmh3_on_101000_keys_of_0_to_100_bytes() -> None:
    hashes = murmur2(pa.array(keys_of_murmur2_digests(), pa.binary()))
    lines = [f"{length},{hashlib.sha256(hashes[length::101].astype('>i4')).hexdigest()}" for length in range(101)]
    assert lines == JAVA_DIGESTS.read_text().splitlines()[1:]
    keys = keys_of_murmur2_digests()
    assert murmur3(pa.array(keys, pa.binary())).tolist() == [mmh3.hash(key) for key in keys]


@given(
    st.lists(st.binary(max_size=100), max_size=30), st.integers(0, 3), st.integers(0, 3),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)  # fmt: skip
def test_slices_and_any_mix_of_lengths(keys: list[bytes], before: int, after: int, arrow_type: pa.DataType) -> None:
    sliced = pa.array([*[b"before"] * before, *keys, *[b"after"] * after], arrow_type).slice(before, len(keys))
    for hashes, scalar, dtype in (
        (murmur2, kafka_python_murmur2, np.int32), (murmur3, mmh3.hash, np.int32), (crc32, zlib.crc32, np.uint32),
        (fnv1a, scalar_fnv1a, np.uint32),
    ):  # fmt: skip
        assert hashes(sliced).dtype == dtype
        assert hashes(sliced).tolist() == np.array([scalar(key) for key in keys], np.int64).astype(dtype).tolist()


def test_fnv1a_as_go() -> None:
    """What Go's New32a gives, as int32 without its sign: librdkafka's unittest_fnv1a."""
    known = {
        b"kafka": 0xD33C4E1, b"giberish123456789": 0x77A58295, b"1234": 0x23BDD03, b"234": 0x2DEA3CD2,
        b"34": 0x740FA83E, b"4": 0x310CA263, b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65CBD69C, b"": 0x7EE3623B,
    }  # fmt: skip
    hashed = fnv1a(pa.array(list(known), pa.binary())).view(np.int32).tolist()
    assert list(map(abs, hashed)) == list(known.values())
    assert [scalar_fnv1a(key) for key in known] == [each & 0xFFFFFFFF for each in hashed]
