"""The stream of a seed that begins where a consumer group is (`startingGroup`), under the faults of `streaming.py`.

A consumer commits before each start of the query that has no checkpoint yet, with the leader epoch of the record before
or without one, and may have gone on or back since the last start. Its commits may be lost, and be gone with the topic.

The stream must deliver each record from where it was recorded to begin. That is an offset that the consumer has
committed, unless the log does not go on there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kafka_sink import errors
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.stream_plan import StreamPlan
from model import settings as api
from model.internal_topics import CONSUMER_OFFSETS, coordinator_of, create_internal_topic
from model.partition import Partition
from model.wire import request_of
from simulation import read_world as world
from simulation.read_world import ReadResult, Trace
from simulation.streaming import StreamingWorld, Told, run_stream

GROUP = "consumer"
# Of the seeds.
SHARE = 0.1
_COMMIT_VERSION = 8


class GroupStreamingWorld(StreamingWorld):
    passing = (
        *StreamingWorld.passing, errors.CoordinatorUnavailable, errors.NoCommittedOffset, errors.CommittedOffsetGone,
    )  # fmt: skip
    share_of_moving = 0

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self._group_rng = random.Random(f"{seed}/streaming/group")
        # Of each partition, what the consumer has committed, whatever became of it.
        self._ever: dict[TopicPartition, set[int]] = {}
        self._gone: set[TopicPartition] = set()
        super().__init__(seed, trace)
        create_internal_topic(self._cluster.controller, len(self._cluster.node_ids), CONSUMER_OFFSETS)
        self._cluster.advance(self._scheduler.now_ms)

    def _options(self) -> dict[str, str]:
        given = {name: value for name, value in super()._options().items() if name != "startingOffsets"}
        strategy = self._group_rng.choice([{}, {"startingGroupStrategy": "earliest"}])
        return {**given, "startingGroup": GROUP, **strategy}

    def _before_start(self) -> None:
        for number in range(self._cluster.partition_count(world.TOPIC)):
            leader = self._leader(number)
            if leader is not None and self._group_rng.random() < 0.9:
                self._commit(number, leader)
        self.wait(self._group_rng.choice([10, 300, 3_000]))

    def _commit(self, number: int, leader: Partition) -> None:
        begin, end = leader.log.start_offset, leader.high_watermark
        offset = self._group_rng.randint(max(begin, end - 20), max(begin, end))
        epochs = [batch.leader_epoch for batch in leader.log.batches if batch.base_offset < offset]
        epoch = epochs[-1] if epochs and self._group_rng.random() < 0.8 else -1
        self._ever.setdefault(TopicPartition(world.TOPIC, number), set()).add(offset)
        asked = {
            "partition_index": number, "committed_offset": offset, "committed_leader_epoch": epoch,
            "committed_metadata": "",
        }  # fmt: skip
        request = request_of(
            api.OFFSET_COMMIT, _COMMIT_VERSION, group_id=GROUP, member_id="", generation_id=-1,
            generation_id_or_member_epoch=-1, group_instance_id=None,
            topics=({"name": world.TOPIC, "partitions": (asked,)},),
        )  # fmt: skip
        node_id = coordinator_of(self._cluster.controller.image, CONSUMER_OFFSETS, GROUP)
        if node_id >= 0 and self._cluster.is_alive(node_id):
            self._say(f"the consumer commits {offset} of {number}, of epoch {epoch}")
            self.counts["stream: commits of a consumer"] += 1
            self._unheard.send(node_id, api.OFFSET_COMMIT, _COMMIT_VERSION, request)

    def _tell(self, error: errors.ReadError) -> None:
        super()._tell(error)
        if isinstance(error, errors.CommittedOffsetGone):
            self._gone.add(TopicPartition(error.topic, error.partition))
            self.told.append(Told(error.partition, error.goes_on_at, error.offset, error.cause, -1))
        if isinstance(error, errors.OffsetsLost):
            self._gone.add(TopicPartition(error.topic, error.partition))

    def _end(self, plan: StreamPlan, client: AdminClient, start: Positions | None, looks: int) -> Positions:
        end = super()._end(plan, client, start, looks)
        for each, offset in self._began.items():
            # Records behind a committed offset were deleted: the read begins where the log does, and the log tells it.
            begins = [replica.log.start_offset for replica in self._replicas(each.partition)]
            if min(self._ever.get(each, ()), default=offset) < offset <= max(begins, default=-1):
                self._gone.add(each)
        return end

    def _replicas(self, number: int) -> Iterator[Partition]:
        # Without the topic there are none.
        with suppress(KeyError):
            found = [self._cluster.replica(world.TOPIC, number, node_id) for node_id in self._cluster.node_ids]
            yield from filter(None, found)

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if "startingGroupStrategy" not in self._given:
            found += [
                f"{each} begins at {offset}, which was never committed"
                for each, offset in self._began.items()
                if offset not in self._ever.get(each, ()) and each not in self._gone
            ]
        return found


def stream_of(seed: int, trace: Trace | None = None) -> ReadResult:
    """Run the stream of a seed, which may be one of this kind."""
    is_of_group = random.Random(f"{seed}/streaming/groups").random() < SHARE
    kind: Any = GroupStreamingWorld if is_of_group else StreamingWorld
    return run_stream(seed, trace, kind)
