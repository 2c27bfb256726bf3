"""What readers of a log see, by their isolation level: for oracles, straight from the leader's batches.

The code here does not use the brokers' state of open transactions. It reads batches and markers from the beginning.

Source: UnifiedLog.fetchLastStableOffsetMetadata, ProducerStateManager.firstUnstableOffset, the consumer's
CompletedFetch (which skips aborted batches and control batches) in Kafka; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.control_batches import decode_marker
from model.record_batches import RecordBatch


def last_stable_offset(committed: Sequence[RecordBatch], high_watermark: int) -> int:
    """`committed`: the batches below the high watermark. The first offset of the transaction that has been open for
    longest, or the high watermark: a marker that is not committed ends nothing yet."""
    starts: dict[int, int] = {}
    for batch in committed:
        if batch.is_control:
            starts.pop(batch.producer_id, None)
        elif batch.is_transactional:
            starts.setdefault(batch.producer_id, batch.base_offset)
    return min(starts.values(), default=high_watermark)


def read_uncommitted(committed: Sequence[RecordBatch]) -> list[RecordBatch]:
    return [batch for batch in committed if not batch.is_control]


def read_committed(committed: Sequence[RecordBatch], high_watermark: int) -> list[RecordBatch]:
    stable_offset = last_stable_offset(committed, high_watermark)
    stable = [batch for batch in committed if batch.next_offset <= stable_offset]
    open_since: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for batch in stable:
        if batch.is_control:
            offsets = open_since.pop(batch.producer_id, [])
            if not decode_marker(batch).is_commit:
                aborted.update(offsets)
        elif batch.is_transactional:
            open_since.setdefault(batch.producer_id, []).append(batch.base_offset)
    return [batch for batch in read_uncommitted(stable) if batch.base_offset not in aborted]
