"""What readers of a seed read: a topic in the model cluster, behind a faulty network, until the faults end.

Producers write to each partition, some in transactions. Faults strike the topic, its brokers and their connections.
When they end, all brokers run, and all transactions end.
"""

import datetime
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.consumer.fetch_range import RecordSet
from kafka_sink.records.decoder import RecordSetDecoder
from model.broker import Operation
from model.clients import ByteClient, produce_request, record_batch
from model.cluster import Cluster
from model.partition import Partition
from model.read_journal import Isolation, ReadableRecord
from model.record_batches import RecordBatch
from model.settings import FETCH, KAFKA_3_3, LIST_OFFSETS, METADATA, PRODUCE, WRITE_TXN_MARKERS, ClusterSettings
from model.timeline import Timeline
from model.wire import request_of
from simulation.faults import address_of
from simulation.network import Network

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
            self.cluster.brokers[node_id].forgive()

    def _leading(self, partition: int) -> Partition | None:
        replica = self.cluster.leading_replica(self.topic, partition)
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
        self.cluster.controller.delete_topic(self.topic)
        self.cluster.create_topic(self.topic, len(image.partitions), len(image.partitions[0].replicas))
        return f"{image.topic_id} is gone"

    def _partitions_added(self, partition: int) -> str | None:
        total = self.cluster.partition_count(self.topic) + 1
        self.cluster.controller.add_partitions(self.topic, total)
        return f"{total} now"

    def _throttle(self, partition: int) -> str | None:
        node_id, throttle_time_ms = self.rng.choice(self.cluster.node_ids), self.rng.choice([10, 200, 2_000])
        self.cluster.brokers[node_id].throttle(throttle_time_ms, self.rng.randint(1, 3))
        return f"{node_id} for {throttle_time_ms} ms"

    def _refusal(self, partition: int) -> str | None:
        node_id, code = self.rng.choice(self.cluster.node_ids), self.rng.choice(PASSING)
        self.cluster.brokers[node_id].refuse(self.rng.choice([FETCH, LIST_OFFSETS]), code)
        return f"{node_id} answers {code.name}"

    def _slow_storage(self, partition: int) -> str | None:
        node_id, fetches = self.rng.choice(self.cluster.node_ids), self.rng.choice([1, 3, 10])
        self.cluster.brokers[node_id].withhold(fetches)
        return f"{node_id} withholds the records of {fetches} fetches"


_PRODUCE_VERSION = 9


class ReadTraffic:
    """Rows to one partition, some in transactions, each of a producer of its own. Brokers of the model verify none, so
    it needs no coordinator: it writes markers to the leader."""

    def __init__(self, client: ByteClient, rng: random.Random, partition: int = 0) -> None:
        self.client = client
        self._rng = rng
        self._partition = partition
        self._open: dict[int, bool] = {}
        self.ended: dict[int, bool] = {}
        self._rows = 0
        self._producer_id = 1_000 * (1 + partition)

    def step(self) -> None:
        kind = self._rng.choices(["row", "begin", "go on", "end"], [5, 3, 3, 4])[0]
        if kind == "row":
            self._send(record_batch(*self._values(), timestamp_ms=self.client.cluster.now_ms), None)
        elif kind == "begin":
            self._producer_id += 1
            self._open[self._producer_id] = self._rng.random() < 0.6
            self._write(self._producer_id)
        elif self._open:
            producer_id = self._rng.choice(list(self._open))
            if kind == "go on":
                self._write(producer_id)
            else:
                self.ended[producer_id] = self._open.pop(producer_id)
                self.end(producer_id)

    def finish(self) -> None:
        self.ended |= self._open
        self._open.clear()
        for producer_id in self.ended:
            self.end(producer_id)

    def _values(self) -> list[bytes]:
        count = self._rng.choice([1, 1, 2, 5])
        self._rows += count
        return [b"row %d" % row + bytes(self._rng.choice([0, 100])) for row in range(self._rows - count, self._rows)]

    def _write(self, producer_id: int) -> None:
        # A producer of many batches needs their answers; here each batch of a transaction has a first sequence.
        records = record_batch(
            *self._values(), producer_id=producer_id, producer_epoch=0, base_sequence=self._rows * 10,
            is_transactional=True, timestamp_ms=self.client.cluster.now_ms,
        )  # fmt: skip
        self._send(records, "x")

    def _send(self, records: bytes, transactional_id: str | None) -> None:
        message = produce_request(
            _PRODUCE_VERSION, {("t", self._partition): records}, {}, acks=self._rng.choice([1, -1]), timeout_ms=1_000,
            transactional_id=transactional_id,
        )  # fmt: skip
        self._to_leader(PRODUCE, _PRODUCE_VERSION, message)

    def end(self, producer_id: int) -> int | None:
        marker = {
            "transaction_result": self.ended[producer_id], "coordinator_epoch": 0, "producer_id": producer_id,
            "producer_epoch": 0, "topics": ({"name": "t", "partition_indexes": (self._partition,)},),
        }  # fmt: skip
        return self._to_leader(WRITE_TXN_MARKERS, 1, request_of(WRITE_TXN_MARKERS, 1, markers=(marker,)))

    def _to_leader(self, api_key: int, version: int, message: Any) -> int | None:
        leader = self.client.cluster.leader("t", self._partition)
        if leader is None or not self.client.cluster.is_alive(leader):
            return None
        # A request behind one that waits would wait, too.
        self.client.reconnect(leader)
        return self.client.send(leader, api_key, version, message)


