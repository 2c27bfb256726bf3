"""Executes and ends each kind of fault in the network, the cluster and the writers.

A fault with a duration returns the function that ends it. Overlapping faults of one kind end at the first end.
"""

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from model.cluster import Cluster
from model.record_batches import RecordBatch, decode_records
from model.settings import INIT_PRODUCER_ID, METADATA, PRODUCE, RELEASES, ClusterSettings
from model.timeline import Timeline
from simulation.faults import SHORTEST_BLOCK_MS, Fault, Plan, TopicPlan
from simulation.network import Network, Weather
from simulation.outcome import LogKey, Record, RowId, read_log, row_id_of
from simulation.producer import SimulatedProducer, VirtualTask

End = Callable[[], None] | None

# A leader that has not written and replicated anything by then goes on: it is looked at each millisecond.
STOPS_WITHIN_MS = 1_000
# Kinds that set something of the weather, that happen to all wires of a broker, and that refuse an API.
_WEATHER = {
    "slow": "latency_ms", "cuts": "cut_rate", "refuse_connects": "connect_failures", "lose_on_close": "close_loses"
}  # fmt: skip
_WIRES = {"cut_broker": "cut", "mute": "mute", "deafen": "deafen", "garble": "garble"}
_REFUSED = {"refuse_produce": PRODUCE, "refuse_metadata": METADATA, "refuse_producer_id": INIT_PRODUCER_ID}


