"""A cluster of brokers in virtual time, without I/O: Kafka's bytes in, Kafka's bytes out.

The seam for tests and simulations. Requests go to `receive`; `take_outgoing` returns what brokers send. `advance` runs
the events that are due, and `next_event_ms` returns the time of the next one. Time never moves by itself. The same
seed, settings and calls give the same bytes.

Modelled: replication by fetch rounds, high watermarks, the ISR, elections, truncation, idempotence, the produce
purgatory, lagging metadata, throttling, a broker's quota of produced bytes, topics that go, come back and
grow, transactions, the offsets of groups that nobody joins, brokers of several releases and their upgrade. Readers get
what is on disk: from leaders and followers, at both isolation levels, after retention, compaction, truncation and harm;
`readable_records` says what a correct reader delivers. Of ACLs those of readers: a topic that may not be read, or not
be described. Not modelled: members of groups, sessions of Fetch, segments, tiered storage, other ACLs and quotas, a
controller that fails, coordinators of transactions and groups that die, SASL and TLS, and brokers before KIP-219, which
are older than Kafka 2.1: there a broker waits instead of its client.

Source: the Kafka classes named in each module.
"""

import functools
import random
import uuid
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from model.broker import Broker, Operation, Outgoing
from model.controller import NO_LEADER, Controller, PartitionState, TopicIdPartition
from model.coordinator_apis import CoordinatorApis
from model.group_coordinator import GroupCoordinator
from model.internal_topics import create_internal_topic
from model.partition import Partition
from model.partition_log import compact
from model.produce_api import ProduceApi
from model.read_apis import ReadApis
from model.read_journal import Isolation, ReadableRecord, ReadJournal, readable_records
from model.record_batches import RecordBatch
from model.replica_manager import ReplicaManager, Replication
from model.settings import PRODUCE, ClusterSettings, Generation, TopicSettings
from model.timeline import InterBroker, Timeline
from model.transaction_coordinator import TransactionCoordinator


