"""The replicas on one broker's disk: the controller's decisions, clients' appends, followers' fetches, and the requests
that wait for them.

A round of replication is one fetch of one follower: the leader learns the follower's end offset and may move the high
watermark, the follower gets batches and the high watermark as it was before. So a batch takes one round to the
follower, a second to the leader's high watermark, a third to the follower's: between any two of them a broker may die.
A follower that has nothing left to fetch plans no more rounds, as its fetch would wait at the leader (long polling).
Code that changes something for the follower calls `wake`.

Source: ReplicaManager, AbstractFetcherThread, ReplicaFetcherThread, DelayedProduce, DelayedFetch,
DelayedOperationPurgatory in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER, ClusterImage, Controller, PartitionState, TopicIdPartition, TopicImage
from model.partition import Appended, Partition
from model.producer_state import Verification
from model.read_journal import ReadJournal
from model.record_batches import EndTransactionMarker, Refused, parse_batch
from model.settings import ClusterSettings, Generation
from model.timeline import Timeline, Timer

# The code for a batch that ends before the offset, None while it must wait.
Check = Callable[[TopicIdPartition, int], ErrorCode | None]
Codes = dict[TopicIdPartition, ErrorCode]
# Of a request between brokers.
INTERNAL_TIMEOUT_MS = 30_000


@dataclass(slots=True, eq=False)
class Waiting:
    keys: Collection[TopicIdPartition]
    is_ready: Callable[[], bool]
    on_complete: Callable[[], None]
    timeout: Timer | None = None


class Purgatory:
    """Requests that wait for something of their partitions. They are looked at when something changed for one of
    them."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, keys: Collection[TopicIdPartition], timeout_ms: int, is_ready: Callable[[], bool],
        on_complete: Callable[[], None],
    ) -> None:  # fmt: skip
        """`on_complete` is called once, later: when it `is_ready`, or its time is over."""
        waiting = Waiting(keys, is_ready, on_complete)
        self._waiting.append(waiting)
        waiting.timeout = self._timeline.after(timeout_ms, lambda: self._complete(waiting))

    def add_settled(
        self, required: Mapping[TopicIdPartition, int], timeout_ms: int, check: Check,
        on_complete: Callable[[Codes], None],
    ) -> None:  # fmt: skip
        """`on_complete` gets a code for each of `required`, perhaps before this returns. Each is settled once, by
        `check`; what is not settled in time gets REQUEST_TIMED_OUT."""
        codes: Codes = {}

        def is_settled() -> bool:
            for key, offset in required.items():
                if key not in codes and (code := check(key, offset)) is not None:
                    codes[key] = code
            return len(codes) == len(required)

        def complete() -> None:
            on_complete(dict.fromkeys(required, ErrorCode.request_timed_out) | codes)

        if is_settled():
            complete()
        else:
            self.add(required, max(0, timeout_ms), is_settled, complete)

    def check(self, key: TopicIdPartition) -> None:
        for waiting in list(self._waiting):
            # An answer lets the next request of its connection in, which may get here again.
            if waiting.timeout is not None and key in waiting.keys and waiting.is_ready():
                waiting.timeout.cancel()
                self._complete(waiting)

    def clear(self) -> None:
        for waiting in self._waiting:
            if waiting.timeout is not None:
                waiting.timeout.cancel()
                waiting.timeout = None
        self._waiting.clear()

    def _complete(self, waiting: Waiting) -> None:
        waiting.timeout = None
        self._waiting.remove(waiting)
        waiting.on_complete()


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
        self._timeline.after(delay_ms, lambda: self._round(node_id, key))

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
        leading = self._brokers.get(follower.state.leader)
        if leading is None or not leading.is_alive:
            return None
        leader = leading.partitions.get(key)
        if leader is None or not leader.is_leader or leader.leader_epoch != follower.leader_epoch:
            return None
        return leader, follower