class Injector:
    """`recreated`: topics that were deleted, and when."""

    def __init__(
        self, plan: Plan, *, scheduler: Timeline, cluster: Cluster, network: Network, tasks: list[VirtualTask],
        new_cluster: Callable[[str, ClusterSettings], Cluster], rng: random.Random,
    ) -> None:  # fmt: skip
        """`new_cluster`: an empty one, by the name of what decides its ids."""
        self.replaced: list[int] = []
        self.exposed: set[RowId] = set()
        self.recreated: defaultdict[str, list[int]] = defaultdict(list)
        self._lost_logs: dict[LogKey, list[Record]] = {}
        self._plan = plan
        self._scheduler = scheduler
        self.cluster = cluster
        self._new_cluster = new_cluster
        self._rng = rng
        self._network = network
        self._tasks = tasks
        self._topics = {topic.name: topic for topic in plan.topics}

    def begin(self, fault: Fault) -> None:
        end: End = None
        if fault.kind in _WEATHER:
            end = self._set(_WEATHER[fault.kind], fault.number)
        elif fault.kind in _WIRES:
            for wire in self._network.wires(node_id=fault.node):
                getattr(self._network, _WIRES[fault.kind])(wire)
        elif fault.kind in _REFUSED:
            for _ in range(fault.times):
                self.cluster.brokers[fault.node].refuse(_REFUSED[fault.kind], int(fault.number))
        else:
            end = getattr(self, fault.kind)(fault)
        if end is not None:
            self._scheduler.after(fault.lasts_ms, end)

    def prepare(self) -> None:
        for topic in self._plan.topics:
            self._create(topic)
        self._network.weather = self._calm()

    def _create(self, topic: TopicPlan) -> None:
        self.cluster.create_topic(
            topic.name, topic.partitions, topic.replication_factor, topic.min_insync_replicas,
            max_message_bytes=topic.max_message_bytes,
        )  # fmt: skip

    def _calm(self) -> Weather:
        return Weather(
            latency_ms=self._plan.latency_ms,
            pieces_rate=self._plan.pieces_rate,
            partial_write_rate=self._plan.partial_write_rate,
        )

    def stop(self) -> None:
        """The last fault is over: all brokers are up and the network is well.

        A lost packet may take longer than `request.timeout.ms`. Reconnecting after that takes several packets. If they
        were lost too, `max.block.ms` would end a write that no client can save. So no wait meets more than one."""
        self._network.weather = replace(self._calm(), losses_apart_ms=SHORTEST_BLOCK_MS)
        self._network.reset_impaired()
        for node_id in self._plan.nodes:
            self._network.heal(node_id)
            self._network.vacate(node_id)
            self.cluster.restart(node_id)
            self.cluster.isolate(node_id, False)
            self.cluster.brokers[node_id].forgive()

    def _set(self, name: str, value: float) -> End:
        setattr(self._network.weather, name, value)
        return lambda: setattr(self._network.weather, name, getattr(self._calm(), name))

    def cut_writer(self, fault: Fault) -> None:
        producer = self._tasks[fault.writer].producer
        for wire in [] if producer is None else self._network.wires(name=producer.name):
            self._network.cut(wire)

    def partition(self, fault: Fault) -> End:
        self._network.partition(fault.node)
        return lambda: self._network.heal(fault.node)

    def crash(self, fault: Fault) -> End:
        if not self.cluster.is_alive(fault.node):
            return None
        self.cluster.crash(fault.node)
        self._network.crashed(fault.node)
        return lambda: self.cluster.restart(fault.node)

    def stranger(self, fault: Fault) -> End:
        """A broker crashes, and a broker of another cluster has its address until it is back."""
        restart = self.crash(fault)
        if restart is None:
            return None
        name = f"stranger {fault.at_ms}"
        self._network.occupy(fault.node, self._new_cluster(name, replace(self.cluster.settings, cluster_id=name)))

        def end() -> None:
            self._network.vacate(fault.node)
            restart()

        return end

    def upgrade(self, fault: Fault) -> End:
        """Stop a broker, and start it as another release. One that is down already is that when it is back."""
        end = self.crash(fault)
        self.cluster.install(fault.node, RELEASES[fault.release])
        return end

    def assign_topic_ids(self, fault: Fault) -> None:
        self.cluster.controller.assign_topic_ids()

    def stop_leader(self, fault: Fault) -> End:
        """Stop a leader between replication and answer, as soon as it writes. The next leader has the batch, but the
        producer gets no answer."""
        leader = self._leader(fault)
        if leader is None:
            return None
        self._stop_once_written(fault, leader, self._end_offset(fault, leader))
        return lambda: self.cluster.restart(leader)

    def _stop_once_written(self, fault: Fault, leader: int, end_offset: int) -> None:
        if self._leader(fault) != leader or self._is_too_late(fault):
            return
        written = self._end_offset(fault, leader)
        if written == end_offset:
            self._scheduler.after(1, self._stop_once_written, fault, leader, end_offset)
            return
        for wire in self._network.wires(node_id=leader):
            self._network.mute(wire)
        self._stop_once_replicated(fault, leader, written)

    def _stop_once_replicated(self, fault: Fault, leader: int, end_offset: int) -> None:
        if self._leader(fault) != leader or self._is_too_late(fault):
            return
        isr = self.cluster.state(fault.topic, fault.partition).isr
        ready = [node for node in isr if node != leader and self._end_offset(fault, node) >= end_offset]
        if not ready:
            self._scheduler.after(1, self._stop_once_replicated, fault, leader, end_offset)
            return
        self.elect(replace(fault, node=ready[0]))
        self.cluster.crash(leader)
        self._network.crashed(leader)

    def _is_too_late(self, fault: Fault) -> bool:
        return self._scheduler.now_ms >= fault.at_ms + min(fault.lasts_ms, STOPS_WITHIN_MS)

    def _leader(self, fault: Fault) -> int | None:
        return self.cluster.leader(fault.topic, fault.partition) if self._exists(fault.topic) else None

    def _end_offset(self, fault: Fault, node_id: int) -> int:
        return self.cluster.log_end_offset(fault.topic, fault.partition, node_id)

    def elect(self, fault: Fault) -> None:
        # A replica that may not lead now is not elected: then nothing happens.
        with contextlib.suppress(ValueError, KeyError):
            self.cluster.elect(fault.topic, fault.partition, fault.node)

    def isolate(self, fault: Fault) -> End:
        self.cluster.isolate(fault.node)
        return lambda: self.cluster.isolate(fault.node, False)

    def throttle(self, fault: Fault) -> None:
        self.cluster.brokers[fault.node].throttle(int(fault.number), fault.times)

    def quota(self, fault: Fault) -> End:
        self.cluster.brokers[fault.node].limit(fault.number)
        return lambda: self.cluster.brokers[fault.node].limit(None)

    def grow(self, fault: Fault) -> None:
        if self._exists(fault.topic) and fault.number > self.cluster.partition_count(fault.topic):
            self.cluster.controller.add_partitions(fault.topic, int(fault.number))

    def recreate(self, fault: Fault) -> End:
        """Delete the topic with its rows now, and make it again when the fault ends."""
        if not self._exists(fault.topic):
            return None
        self.recreated[fault.topic].append(self._scheduler.now_ms)
        self._lost_logs.update(self._logs(fault.topic, self._whole_log))
        self.cluster.controller.delete_topic(fault.topic)
        return lambda: self._create(self._topics[fault.topic])

    def wipe(self, fault: Fault) -> End:
        """Replace all brokers by an empty cluster. Other writers use it first and get producer ids of the old
        cluster."""
        return self._replace(f"wipe {fault.at_ms}", f"model {fault.at_ms}", exposes=False)

    def restore(self, fault: Fault) -> End:
        """All brokers go, and come back as they were before the first row. Others write to it first, as above."""
        return self._replace("cluster", ClusterSettings().cluster_id, exposes=True)

    def _replace(self, name: str, cluster_id: str, *, exposes: bool) -> End:
        """`exposes`: what is under way may be taken for another's rows, as nobody can tell the cluster from the old
        one."""
        for node_id in self._plan.nodes:
            self.cluster.crash(node_id)
        self._end_of_all_connections(self.cluster, exposes)

        def begin() -> None:
            era, old = len(self.replaced), self.cluster
            for topic in filter(self._exists, self._topics):
                for key, records in self._logs(topic, self._whole_log).items():
                    self._lost_logs[key._replace(era=era)] = records
            taken = old.controller.producer_ids_given_out
            settings = replace(old.settings, cluster_id=cluster_id, taken_producer_ids=taken)
            self.cluster = self._new_cluster(name, settings)
            self.replaced.append(self._scheduler.now_ms)
            for planned in self._plan.topics:
                self._create(planned)
            self._end_of_all_connections(self.cluster, exposes)

        return begin

    def _end_of_all_connections(self, cluster: Cluster, exposes: bool) -> None:
        """End all connections. Active writers learn it at once; idle ones may learn nothing."""
        writing = {task.producer.name for task in self._tasks if task.is_writing and task.producer is not None}
        for task in self._tasks:
            if exposes and task.is_writing and task.producer is not None:
                self.exposed |= _rows_under_way(task.producer)
        self._network.replaced(cluster, lambda wire: wire.transport.name in writing or self._rng.random() < 0.5)

    def _exists(self, topic: str) -> bool:
        return self.cluster.topic_id(topic) is not None

    def partition_counts(self) -> dict[str, int]:
        return {topic: self.cluster.partition_count(topic) for topic in filter(self._exists, self._topics)}

    def committed_logs(self) -> dict[LogKey, list[Record]]:
        logs, era = dict(self._lost_logs), len(self.replaced)
        for topic in filter(self._exists, self._topics):
            for key, records in self._logs(topic, self.cluster.committed).items():
                logs[key._replace(era=era)] = records
        return logs

    def _logs(self, topic: str, read: Callable[[str, int], list[RecordBatch]]) -> dict[LogKey, list[Record]]:
        topic_id = self.cluster.topic_id(topic)
        partitions = range(self.cluster.partition_count(topic))
        return {LogKey(topic, topic_id, partition): read_log(read(topic, partition)) for partition in partitions}

    def _whole_log(self, topic: str, partition: int) -> list[RecordBatch]:
        """Of a replica that has all that is committed: a leader just elected may not know how much that is."""
        state = self.cluster.state(topic, partition)
        replica = self.cluster.replica(topic, partition, state.leader if state.leader in state.isr else state.isr[0])
        return [] if replica is None else list(replica.log.batches)

    def pause(self, fault: Fault) -> None:
        producer = self._tasks[fault.writer].producer
        if producer is not None:
            producer.paused_until_ms = self._scheduler.now_ms + fault.lasts_ms


def _rows_under_way(producer: SimulatedProducer) -> set[RowId]:
    """Those that have a number and no answer; of a producer that has failed nothing counts any more."""
    found: set[RowId] = set()
    if producer.sender.failure is not None:
        return found
    for batch in producer.sender.sequences.unanswered():
        if batch.wire_bytes is not None:
            ids = (row_id_of(key, value) for key, value, _, _ in decode_records(bytes(batch.wire_bytes)))
            found |= {row_id for row_id in ids if row_id is not None}
    return found
