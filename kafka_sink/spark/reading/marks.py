"""Marks of a running stream in the logs that it reads: which batch was there, just before its position.

A cluster that is restored from a snapshot has the same topic ids and leader epochs, and grows past the stream's
position with other records. Only the records tell. So the planner keeps the header of one batch of each log. It
compares them when its connections have ended since, as they do when brokers start again, or when a leader has changed.

    position moved, and the stream is idle or the mark is old  ->  one small Fetch: a new mark
    connections ended since the last look, or a new leader     ->  one small Fetch: is it still there?

Non-obvious: a batch that is gone, or has fewer records, is no proof: compaction does that. Marks are in the memory of
the planner. Spark's checkpoint has offsets alone, in the form of format("kafka"), so a restarted query has no marks.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from kafka_sink.kafka.admin.batches import StoredBatch, stored_batches
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.log_ends import Logs
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.continuity import LogEnd, LogEnds
from kafka_sink.spark.reading.positions import Positions

# A stream that never rests takes a new mark after so long.
MARK_AGE_MS = 60_000
# In one look.
MOST_NEW_MARKS = 100


@dataclass(frozen=True, slots=True)
class Mark:
    topic_id: uuid.UUID | None
    leader_epoch: int
    offset: int
    batch: StoredBatch
    taken_at_ms: int


class Marks:
    """For one stream."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, Mark] = {}
        self._positions: Positions = {}
        # When a mark was asked for.
        self._tried_ms: dict[TopicPartition, int] = {}
        # The client of the last look, and how often its connections had begun and ended.
        self._connections: tuple[int, int, int] | None = None
        self._is_answered = True

    def moved(self, client: AdminClient, logs: Logs, ends: LogEnds, positions: Positions) -> set[TopicPartition]:
        """Return the partitions whose log has another record at a mark than before."""
        may_be_another = self._connections not in (None, _connections_of(client))
        asked = {
            each: mark
            for each, mark in self._marks.items()
            if each in positions
            and each in ends
            and mark.topic_id == ends[each].topic_id
            and mark.offset < ends[each].offset
            and (may_be_another or mark.leader_epoch != ends[each].leader_epoch)
        }
        if not asked:
            return set()
        found = stored_batches(client, logs, {each: mark.offset for each, mark in asked.items()})
        self._is_answered = asked.keys() <= found.keys()
        return {
            each
            for each, batch in found.items()
            if batch.base_offset <= asked[each].offset and not asked[each].batch.may_become(batch)
        }

    def take(self, client: AdminClient, logs: Logs, ends: LogEnds, positions: Positions, now_ms: int) -> None:
        """Take marks where the stream is, after a look whose breaks are told. `positions`: of whole logs."""
        self._marks = {each: mark for each, mark in self._marks.items() if each in positions}
        due = [each for each, position in positions.items() if self._is_due(each, position, ends.get(each), now_ms)]
        chosen = {each: positions[each] - 1 for each in due[:MOST_NEW_MARKS]}
        self._tried_ms |= dict.fromkeys(chosen, now_ms)
        for each, batch in (stored_batches(client, logs, chosen) if chosen else {}).items():
            if batch.base_offset <= chosen[each] <= batch.last_offset:
                end = ends[each]
                self._marks[each] = Mark(end.topic_id, end.leader_epoch, chosen[each], batch, now_ms)
        self._positions = dict(positions)
        if self._is_answered:
            self._connections = _connections_of(client)
        self._is_answered = True

    def _is_due(self, partition: TopicPartition, position: int, end: LogEnd | None, now_ms: int) -> bool:
        if end is None or not 0 < position <= end.offset:
            return False
        mark, rests = self._marks.get(partition), self._positions.get(partition) == position
        if mark is None or mark.topic_id != end.topic_id:
            return partition not in self._tried_ms or now_ms - self._tried_ms[partition] >= MARK_AGE_MS
        return mark.offset != position - 1 and (rests or now_ms - mark.taken_at_ms >= MARK_AGE_MS)


def _connections_of(client: AdminClient) -> tuple[int, int, int]:
    network = client.caller.network
    return client.number, network.handshakes, network.interruptions
