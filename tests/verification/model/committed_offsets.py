"""The offsets of groups that nobody joins, as the log of one partition of `__consumer_offsets` tells them.

An offset of a transaction is pending until its producer's marker, in the order of the log: of two transactions the one
whose offset was WRITTEN last wins, whichever is committed last.

Non-obvious: offsets expire by the time at which they were committed and are looked through at intervals only. Here that
is computed when somebody asks. What stays pending past a check is kept then, and forgotten at the next: so close to
seven days nobody looks.

Source: OffsetMetadataManager (replay, replayEndTransactionMarker, fetchOffsets, cleanupExpiredOffsets) in Kafka;
KIP-447.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from model.control_batches import decode_marker
from model.record_batches import RecordBatch
from model.state_records import decode_state
from model.transaction_metadata import TopicPartition


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """`record_offset`: where in the log of the internal topic."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    record_offset: int


@dataclass(slots=True)
class CommittedOffsets:
    """`next_offset`: of the log, up to which it has been read."""

    next_offset: int = 0
    _stable: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    _pending: dict[int, dict[OffsetKey, CommittedOffset]] = field(default_factory=dict)
    _heard_of_ms: dict[str, int] = field(default_factory=dict)

    def read(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if batch.is_control:
                self._end(batch)
            else:
                self._commit(batch)
            self.next_offset = batch.next_offset

    def _commit(self, batch: RecordBatch) -> None:
        for record_offset, name, value in decode_state(batch):
            group, topic, partition = name
            key = OffsetKey(str(group), str(topic), int(partition))
            if value is None:
                for offsets in (self._stable, *self._pending.values()):
                    offsets.pop(key, None)
            else:
                offsets = self._pending.setdefault(batch.producer_id, {}) if batch.is_transactional else self._stable
                offset, leader_epoch, metadata, committed_ms = value
                self.hear_of(key.group, committed_ms)
                offsets[key] = CommittedOffset(offset, leader_epoch, metadata, committed_ms, record_offset)

    def _end(self, batch: RecordBatch) -> None:
        pending = self._pending.pop(batch.producer_id, {})
        if decode_marker(batch).is_commit:
            for key, committed in pending.items():
                known = self._stable.get(key)
                if known is None or committed.record_offset > known.record_offset:
                    self._stable[key] = committed

    def copy(self) -> CommittedOffsets:
        return copy.deepcopy(self)

    def is_pending(self, key: OffsetKey) -> bool:
        return any(key in offsets for offsets in self._pending.values())

    def get(self, key: OffsetKey, expired_before_ms: int) -> CommittedOffset | None:
        """None for what was committed before that time, unless more is pending."""
        committed = self._stable.get(key)
        if committed is None or (committed.committed_ms <= expired_before_ms and not self.is_pending(key)):
            return None
        return committed

    def of_group(self, group: str) -> list[TopicPartition]:
        return sorted((key.topic, key.partition) for key in self._stable if key.group == group)

    def hear_of(self, group: str, now_ms: int) -> None:
        """Somebody commits for it, whatever comes of that."""
        self._heard_of_ms[group] = max(now_ms, self._heard_of_ms.get(group, now_ms))

    def has_group(self, group: str, expired_before_ms: int, heard_of_since_ms: int) -> bool:
        """A group is there as long as anything is committed for it, or about to be, and if it was heard of since groups
        were last looked through."""
        return self._heard_of_ms.get(group, -1) >= heard_of_since_ms or any(
            key.group == group and (self.is_pending(key) or self.get(key, expired_before_ms) is not None)
            for key in self._keys()
        )

    def groups_of_transactions(self) -> set[str]:
        return {key.group for offsets in self._pending.values() for key in offsets}

    def of_topics(self, topics: Iterable[str]) -> list[OffsetKey]:
        wanted = set(topics)
        return sorted({key for key in self._keys() if key.topic in wanted})

    def _keys(self) -> Iterator[OffsetKey]:
        for offsets in (self._stable, *self._pending.values()):
            yield from offsets
