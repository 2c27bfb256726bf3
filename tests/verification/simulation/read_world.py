"""What readers of a seed read: a topic in the model cluster, behind a faulty network, until the faults end.

Producers write to each partition, some in transactions. Faults strike the topic, its brokers and their connections.
When they end, all brokers run, and all transactions end.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Operation
from model.byte_client import ByteClient
from model.cluster import Cluster
from model.read_faults import PASSING, WEIGHTS, ReadFaults
from model.read_traffic import ReadTraffic
from model.readable_records import ReadableRecord
from model.settings import KAFKA_3_3, METADATA, ClusterSettings
from simulation.faults import address_of
from simulation.network import Network
from simulation.scheduler import Scheduler

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
        self._scheduler = Scheduler()
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
    def digest(self) -> str:
        return self._network.digest

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


def key_of(record: ReadableRecord) -> Row:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def row_of(record: dict[str, Any]) -> Row:
    milliseconds = (record["timestamp"] - _EPOCH) // datetime.timedelta(milliseconds=1)
    headers = tuple((each["key"], each["value"]) for each in record["headers"] or ())
    return record["offset"], milliseconds, record["key"], record["value"], headers