class Cluster:
    """`rng` decides every delay. Administration happens at the time of the last `receive` or `advance`."""

    def __init__(self, *, node_ids: Sequence[int], rng: random.Random, settings: ClusterSettings) -> None:
        self.settings = settings
        self.node_ids = tuple(node_ids)
        self._rng = rng
        self._timeline = Timeline(settings.started_ms)
        self._outgoing: list[Outgoing] = []
        self.controller = Controller(node_ids, rng, settings, self._publish)
        self.controller.allocate_producer_ids(settings.taken_producer_ids)
        self._journal = ReadJournal()
        self.brokers: dict[int, Broker] = {}
        self.replicas: dict[int, ReplicaManager] = {}
        self._replication = Replication(self._timeline, rng, settings.replica_fetch_ms, self.replicas)
        inter_broker = InterBroker(self._timeline, rng)
        coordinators: dict[int, TransactionCoordinator] = {}
        create_topic = functools.partial(create_internal_topic, self.controller, len(self.node_ids))
        for node_id in node_ids:
            replicas = self.replicas[node_id] = ReplicaManager(
                node_id, settings, self._timeline, self.controller, self._replication, self._journal
            )
            broker = self.brokers[node_id] = Broker(
                node_id, settings, self._timeline, self.controller, replicas, self._outgoing
            )
            transactions = coordinators[node_id] = TransactionCoordinator(
                replicas, self.replicas, coordinators, inter_broker, settings, self._timeline, rng,
                broker.new_producer_id,
            )  # fmt: skip
            groups = GroupCoordinator(replicas, transactions, self._timeline, rng)
            broker.serve({PRODUCE: ProduceApi(broker, replicas, transactions, self._timeline).produce})
            broker.serve(ReadApis(broker, replicas, settings).handlers)
            broker.serve(CoordinatorApis(broker, replicas, transactions, groups, create_topic).handlers)
        self._acls_arrive_ms: dict[int, int] = {}
        self._images_arrive_ms: dict[int, int] = {}
        self._fenced_after_crash: dict[int, Callable[[], None]] = {}
        for replicas in self.replicas.values():
            replicas.apply(self.controller.image)

    # --- the wire and the time ----------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self._timeline.now_ms

    def receive(self, node_id: int, connection_id: int, frame: bytes, now_ms: int) -> None:
        """`frame`: one request without its length, over one connection. Connection ids are never used again. A broker
        that is down closes the connection."""
        self.advance(now_ms)
        self.brokers[node_id].receive(connection_id, frame)

    def disconnected(self, node_id: int, connection_id: int) -> None:
        """The client is gone. Its requests are executed, the answers are dropped."""
        self.brokers[node_id].disconnected(connection_id)

    def next_event_ms(self) -> int | None:
        return self._timeline.next_ms()

    def advance(self, now_ms: int) -> None:
        self._timeline.run_until(now_ms)

    def take_outgoing(self) -> list[Outgoing]:
        taken = list(self._outgoing)
        self._outgoing.clear()
        return taken

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, min_insync_replicas: int | None = None,
        **options: Any,
    ) -> uuid.UUID:  # fmt: skip
        """Partition p is led by the p-th broker, in a ring, and replicated to those after it. Brokers learn it later.
        `options`: of `TopicSettings`. Raises ValueError for a name that exists."""
        if min_insync_replicas is not None:
            options["min_insync_replicas"] = min_insync_replicas
        settings: TopicSettings = replace(self.settings.topic_defaults, **options)
        return self.controller.create_topic(name, partitions, replication_factor, settings)

    # --- logs that lose records ---------------------------------------------------------------------------------------

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention, or somebody's DeleteRecords: the log starts at `offset`, at its high watermark at most. Followers
        learn it with their next fetch. Raises ValueError without a live leader."""
        replicas, key = self._leading(topic, partition)
        replicas.delete_before(key, min(offset, replicas.partitions[key].high_watermark), 0, lambda code: None)

    def compact(
        self, topic: str, partition: int, node_id: int, removed: Container[int], *,
        stays_empty: Callable[[RecordBatch], bool] = lambda batch: False, delete_horizon_ms: int | None = None,
    ) -> None:  # fmt: skip
        """One replica loses the records at the offsets `removed`, as far as they are before its last stable offset, and
        not in its last batch. A batch without a record is gone then, unless it `stays_empty`. A marker goes when
        `removed` has it and the records of its transaction are gone."""
        replica = self.replica(topic, partition, node_id)
        assert replica is not None, f"broker {node_id} has no replica of {topic}-{partition}"
        log = replica.log
        end_offset = min(replica.last_stable_offset, log.batches[-1].base_offset) if log.batches else 0
        for batch, offsets in compact(log, end_offset, removed, stays_empty, delete_horizon_ms):
            self._journal.note_compacted(replica.key, batch, offsets)

    def harm(self, topic: str, partition: int, node_id: int, bit: int) -> int | None:
        """Flip this bit of a batch on one replica's disk: of one that has others before and behind it. Return its base
        offset, None if there is no such batch. Readers get it so; the broker has its index, and oracles know the
        batch as it was."""
        replica = self.replica(topic, partition, node_id)
        inner = [] if replica is None else list(replica.log.stored(replica.log.start_offset))[1:-1]
        if replica is None or not inner:
            return None
        batch = self._rng.choice(inner)
        data = bytearray(batch.data)
        data[bit // 8] ^= 1 << bit % 8
        replica.log.harmed[batch.base_offset] = bytes(data)
        return batch.base_offset

    def repair(self, topic: str, partition: int) -> None:
        for node_id in self.node_ids:
            replica = self.replica(topic, partition, node_id)
            if replica is not None:
                replica.log.harmed.clear()

    def _leading(self, topic: str, partition: int) -> tuple[ReplicaManager, TopicIdPartition]:
        key = TopicIdPartition(self.controller.image.topics[topic].topic_id, partition)
        for replicas in self.replicas.values():
            replica = replicas.partitions.get(key)
            if replicas.is_alive and replica is not None and replica.is_leader:
                return replicas, key
        raise ValueError(f"no leader for {topic}-{partition}")

    # --- faults -------------------------------------------------------------------------------------------------------

    def is_alive(self, node_id: int) -> bool:
        return self.replicas[node_id].is_alive

    def crash(self, node_id: int) -> None:
        """The process dies, its connections close. The controller notices later. The log is on disk, and the high
        watermark as of its last checkpoint."""
        if self.is_alive(node_id):
            self._stop_fetching(node_id)
            self.brokers[node_id].crash()
            self._detect(node_id)

    def _detect(self, node_id: int) -> None:
        def fence() -> None:
            if self._fenced_after_crash.pop(node_id, None) is fence:
                self.controller.broker_lost(node_id)

        self._fenced_after_crash[node_id] = fence
        self._timeline.after(self._rng.randint(*self.settings.failure_detection_ms), fence)

    def restart(self, node_id: int) -> None:
        """The broker is back, with what its disk holds. Whatever it led, it leads no more unless elected anew."""
        replicas = self.replicas[node_id]
        if replicas.is_alive:
            return
        undetected = self._fenced_after_crash.get(node_id)
        if undetected is not None:
            # A broker that registers anew ends its former life for the controller.
            undetected()
        replicas.start()
        self.controller.broker_ready(node_id)
        # It serves nobody before it has caught up with the controller.
        replicas.apply(self.controller.image)

    def install(self, node_id: int, generation: Generation) -> None:
        """Another release of Kafka, which the broker is when it is started next. It must be down."""
        assert not self.is_alive(node_id), f"broker {node_id} runs"
        self.replicas[node_id].install(generation)

    def elect(self, topic: str, partition: int, node_id: int | None = None, *, unclean: bool = False) -> None:
        """Moves the leader to `node_id`, or to the first live replica of the ISR. Unclean: any live replica may be it.
        Raises ValueError if none may."""
        self.controller.elect(topic, partition, node_id, unclean)

    def isolate(self, node_id: int, isolated: bool = True) -> None:
        """The broker's followers stop fetching, or go on. It still serves its clients and leads what it leads."""
        replicas = self.replicas[node_id]
        if isolated:
            self._stop_fetching(node_id)
        replicas.is_isolated = isolated
        if not isolated:
            for key in replicas.partitions:
                self._replication.wake(node_id, key)

    def forbid(self, topic: str, operation: Operation) -> None:
        """An ACL is taken away. Each broker learns it at a time of its own."""
        self._tell_brokers(lambda broker: broker.forbid(topic, operation))

    def allow(self, topic: str) -> None:
        """The topic's ACLs are given back."""
        self._tell_brokers(lambda broker: broker.allow(topic))

    def _tell_brokers(self, change: Callable[[Broker], None]) -> None:
        """In the order of the changes."""
        for node_id, broker in self.brokers.items():
            self._in_order(self._acls_arrive_ms, node_id, functools.partial(change, broker))

    def _stop_fetching(self, node_id: int) -> None:
        for replicas in self.replicas.values():
            for partition in replicas.partitions.values():
                partition.follower_stops(node_id, self.now_ms)

    # --- the truth, for oracles ---------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> uuid.UUID | None:
        image = self.controller.image.topics.get(topic)
        return image.topic_id if image is not None else None

    def partition_count(self, topic: str) -> int:
        return len(self.controller.image.topics[topic].partitions)

    def state(self, topic: str, partition: int) -> PartitionState:
        """As the controller decided last: leader (NO_LEADER: none), leader epoch, ISR, replicas."""
        return self.controller.image.topics[topic].partitions[partition]

    def leader(self, topic: str, partition: int) -> int | None:
        leader = self.state(topic, partition).leader
        return leader if leader != NO_LEADER else None

    def replica(self, topic: str, partition: int, node_id: int) -> Partition | None:
        """The replica on a broker's disk: its `log` (`end_offset`, `batches`) and `high_watermark`. None without."""
        key = TopicIdPartition(self.controller.image.topics[topic].topic_id, partition)
        return self.replicas[node_id].partitions.get(key)

    def leading_replica(self, topic: str, partition: int) -> Partition | None:
        """That of the leader which the controller decided last."""
        leader = self.leader(topic, partition)
        return self.replica(topic, partition, leader) if leader is not None else None

    def log_end_offset(self, topic: str, partition: int, node_id: int) -> int:
        replica = self.replica(topic, partition, node_id)
        return replica.log.end_offset if replica is not None else 0

    def high_watermark(self, topic: str, partition: int, node_id: int) -> int:
        replica = self.replica(topic, partition, node_id)
        return replica.high_watermark if replica is not None else 0

    def committed(self, topic: str, partition: int) -> list[RecordBatch]:
        """The batches (`data`, `base_offset`) below the high watermark of the leader; empty without a leader."""
        replica = self.leading_replica(topic, partition)
        return replica.log.read(0, replica.high_watermark) if replica is not None else []

    def read_committed(self, topic: str, partition: int) -> list[RecordBatch]:
        """Return what a read_committed reader sees; empty without a leader."""
        replica = self.leading_replica(topic, partition)
        return replica.readable(Isolation.READ_COMMITTED) if replica is not None else []

    def readable_records(
        self, topic: str, partition: int, isolation: Isolation, first_offset: int = 0, end_offset: int | None = None, *,
        topic_id: uuid.UUID | None = None,
    ) -> list[ReadableRecord]:  # fmt: skip
        """What a reader of [first_offset, end_offset) must deliver (fate KEPT), and may have delivered (the others).
        Ask when the cluster has healed; raises ValueError without a leader. `topic_id`: of a topic that is gone, or
        else the one that has this name now."""
        key = TopicIdPartition(topic_id or self.controller.image.topics[topic].topic_id, partition)
        state = self.controller.image.state_of(key)
        if state is not None and state.leader == NO_LEADER:
            raise ValueError(f"no leader for {topic}-{partition}")
        leader = self.replicas[state.leader].partitions[key] if state is not None else None
        return readable_records(self._journal, key, leader, isolation, first_offset, end_offset)

    # --- how decisions get to brokers ---------------------------------------------------------------------------------

    def _publish(self) -> None:
        for node_id in self.node_ids:
            if self.is_alive(node_id):
                self._send_image(node_id)

    def _send_image(self, node_id: int) -> None:
        image = self.controller.image

        def arrive() -> None:
            replicas = self.replicas[node_id]
            if replicas.is_alive and image.version > replicas.image.version:
                replicas.apply(image)

        self._in_order(self._images_arrive_ms, node_id, arrive)

    def _in_order(self, last_ms: dict[int, int], node_id: int, arrive: Callable[[], None]) -> None:
        """`last_ms`: when the last of this kind on its way to each broker arrives."""
        arrives_ms = self.now_ms + self._rng.randint(*self.settings.metadata_lag_ms)
        last_ms[node_id] = max(arrives_ms, last_ms.get(node_id, 0))
        self._timeline.at(last_ms[node_id], arrive)
