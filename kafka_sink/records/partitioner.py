"""Assigns a partition to each row of a topic: the partition that the row names, or else the `partitioner` option's
choice for its key, or else a partition for rows without a key.

    partition column set       that partition, or PartitionOutOfRange

    partitioner   with a key                              without one
    murmur2       (murmur2(key) & 0x7fffffff) % count     sticky
    murmur3       (murmur3(key) & 0x7fffffff) % count     sticky
    consistent    crc32(key) % count                      partition 0, the empty key's
    fnv1a         abs(int32(fnv1a(key))) % count          sticky
    roundrobin    the next partition                      the next partition
    sticky        sticky                                  sticky

murmur2 is the Java client's rule (BuiltInPartitioner.partitionForKey, and Utils.toPositive for the mask): the same key
goes to the same partition whichever client wrote it, with or without a leader. `consistent` is librdkafka's partitioner
of that name (rd_kafka_msg_partitioner_consistent, which hashes a null key as an empty one). `fnv1a` is Sarama's
NewHashPartitioner, and librdkafka's `fnv1a` for rows with a key. No client has murmur3; here it is `mmh3.hash` under
murmur2's mask.

Sticky rows follow KIP-480 and KIP-794: they stay on one partition until about `batch_size` bytes went there. So they
travel in full batches, with the same balance. As an option, `sticky` is Java's default partitioner with
`partitioner.ignore.keys`. `roundrobin` is Java's RoundRobinPartitioner, which ignores keys as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.records.columns import RecordColumns, is_valid
from kafka_sink.records.kernel import KERNEL
from kafka_sink.records.key_hashes import crc32, fnv1a, murmur3

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

POSITIVE_MASK = 0x7FFFFFFF


# --- rows whose key, if any, does not matter ------------------------------------------------------------------


class Spreader(Protocol):
    """Assigns partitions to one topic's rows that have no key, or whose key does not matter. Outlives Arrow batches.
    Not thread-safe."""

    def assign(self, row_sizes: Int64s, *, partition_count: int, available: Sequence[int]) -> Int32s:
        """Return int32[n]: a partition for each of n rows of `row_sizes` bytes (int64[n]), in this order.

        `available`: the partitions that have a leader. If there is none, any of the `partition_count` partitions may be
        chosen, and the rows wait for a leader in the accumulator.
        """


class RoundRobinPartitioner:
    """One row to each partition in turn, from a random start. With a fixed start, partition 0 would get the first row
    of every task."""

    def __init__(self, *, rng: random.Random) -> None:
        self._turn = rng.randrange(2**31)

    def assign(self, row_sizes: Int64s, *, partition_count: int, available: Sequence[int]) -> Int32s:
        """See Spreader. After a change of `available`, the turn continues at the same number in the new list."""
        choice = np.array(list(available) or list(range(partition_count)), np.int32)
        partitions: Int32s = choice[(self._turn + np.arange(len(row_sizes))) % len(choice)]
        self._turn += len(row_sizes)
        return partitions


class StickyPartitioner:
    """About `batch_size` bytes to one partition, then to another.

    `batch_size`: bytes after which the partition changes (`kafka.batch.size`; less than 1 counts as 1, as in Java).
    `rng` picks the partitions. The next partition differs from the last if there is another (the rule of KIP-480;
    KIP-794 allows the same one again). Changes are due at multiples of `batch_size` in the stream of bytes, so
    `batch_size` is the average: a row that exceeds one stay shortens the next.
    """

    def __init__(self, *, batch_size: int, rng: random.Random) -> None:
        self._batch_size = max(1, batch_size)
        self._rng = rng
        self._partition: int | None = None
        self._stay_bytes = 0

    def assign(self, row_sizes: Int64s, *, partition_count: int, available: Sequence[int]) -> Int32s:
        """See Spreader."""
        if len(row_sizes) == 0:
            return np.empty(0, np.int32)
        choice = list(available) or list(range(partition_count))
        if self._partition not in choice:
            self._partition, self._stay_bytes = self._rng.choice(choice), 0
        ends = self._stay_bytes + np.cumsum(row_sizes)
        # A row belongs to the stay that has its first byte: the row that fills a stay is its last row.
        moves = np.diff((ends - row_sizes) // self._batch_size, prepend=0) > 0
        # A step of 1 to len - 1 around the circle of partitions is a uniform choice among all others.
        others = range(1, len(choice)) if len(choice) > 1 else (0,)
        steps = np.array([0, *self._rng.choices(others, k=int(moves.sum()))])
        circle = (choice.index(self._partition) + np.cumsum(steps)) % len(choice)
        partitions: Int32s = np.array(choice, np.int32)[circle][np.cumsum(moves)]
        self._partition = int(partitions[-1])
        last_start, end = int(ends[-1] - row_sizes[-1]), int(ends[-1])
        self._stay_bytes = end - last_start // self._batch_size * self._batch_size
        return partitions


# --- the partitioner option -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionerRule:
    """A row of the table above.

    `key_number`: n keys to n non-negative numbers (int64 or uint32); the partition is the remainder. None if keys do
    not matter. `null_key_number`: the number of a null key; None if rows without a key are spread.
    """

    key_number: Callable[[pa.Array], npt.NDArray[np.integer]] | None
    null_key_number: int | None = None
    spreads_by_turn: bool = False

    def spreader(self, *, batch_size: int, rng: random.Random) -> Spreader:
        """Return a spreader for one topic. `batch_size`: as in StickyPartitioner."""
        if self.spreads_by_turn:
            return RoundRobinPartitioner(rng=rng)
        return StickyPartitioner(batch_size=batch_size, rng=rng)


PARTITIONERS: Mapping[str, PartitionerRule] = MappingProxyType(
    {
        "murmur2": PartitionerRule(lambda keys: KERNEL.murmur2(keys) & POSITIVE_MASK),
        "murmur3": PartitionerRule(lambda keys: murmur3(keys) & POSITIVE_MASK),
        "consistent": PartitionerRule(crc32, null_key_number=0),
        # Sarama takes the remainder of the signed hash and then drops the sign. Go's remainder has the dividend's sign,
        # so dropping the sign first gives the same. In 64 bits, because of -2^31.
        "fnv1a": PartitionerRule(lambda keys: np.abs(fnv1a(keys).view(np.int32).astype(np.int64))),
        "roundrobin": PartitionerRule(None, spreads_by_turn=True),
        "sticky": PartitionerRule(None),
    }
)


class RowPartitioner:
    """The rows of one Arrow batch before they have partitions. Keys are hashed once, for all topics."""

    def __init__(self, columns: RecordColumns, rule: PartitionerRule = PARTITIONERS["murmur2"]) -> None:
        self._columns = columns
        self._rule = rule

    @cached_property
    def _key_decides(self) -> npt.NDArray[np.bool_]:
        """bool[n]: rows whose partition follows from `_key_numbers`."""
        key, rule = self._columns.key, self._rule
        if rule.null_key_number is None and (rule.key_number is None or key is None):
            return np.zeros(self._columns.num_rows, np.bool_)
        if rule.null_key_number is not None or key is None or not key.null_count:
            return np.ones(self._columns.num_rows, np.bool_)
        return is_valid(key)

    @cached_property
    def _key_numbers(self) -> npt.NDArray[np.integer]:
        key, rule = self._columns.key, self._rule
        if key is None or rule.key_number is None:
            return np.full(self._columns.num_rows, rule.null_key_number)
        numbers = rule.key_number(key)
        if key.null_count and rule.null_key_number is not None:
            numbers[~is_valid(key)] = rule.null_key_number
        return numbers

    @cached_property
    def _row_sizes(self) -> Int64s:
        return KERNEL.payload_sizes(self._columns)

    def assign_partitions(
        self,
        rows: Int64s | None,
        *,
        topic: str,
        partition_count: int,
        key_partition_count: int,
        available: Sequence[int],
        spreader: Spreader,
    ) -> Int32s:
        """Return int32[n]: the partitions of `rows`, in order. All of them are rows of `topic`.

        `rows`: int64[n] positions in the Arrow batch, or None for all. `partition_count`: the number of partitions.
        `key_partition_count`: the number of partitions over which keys are spread. `available`: the partitions that
        have a leader. `spreader`: the topic's, made by the same rule. Raises PartitionOutOfRange; `spreader` is then
        unchanged.
        """
        chosen = slice(None) if rows is None else rows
        by_key = self._key_decides[chosen]
        if self._columns.partition is None and by_key.all():
            # The usual case needs none of the masks below, which would cost as much as the hashes.
            return _remainders(self._key_numbers[chosen], key_partition_count).astype(np.int32, copy=False)
        partitions = np.empty(len(by_key), np.int32)
        undecided = np.ones(len(by_key), np.bool_)
        if self._columns.partition is not None and self._columns.partition_is_set is not None:
            explicit = self._columns.partition_is_set[chosen]
            partitions[explicit] = self._columns.partition[chosen][explicit]
            _check_range(partitions[explicit], topic=topic, partition_count=partition_count)
            undecided = ~explicit
        keyed, spread = undecided & by_key, undecided & ~by_key
        if keyed.any():
            partitions[keyed] = _remainders(self._key_numbers[chosen][keyed], key_partition_count)
        if spread.any():
            partitions[spread] = spreader.assign(
                self._row_sizes[chosen][spread], partition_count=partition_count, available=available
            )
        return partitions


def _remainders(numbers: npt.NDArray[np.integer], divisor: int) -> npt.NDArray[np.integer]:
    """Return `numbers % divisor` for non-negative numbers. numpy divides by one number with vector instructions, but
    takes ten times as long for remainders."""
    return numbers - numbers // divisor * divisor


def _check_range(partitions: Int32s, *, topic: str, partition_count: int) -> None:
    outside = (partitions < 0) | (partitions >= partition_count)
    if outside.any():
        first = int(partitions[outside.argmax()])
        raise PartitionOutOfRange(topic=topic, partition=first, partition_count=partition_count)