NODES = (0, 1, 2)
RACKS = {0: "a", 1: "b", 2: "a"}
TOPIC, PARTITION = "t", 0
FAULTS_END_MS = 20_000
HEALED_MS = FAULTS_END_MS + 8_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
COLUMNS = ("offset", "timestamp", "key", "value", "headers")

# Followers that lag become leaders, again and again.
_TRUNCATING = {"lag": 40, "unclean_election": 40, "restart": 40}

Trace = Callable[[str], None]
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True, slots=True)
class ReadResult:
    problem: str | None
    digest: str
    counts: Counter[str]


class _UnheardClient(ByteClient):
    """Nobody reads its answers: the network takes what the cluster says, and drops what is for none of its wires."""

    def collect(self) -> None:
        pass


class ReadWorld:
    """`partitions`: how many have producers from the start. `name`: of the reader, among those of a seed."""

    _isolation_level: IsolationLevel

    # Between two faults, and how many of them are the network's.
    faults_apart_ms: tuple[int, ...] = (10, 100, 500, 2_000)
    share_of_network = 0.4
    # Of the seeds: those in which the reader's ACLs are taken away and given back, or cannot be looked at.
    share_of_acls = 0.2
    kinds_of_acls: tuple[str, ...] = ("read", "describe", "trouble")
    # For longer than a reader takes for sure that a topic is gone, or for a moment.
    without_acl_ms: tuple[int, ...] = (20, 300, 2_000, 8_000, 12_000)

    def __init__(self, seed: int, name: str, trace: Trace | None, partitions: int = 1) -> None:
        self._name = name
        self.counts: Counter[str] = Counter()
        self._trace = trace
        self._rng = rng = random.Random(f"{seed}/{name}ing")
        self._scheduler = Timeline()
        settings = ClusterSettings(
            generation=KAFKA_3_3, replica_lag_time_max_ms=100, failure_detection_ms=(10, 100),
            racks=rng.choice([{}, RACKS]), metadata_lag_ms=(1, 30), high_watermark_checkpoint_interval_ms=500,
        )  # fmt: skip
        self._cluster = Cluster(node_ids=NODES, rng=random.Random(f"{seed}/cluster"), settings=settings)
        self._cluster.create_topic(TOPIC, partitions, 3, 1)
        self._cluster.advance(2_000)
        self._scheduler.now_ms = 2_000
        addresses = {address_of(node_id): node_id for node_id in NODES}
        self._servers = ",".join(f"{host}:{port}" for host, port in addresses)
        self._network = Network(self._cluster, self._scheduler, random.Random(f"{seed}/network"), addresses, self._say)
        if trace is None:
            self._network.trace = None
        self._unheard = _UnheardClient(self._cluster, _next_connection=10**6)
        self._traffic = [ReadTraffic(self._unheard, rng, number) for number in range(partitions)]
        self._faults = ReadFaults(self._cluster, TOPIC, rng, self._weights())
        # Of its own: a seed without such a fault is as it would be without this kind.
        self._acl_rng = random.Random(f"{seed}/{name}ing/acls")
        self._loses_acls = self._acl_rng.random() < self.share_of_acls

    def _weights(self) -> dict[str, int]:
        rng = self._rng
        return {**WEIGHTS, "topic_again": rng.choice([0, 0, 0, 2]), **rng.choice([{}, _TRUNCATING])}

    def _begin(self) -> None:
        self._scheduler.after(0, self._write)
        self._scheduler.after(0, self._strike)
        self._scheduler.at(FAULTS_END_MS, self._heal)
        if self._loses_acls:
            self._scheduler.after(self._acl_rng.choice([500, 2_000, 5_000]), self._forbid)

    def _step(self) -> None:
        scheduler = self._scheduler
        ours_ms, theirs_ms = scheduler.next_ms(), self._cluster.next_event_ms()
        if theirs_ms is not None and (ours_ms is None or theirs_ms <= ours_ms):
            scheduler.now_ms = max(scheduler.now_ms, theirs_ms)
            self._cluster.advance(theirs_ms)
            self._network.deliver_answers()
        else:
            scheduler.step()

    @property
    def _isolation(self) -> Isolation:
        is_committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        return Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED

    def run(self) -> None:
        raise NotImplementedError

    def mistakes(self) -> list[str]:
        raise NotImplementedError

    def result(self) -> ReadResult:
        try:
            self.run()
            mistakes = self.mistakes()
        except Exception:
            mistakes = [f"a defect:\n{traceback.format_exc()}"]
        problem = f"{self._name}ing: {'; '.join(mistakes[:5])}" if mistakes else None
        return ReadResult(problem, self._network.digest, self.counts)

    def _say(self, text: str) -> None:
        if self._trace:
            self._trace(f"{self._scheduler.now_ms:>7} ms  {text}")

    def _write(self) -> None:
        if self._scheduler.now_ms < FAULTS_END_MS:
            self._cluster.advance(self._scheduler.now_ms)
            self._next_traffic().step()
            self._network.deliver_answers()
            self._scheduler.after(self._rng.choice([1, 10, 50, 200]), self._write)

    def _next_traffic(self) -> ReadTraffic:
        return self._traffic[0]

    def _strike(self) -> None:
        if self._scheduler.now_ms >= FAULTS_END_MS:
            return
        self._cluster.advance(self._scheduler.now_ms)
        done = self._faults.strike() if self._rng.random() < 1 - self.share_of_network else self._strike_network()
        if done is not None:
            self.counts[f"{self._name}: fault {done.split()[0]}"] += 1
            self._say(f"FAULT {done}")
        self._network.deliver_answers()
        self._scheduler.after(self._rng.choice(self.faults_apart_ms), self._strike)

    def _strike_network(self) -> str | None:
        wires = self._network.wires()
        if not wires:
            return None
        wire = self._rng.choice(wires)
        kind = self._rng.choice(["cut", "cut", "mute", "deafen"])
        getattr(self._network, kind)(wire)
        return kind

    def _forbid(self) -> None:
        if self._scheduler.now_ms >= FAULTS_END_MS:
            return
        self._cluster.advance(self._scheduler.now_ms)
        kind = self._acl_rng.choice(self.kinds_of_acls)
        self._say(f"FAULT acl {kind}")
        self.counts[f"{self._name}: fault acl_{kind}"] += 1
        if kind == "trouble":
            code = self._acl_rng.choice([*PASSING, ErrorCode.request_timed_out])
            self._answer_metadata(code)
        else:
            self._cluster.forbid(TOPIC, Operation[kind.upper()])
        self._scheduler.after(self._acl_rng.choice(self.without_acl_ms), self._allow)

    def _allow(self) -> None:
        self._cluster.advance(self._scheduler.now_ms)
        self._cluster.allow(TOPIC)
        self._answer_metadata(ErrorCode.none)
        self._say("the ACL is back")
        self._scheduler.after(self._acl_rng.choice([100, 1_000, 5_000]), self._forbid)

    def _answer_metadata(self, code: ErrorCode) -> None:
        """Of each topic with this code, as a cluster does whose authorizer has a trouble of its own."""
        for broker in self._cluster.brokers.values():
            broker.add_rule(METADATA, lambda request: code)

    def _heal(self) -> None:
        self._say("the faults stop")
        self._cluster.allow(TOPIC)
        self._answer_metadata(ErrorCode.none)
        self._faults.heal()
        self._network.reset_impaired()
        self._scheduler.after(3_000, self._elect)

    def _elect(self) -> None:
        for partition in range(self._cluster.partition_count(TOPIC)):
            if self._cluster.leader(TOPIC, partition) is None:
                self._cluster.elect(TOPIC, partition, unclean=True)
        self._scheduler.after(3_000, self._end_transactions)

    def _end_transactions(self) -> None:
        for traffic in self._traffic:
            traffic.finish()


