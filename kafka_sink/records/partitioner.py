"""Which partition each row of a topic goes to: the one it names, else its key's, else the sticky one.

    partition column set                    that partition, or PartitionOutOfRange
    key                                     (murmur2(key) & 0x7fffffff) % partition_count
    neither                                 StickyPartitioner

The key's rule is the Java client's (BuiltInPartitioner.partitionForKey, and Utils.toPositive for the mask):
the same key meets the same partition whoever wrote it, leader or not. Rows without a key follow KIP-480 and
KIP-794: they stay on one partition until about `batch_size` bytes went there, so that they travel in full
batches at the same balance.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

POSITIVE_MASK = 0x7FFFFFFF


class StickyPartitioner:
    """Where one topic's rows without a key go. Outlives Arrow batches and tasks; not thread-safe.

    `batch_size`: bytes after which it moves on (`kafka.batch.size`; less than 1 counts as 1, as in Java).
    `rng` picks the partitions. Each next partition is another than the last where there is another (KIP-480's
    rule; KIP-794 allows the same again). Stays begin at multiples of `batch_size` in the stream of bytes, so
    that they average it: what overruns one shortens the next.
    """

    def __init__(self, *, batch_size: int, rng: random.Random) -> None:
        self._batch_size = max(1, batch_size)
        self._rng = rng
        self._partition: int | None = None
        self._stay_bytes = 0

    def assign(self, row_sizes: Int64s, *, partition_count: int, available: Sequence[int]) -> Int32s:
        """int32[n]: a partition for each of n rows of `row_sizes` bytes (int64[n]), in this order.

        `available`: the partitions that have a leader. When there is none, all `partition_count` are as good,
        and the rows wait for a leader in the accumulator.
        """
        if len(row_sizes) == 0:
            return np.empty(0, np.int32)
        choice = list(available) or list(range(partition_count))
        if self._partition not in choice:
            self._partition, self._stay_bytes = self._rng.choice(choice), 0
        ends = self._stay_bytes + np.cumsum(row_sizes)
        # A row belongs to the stay in which its first byte lies: the row that fills a stay up is its last.
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


class RowPartitioner:
    """The rows of one Arrow batch before they have partitions. However many topics, keys are hashed once."""

    def __init__(self, columns: RecordColumns) -> None:
        self._columns = columns

    @cached_property
    def _has_key(self) -> npt.NDArray[np.bool_]:
        key = self._columns.key
        if key is None:
            return np.zeros(self._columns.num_rows, np.bool_)
        has_key: npt.NDArray[np.bool_] = key.is_valid().to_numpy(zero_copy_only=False)
        return has_key

    @cached_property
    def _key_hashes(self) -> Int32s:
        return KERNEL.murmur2(self._columns.key) & POSITIVE_MASK

    @cached_property
    def _row_sizes(self) -> Int64s:
        return KERNEL.payload_sizes(self._columns)

    def assign_partitions(
        self,
        rows: Int64s | None,
        *,
        topic: str,
        partition_count: int,
        available: Sequence[int],
        sticky: StickyPartitioner,
    ) -> Int32s:
        """int32[n]: the partitions of `rows`, in their order, all of them rows of `topic`.

        `rows`: int64[n] positions in the Arrow batch, or None for all of it. `available`: the partitions that
        have a leader. `sticky`: the topic's. Raises PartitionOutOfRange, and then `sticky` is as it was.
        """
        chosen = slice(None) if rows is None else rows
        has_key = self._has_key[chosen]
        partitions = np.empty(len(has_key), np.int32)
        undecided = np.ones(len(has_key), np.bool_)
        if self._columns.partition is not None and self._columns.partition_is_set is not None:
            explicit = self._columns.partition_is_set[chosen]
            partitions[explicit] = self._columns.partition[chosen][explicit]
            _check_range(partitions[explicit], topic=topic, partition_count=partition_count)
            undecided = ~explicit
        keyed, keyless = undecided & has_key, undecided & ~has_key
        if keyed.any():
            partitions[keyed] = self._key_hashes[chosen][keyed] % partition_count
        if keyless.any():
            partitions[keyless] = sticky.assign(
                self._row_sizes[chosen][keyless], partition_count=partition_count, available=available
            )
        return partitions


def _check_range(partitions: Int32s, *, topic: str, partition_count: int) -> None:
    outside = (partitions < 0) | (partitions >= partition_count)
    if outside.any():
        first = int(partitions[outside.argmax()])
        raise PartitionOutOfRange(topic=topic, partition=first, partition_count=partition_count)