class ReplicaManager:
    """Acts by `image`, the last one received. `is_isolated`: its followers do not fetch. `lives`: how often the
    process was started; what was begun in one life ends with it."""

    def __init__(
        self, node_id: int, settings: ClusterSettings, timeline: Timeline, controller: Controller,
        replication: Replication, journal: ReadJournal,
    ) -> None:  # fmt: skip
        self.node_id = node_id
        self.partitions: dict[TopicIdPartition, Partition] = {}
        self.is_alive = True
        self.lives = 1
        self.is_isolated = False
        self.image = ClusterImage()
        self.purgatory = Purgatory(timeline)
        self.deletions = Purgatory(timeline)
        self.delayed_fetches = Purgatory(timeline)
        # Called after every new image, when it has been applied.
        self.listeners: list[Callable[[], None]] = []
        self._settings = settings
        self._timeline = timeline
        self._controller = controller
        self._replication = replication
        self._journal = journal
        self._lag_checks: dict[TopicIdPartition, Timer] = {}

    @property
    def generation(self) -> Generation:
        return self._settings.generation

    def install(self, generation: Generation) -> None:
        """Replace the broker's software. The disk stays."""
        self._settings = replace(self._settings, generation=generation)
        for partition in self.partitions.values():
            partition.settings = self._settings

    def crash(self) -> None:
        self.is_alive = False
        for waiting in (self.purgatory, self.deletions, self.delayed_fetches):
            waiting.clear()
        for planned in self._lag_checks.values():
            planned.cancel()
        self._lag_checks.clear()

    def start(self) -> None:
        """Start from disk, without a role in any partition until an image arrives."""
        self.is_alive = True
        self.lives += 1
        self.image = ClusterImage()
        for partition in self.partitions.values():
            partition.restart(self._timeline.now_ms)

    def apply(self, image: ClusterImage) -> None:
        self.image = image
        hosted: set[TopicIdPartition] = set()
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if self.node_id in state.replicas:
                    key = TopicIdPartition(topic.topic_id, number)
                    hosted.add(key)
                    self._apply_state(topic, key, state)
        for key in [key for key in self.partitions if key not in hosted]:
            del self.partitions[key]
            self.changed(key)
        for listener in self.listeners:
            listener()

    def _apply_state(self, topic: TopicImage, key: TopicIdPartition, state: PartitionState) -> None:
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = Partition(
                self.node_id, topic.name, key, topic.settings, self._settings, self._journal
            )
        partition.apply(state, self.image.alive, self._timeline.now_ms)
        self.changed(key)
        if partition.is_leader:
            self._replication.wake_followers(partition)
        else:
            self._replication.wake(self.node_id, key)
        self._watch_lag(partition)

    def append(
        self, key: TopicIdPartition, records: bytes, acks: int, verification: Verification | None = None
    ) -> Appended:
        """As leader. `appended` is to follow when the whole request is appended. Raises Refused."""
        try:
            batch = parse_batch(records)
            if acks not in (-1, 0, 1):
                raise Refused(ErrorCode.invalid_required_acks, f"acks={acks}")
            return self.replica(key).append_as_leader(batch, acks, self._timeline.now_ms, verification)
        except Refused as refused:
            if refused.code is ErrorCode.invalid_record and not self.generation.has_invalid_record:
                raise Refused(ErrorCode.corrupt_message, str(refused)) from refused
            raise

    def append_as_coordinator(
        self, key: TopicIdPartition, records: bytes, timeout_ms: int, on_complete: Callable[[ErrorCode], None],
        verification: Verification | None = None,
    ) -> None:  # fmt: skip
        """With acks=all. `on_complete` gets the outcome, perhaps before this returns; after `timeout_ms` that is
        REQUEST_TIMED_OUT, whatever becomes of the batch."""

        def append(replica: Partition) -> Appended:
            return replica.append_as_coordinator(records, self._timeline.now_ms, verification)

        self._append_internally(key, append, timeout_ms, on_complete)

    def append_marker(
        self, key: TopicIdPartition, marker: EndTransactionMarker, on_complete: Callable[[ErrorCode], None]
    ) -> None:
        def append(replica: Partition) -> Appended:
            return replica.append_marker(marker, self._timeline.now_ms)

        self._append_internally(key, append, INTERNAL_TIMEOUT_MS, on_complete)

    def _append_internally(
        self, key: TopicIdPartition, append: Callable[[Partition], Appended], timeout_ms: int,
        on_complete: Callable[[ErrorCode], None],
    ) -> None:  # fmt: skip
        try:
            appended = append(self.replica(key))
        except Refused as refused:
            on_complete(refused.code)
            return
        self.appended(key)
        self.when_committed(key, appended.next_offset, timeout_ms, on_complete)

    def when_committed(
        self, key: TopicIdPartition, next_offset: int, timeout_ms: int, on_complete: Callable[[ErrorCode], None]
    ) -> None:
        """What ends before `next_offset` is below the high watermark, or cannot get there."""
        self.await_commit({key: next_offset}, timeout_ms, lambda codes: on_complete(codes[key]))

    def await_commit(
        self, required_offsets: Mapping[TopicIdPartition, int], timeout_ms: int, on_complete: Callable[[Codes], None]
    ) -> None:
        self.purgatory.add_settled(required_offsets, timeout_ms, self._check_enough_replicas, on_complete)

    def replica(self, key: TopicIdPartition) -> Partition:
        """Raises Refused without one."""
        partition = self.partitions.get(key)
        if partition is None:
            raise Refused(ErrorCode.not_leader_or_follower, "no replica here")
        return partition

    def leader_of(self, key: TopicIdPartition) -> tuple[int, int]:
        """Leader and leader epoch, as the replica here has them, or else as the image has them."""
        partition = self.partitions.get(key)
        if partition is not None:
            return partition.state.leader, partition.leader_epoch
        state = self.image.state_of(key)
        return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, -1)

    def appended(self, key: TopicIdPartition) -> None:
        """A leader without followers has committed by now; the others' followers fetch."""
        partition = self.partitions[key]
        if partition.maybe_increment_high_watermark(self._timeline.now_ms):
            self.changed(partition.key)
        self._replication.wake_followers(partition)
        self._watch_lag(partition)

    def changed(self, key: TopicIdPartition) -> None:
        """Requests that wait for the partition's offsets, or for this broker's part in it, are looked at."""
        for waiting in (self.purgatory, self.deletions, self.delayed_fetches):
            waiting.check(key)

    def follower_fetched(self, partition: Partition, node_id: int) -> None:
        """As leader: what is known of a follower changed."""
        before = partition.high_watermark
        self.deletions.check(partition.key)
        if partition.catches_up(node_id):
            self._alter_isr(partition, (*partition.isr, node_id))
        partition.maybe_increment_high_watermark(self._timeline.now_ms)
        if partition.high_watermark > before:
            self.changed(partition.key)
            self._replication.wake_followers(partition)
        self._watch_lag(partition)

    def delete_before(
        self, key: TopicIdPartition, offset: int, timeout_ms: int, on_complete: Callable[[ErrorCode], None]
    ) -> None:
        """As leader. `on_complete` gets the outcome when every live replica has deleted as much. Raises Refused."""
        partition = self.replica(key)
        partition.delete_before(offset)
        self._replication.wake_followers(partition)
        self.changed(key)
        self.deletions.add_settled(
            {key: offset}, timeout_ms, self._check_low_watermark, lambda codes: on_complete(codes[key])
        )

    def low_watermark(self, key: TopicIdPartition) -> int:
        """The smallest start offset of the partition's live replicas, as far as their fetches told."""
        partition = self.partitions[key]
        followers = [
            follower.log_start_offset
            for node_id, follower in partition.followers.items()
            if node_id in self.image.alive
        ]
        return min([partition.log.start_offset, *followers])

    def _check_low_watermark(self, key: TopicIdPartition, offset: int) -> ErrorCode | None:
        partition = self.partitions.get(key)
        if partition is None or not partition.is_leader:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none if self.low_watermark(key) >= offset else None

    def _alter_isr(self, partition: Partition, isr: Iterable[int]) -> None:
        altered = self._controller.alter_isr(
            partition.key, self.node_id, partition.leader_epoch, partition.state.partition_epoch, isr
        )
        if altered is not None:
            partition.apply(altered, self.image.alive, self._timeline.now_ms)

    def _watch_lag(self, partition: Partition, at_least_ms: int = 0) -> None:
        """Plans the moment at which a follower that is behind leaves the ISR; none while none is behind."""
        deadline_ms = partition.lag_deadline_ms()
        planned = self._lag_checks.get(partition.key)
        if deadline_ms is None:
            if planned is not None:
                self._lag_checks.pop(partition.key).cancel()
        elif planned is None:
            delay_ms = max(at_least_ms, deadline_ms - self._timeline.now_ms)
            self._lag_checks[partition.key] = self._timeline.after(delay_ms, lambda: self._shrink_isr(partition))

    def _shrink_isr(self, partition: Partition) -> None:
        del self._lag_checks[partition.key]
        lagging = partition.lagging(self._timeline.now_ms)
        if lagging:
            self._alter_isr(partition, [node_id for node_id in partition.isr if node_id not in lagging])
            self.changed(partition.key)
            self._replication.wake_followers(partition)
        # The controller refuses a leader that is one no more: that leader asks again as often as Kafka's does.
        self._watch_lag(partition, max(1, self._settings.replica_lag_time_max_ms // 2) if lagging else 0)

    def _check_enough_replicas(self, key: TopicIdPartition, required_offset: int) -> ErrorCode | None:
        partition = self.partitions.get(key)
        if partition is not None:
            return partition.check_enough_replicas(required_offset)
        if self.image.topic_of(key.topic_id) is None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.not_leader_or_follower