def rows_of(record_set: RecordSet) -> Iterator[Row]:
    decoder = RecordSetDecoder(
        record_set.records, first_offset=record_set.offset, end_offset=record_set.end, columns=COLUMNS,
        aborted=record_set.aborted_transactions,
    )  # fmt: skip
    return (row_of(each) for batch in decoder for each in batch.to_pylist())


def offsets_of(batches: Iterable[RecordBatch]) -> Iterator[tuple[int, int]]:
    """The leader epoch and the offset of each place for a record."""
    for batch in batches:
        for offset in range(batch.base_offset, batch.next_offset):
            yield batch.leader_epoch, offset


def offsets_without_row(leader: Partition, isolation: Isolation) -> set[int]:
    """Those that have a record without a row: a marker, or a row of an aborted transaction."""
    end, rows = leader.fetchable_offset(isolation), {offset for _, offset in offsets_of(leader.readable(isolation))}
    return {offset for _, offset in offsets_of(leader.log.batches) if offset < end} - rows


def key_of(record: ReadableRecord) -> Row:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def row_of(record: dict[str, Any]) -> Row:
    milliseconds = (record["timestamp"] - _EPOCH) // datetime.timedelta(milliseconds=1)
    headers = tuple((each["key"], each["value"]) for each in record["headers"] or ())
    return record["offset"], milliseconds, record["key"], record["value"], headers
