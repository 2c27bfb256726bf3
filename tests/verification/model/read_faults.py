"""Faults that readers meet, drawn by a seed: what a cluster does to a topic that is being read.

Each call of `strike` does one of them, if the cluster is in a state for it, and says what. `heal` ends them all. Slow
answers and cut connections are the network's (`simulation.network`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from model.cluster import Cluster
from model.partition import Partition
from model.settings import FETCH, LIST_OFFSETS

# What brokers answer for a moment: a reader asks again.
PASSING = (
    ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower, ErrorCode.replica_not_available,
    ErrorCode.kafka_storage_error, ErrorCode.offset_not_available, ErrorCode.unknown_server_error,
)  # fmt: skip
WEIGHTS: Mapping[str, int] = {
    "retention": 4, "delete_records": 4, "compaction": 8, "leader_move": 10, "unclean_election": 6, "lag": 10,
    "catch_up": 8, "crash": 5, "restart": 12, "topic_again": 1, "partitions_added": 1, "throttle": 6, "refusal": 8,
    "slow_storage": 8,
}  # fmt: skip


@dataclass
class ReadFaults:
    """Of the topic. `weights`: how often each is drawn; without those of 0."""

    cluster: Cluster
    topic: str
    rng: random.Random
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)

    def strike(self) -> str | None:
        """Return what was done; None if the cluster was in no state for the fault that was drawn."""
        kinds = list(self.weights)
        kind = self.rng.choices(kinds, [self.weights[each] for each in kinds])[0]
        partition = self.rng.randrange(self.cluster.partition_count(self.topic))
        done: str | None = getattr(self, f"_{kind}")(partition)
        return None if done is None else f"{kind} of {partition}: {done}"

    def heal(self) -> None:
        for node_id in self.cluster.node_ids:
            self.cluster.isolate(node_id, False)
            self.cluster.restart(node_id)
            self.cluster.forgive(node_id)

    def _leading(self, partition: int) -> Partition | None:
        leader = self.cluster.leader(self.topic, partition)
        replica = self.cluster.replica(self.topic, partition, leader) if leader is not None else None
        is_leading = replica is not None and replica.is_leader and self.cluster.is_alive(replica.node_id)
        return replica if is_leading else None

    def _retention(self, partition: int) -> str | None:
        """Whole batches."""
        return self._delete(partition, lambda log: [batch.base_offset for batch in log.log.batches])

    def _delete_records(self, partition: int) -> str | None:
        return self._delete(partition, lambda log: list(range(log.high_watermark + 1)))

    def _delete(self, partition: int, offsets_of: Callable[[Partition], list[int]]) -> str | None:
        replica = self._leading(partition)
        if replica is None:
            return None
        start_offset, high_watermark = replica.log.start_offset, replica.high_watermark
        offsets = [offset for offset in offsets_of(replica) if start_offset < offset <= high_watermark]
        if not offsets:
            return None
        # Rather few than all.
        offset = self.rng.choice(offsets[: max(1, len(offsets) // 2)])
        self.cluster.delete_before(self.topic, partition, offset)
        return f"before {offset}"

    def _compaction(self, partition: int) -> str | None:
        node_id = self.rng.choice(self.cluster.node_ids)
        replica = self.cluster.replica(self.topic, partition, node_id)
        if replica is None or not self.cluster.is_alive(node_id):
            return None
        share = self.rng.choice([0.2, 0.5, 0.9, 1])
        removed = {offset for offset in range(replica.log.end_offset) if self.rng.random() < share}
        stay = self.rng.choice([0, 0.5, 1])
        self.cluster.compact(
            self.topic, partition, node_id, removed, stays_empty=lambda batch: self.rng.random() < stay,
            delete_horizon_ms=self.rng.choice([None, self.cluster.now_ms + 86_400_000]),
        )  # fmt: skip
        return f"{len(removed)} offsets on {node_id}"

    def _live(self, partition: int, *, in_sync: bool) -> list[int]:
        state = self.cluster.state(self.topic, partition)
        live = [node for node in state.replicas if node in self.cluster.controller.image.alive and node != state.leader]
        return [node for node in live if (node in state.isr) == in_sync]

    def _leader_move(self, partition: int) -> str | None:
        candidates = self._live(partition, in_sync=True)
        if not candidates:
            return None
        node_id = self.rng.choice(candidates)
        self.cluster.elect(self.topic, partition, node_id)
        return f"to {node_id}"

    def _unclean_election(self, partition: int) -> str | None:
        """Of a replica that has fallen behind."""
        candidates = self._live(partition, in_sync=False)
        if not candidates:
            return None
        node_id = self.rng.choice(candidates)
        self.cluster.isolate(node_id, False)
        self.cluster.elect(self.topic, partition, node_id, unclean=True)
        return f"of {node_id}"

    def _truncation(self, partition: int) -> str | None:
        """In two strikes: a follower falls behind, and is elected."""
        done = self._unclean_election(partition)
        candidates = self._live(partition, in_sync=True)
        if done is not None or not candidates:
            return done
        node_id = self.rng.choice(candidates)
        self.cluster.isolate(node_id)
        return f"{node_id} falls behind"

    def _lag(self, partition: int) -> str | None:
        node_id = self.rng.choice(self.cluster.state(self.topic, partition).replicas)
        self.cluster.isolate(node_id)
        return f"{node_id} does not fetch"

    def _catch_up(self, partition: int) -> str | None:
        node_id = self.rng.choice(self.cluster.state(self.topic, partition).replicas)
        self.cluster.isolate(node_id, False)
        return f"{node_id} fetches"

    def _crash(self, partition: int) -> str | None:
        alive = [node_id for node_id in self.cluster.node_ids if self.cluster.is_alive(node_id)]
        # One is left to answer.
        if len(alive) < 2:
            return None
        node_id = self.rng.choice(alive)
        self.cluster.crash(node_id)
        return f"{node_id}"

    def _restart(self, partition: int) -> str | None:
        dead = [node_id for node_id in self.cluster.node_ids if not self.cluster.is_alive(node_id)]
        if not dead:
            return None
        node_id = self.rng.choice(dead)
        self.cluster.restart(node_id)
        return f"{node_id}"

    def _topic_again(self, partition: int) -> str | None:
        image = self.cluster.controller.image.topics[self.topic]
        self.cluster.delete_topic(self.topic)
        self.cluster.create_topic(self.topic, len(image.partitions), len(image.partitions[0].replicas))
        return f"{image.topic_id} is gone"

    def _partitions_added(self, partition: int) -> str | None:
        total = self.cluster.partition_count(self.topic) + 1
        self.cluster.add_partitions(self.topic, total)
        return f"{total} now"

    def _throttle(self, partition: int) -> str | None:
        node_id, throttle_time_ms = self.rng.choice(self.cluster.node_ids), self.rng.choice([10, 200, 2_000])
        self.cluster.throttle(node_id, throttle_time_ms, self.rng.randint(1, 3))
        return f"{node_id} for {throttle_time_ms} ms"

    def _refusal(self, partition: int) -> str | None:
        node_id, code = self.rng.choice(self.cluster.node_ids), self.rng.choice(PASSING)
        self.cluster.refuse(node_id, self.rng.choice([FETCH, LIST_OFFSETS]), code)
        return f"{node_id} answers {code.name}"

    def _slow_storage(self, partition: int) -> str | None:
        node_id, fetches = self.rng.choice(self.cluster.node_ids), self.rng.choice([1, 3, 10])
        self.cluster.withhold(node_id, fetches)
        return f"{node_id} withholds the records of {fetches} fetches"
