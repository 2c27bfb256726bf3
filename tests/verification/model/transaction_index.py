"""The transactions of one log: which are open, and where aborted ones began.

Unlike the state of producers, an entry stays as long as the log does. A leader answers readers from it: the last stable
offset, and the aborted transactions of what they get.

Source: ProducerStateManager (firstUnstableOffset, unreplicatedTxns), TransactionIndex, AbortedTxn in Kafka; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from model.control_batches import decode_marker
from model.record_batches import RecordBatch


class CompletedTransaction(NamedTuple):
    """`last_offset`: of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class TransactionIndex:
    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._completed: list[CompletedTransaction] = []

    def append(self, batch: RecordBatch) -> None:
        if not batch.is_transactional or batch.producer_id < 0:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        first_offset = self._open.pop(batch.producer_id, None)
        # A marker of a transaction that wrote nothing here completes nothing.
        if first_offset is not None:
            is_aborted = not decode_marker(batch).is_commit
            self._completed.append(CompletedTransaction(batch.producer_id, first_offset, batch.base_offset, is_aborted))

    def rebuild(self, batches: Iterable[RecordBatch]) -> None:
        self._open.clear()
        self._completed.clear()
        for batch in batches:
            self.append(batch)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Of the transactions that are open, or whose marker is not below the high watermark."""
        starts = [*self._open.values(), *(done.first_offset for done in self._completed_from(high_watermark))]
        return min(starts, default=None)

    def aborted(self, first_offset: int, end_offset: int) -> tuple[CompletedTransaction, ...]:
        """The aborted transactions with an offset in [first_offset, end_offset), in the order of their markers."""
        found = [
            done for done in self._completed_from(first_offset) if done.is_aborted and done.first_offset < end_offset
        ]
        return tuple(reversed(found))

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Of a batch before the last stable offset."""
        return batch.is_transactional and any(
            done.producer_id == batch.producer_id for done in self.aborted(batch.base_offset, batch.next_offset)
        )

    def forget(self, marker_offset: int) -> None:
        """Compaction removed a marker, and all records of its transaction before."""
        self._completed = [done for done in self._completed if done.last_offset != marker_offset]

    def _completed_from(self, offset: int) -> Iterator[CompletedTransaction]:
        """Those whose marker is at `offset` or later, the last one first."""
        for done in reversed(self._completed):
            if done.last_offset < offset:
                return
            yield done
