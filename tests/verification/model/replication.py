"""Followers' fetches: rounds in virtual time, as long as there is something to fetch.

A round is one fetch of one follower: the leader learns the follower's end offset and may move the high watermark, the
follower gets batches and the high watermark as it was before. So a batch takes one round to the follower, a second to
the leader's high watermark, a third to the follower's: between any two of them a broker may die.

Non-obvious: a follower that has nothing left to fetch plans no more rounds, as its fetch would wait at the leader
(long polling). Code that changes something for the follower calls `wake`.

Source: AbstractFetcherThread, ReplicaFetcherThread, DelayedFetch in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model.image import TopicIdPartition
from model.partition import Partition
from model.timeline import Timeline

if TYPE_CHECKING:
    from model.replica_manager import ReplicaManager


@dataclass(slots=True)
class Replication:
    """`replica_fetch_ms`: the range from one round of a follower to its next."""

    _timeline: Timeline
    _rng: random.Random
    _replica_fetch_ms: tuple[int, int]
    _brokers: Mapping[int, ReplicaManager]
    _planned: set[tuple[int, TopicIdPartition]] = field(default_factory=set)

    def wake(self, node_id: int, key: TopicIdPartition) -> None:
        """The follower has a reason to fetch. Its round is planned, unless it is already."""
        if (node_id, key) in self._planned:
            return
        self._planned.add((node_id, key))
        delay_ms = self._rng.randint(*self._replica_fetch_ms)
        self._timeline.call_in(delay_ms, lambda: self._round(node_id, key))

    def wake_followers(self, partition: Partition) -> None:
        for node_id in partition.followers:
            self.wake(node_id, partition.key)

    def _round(self, node_id: int, key: TopicIdPartition) -> None:
        self._planned.discard((node_id, key))
        pair = self._connected(node_id, key)
        if pair is None:
            return
        leader, follower = pair
        now_ms = self._timeline.now_ms
        offset = follower.log.end_offset
        fetched = leader.fetched_by(node_id, offset, follower.log.last_epoch, follower.log.start_offset, now_ms)
        follower.take(fetched, now_ms)
        known = leader.followers[node_id]
        known.long_polling = False
        self._brokers[node_id].changed(key)
        self._brokers[leader.node_id].follower_fetched(leader, node_id)
        known.long_polling = (
            known.end_offset == follower.log.end_offset == leader.log.end_offset
            and follower.high_watermark >= leader.high_watermark
            and follower.log.start_offset == known.log_start_offset >= leader.log.start_offset
        )
        if not known.long_polling:
            self.wake(node_id, key)

    def _connected(self, node_id: int, key: TopicIdPartition) -> tuple[Partition, Partition] | None:
        """The leader's replica and the follower's, if the two brokers agree on who is which."""
        broker = self._brokers[node_id]
        follower = broker.partitions.get(key)
        if follower is None or not broker.is_alive or broker.is_isolated or follower.is_leader:
            return None
        leading = self._brokers.get(follower.leader_id)
        if leading is None or not leading.is_alive:
            return None
        leader = leading.partitions.get(key)
        if leader is None or not leader.is_leader or leader.leader_epoch != follower.leader_epoch:
            return None
        return leader, follower
