"""Streams with real Spark, one of each guarantee, over three brokers to which things happen; nothing is ended for it.

acks=all, min.insync.replicas=2, and sessions and timeouts as Kafka has them by default, but for requests, which wait
10 s. One application's streams go through one fault after another. Each test waits until both have committed
micro-batches during the fault, where two brokers are left to take them, and after it, and then compares every row
since the topics were made with what librdkafka reads: with exactly-once it is there once, with at-least-once it is
there.

Tests come in any order: each finds streams that run, over brokers that are whole.
"""

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from broker_admin import (
    add_partitions,
    delete_topic,
    group_coordinator,
    held_back,
    leader,
    open_transactions,
    partition_count,
    transactions,
)
from chaos.brokers import (
    controller,
    full,
    has_ended,
    has_rows,
    restart_in_order,
    small_disk,
    started_again,
    stopped,
    wait_until_whole,
)
from chaos.comparison import Difference, ReadTopic, difference, first_whole
from chaos.proxy import Address, Direction, Kind, Proxies, Schedule
from chaos.streams import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEES, ROWS, Streams
from kafka_sink.broker import LocalKafka
from waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

VERSIONS = ["4.3.1", "3.9.2"]
DEADLINE_S = 300
PARTITIONS = 6
LISTENER = "PROXIED"
DISK_MIB = 256
# Kafka's defaults. A pause of 5 s is shorter than the session; during a pause of 45 s other brokers become leaders.
SESSIONS = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}
REPLICATED = {"default.replication.factor": 3, "min.insync.replicas": 2}
# Batches of 16 KiB: a micro-batch has several on their way to each partition.
OPTIONS = {"kafka.request.timeout.ms": "10000", "kafka.metadata.max.age.ms": "5000", "kafka.batch.size": "16384"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """`proxies` stand before its brokers; `small` has node 3's data, on a disk of its own, unless `why_not`."""

    kafka: LocalKafka
    proxies: Proxies
    small: Path
    why_not: str | None


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        why_not = stack.enter_context(small_disk(folder / "node-3" / "data", DISK_MIB))

        def address_of(node: int) -> Address:
            host, port = kafka.addresses_of(LISTENER).split(",")[node - 1].split(":")
            return host, int(port)

        proxies = stack.enter_context(Proxies((1, 2, 3), address_of))
        kafka = LocalKafka(
            nodes=3, kafka_version=request.param, dir=folder, config={**REPLICATED, **SESSIONS},
            listeners={LISTENER: "PLAINTEXT"}, advertised={LISTENER: proxies.ports},
        )  # fmt: skip
        stack.enter_context(kafka)
        yield Cluster(kafka, proxies, folder / "node-3" / "data", why_not)


@dataclass(slots=True)
class Trial:
    """Streams that run, and what was read of their topics so far."""

    cluster: Cluster
    streams: Streams
    read: dict[str, ReadTopic]
    # The first row that can be in a topic.
    first: dict[str, int]

    @property
    def kafka(self) -> LocalKafka:
        return self.cluster.kafka

    @property
    def sink(self) -> str:
        return self.streams.topics[EXACTLY_ONCE]

    def made_again(self) -> None:
        """The topics were: of what they had before nothing is to be seen."""
        for guarantee, topic in self.read.items():
            topic.begin_anew()
            del self.first[guarantee]

    def compare(self) -> dict[str, Difference]:
        found = {}
        for guarantee, topic in self.read.items():
            committed = self.streams.committed_rows(guarantee)
            topic.read_on()
            first = self.first.setdefault(guarantee, first_whole(topic.rows, ROWS))
            found[guarantee] = difference(topic.rows, first=first, committed=committed)
        return found


@pytest.fixture(scope="class")
def direct(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    yield from trial_over(cluster, cluster.kafka.bootstrap_servers, "direct", tmp_path_factory.mktemp("direct"))


@pytest.fixture(scope="class")
def proxied(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    servers, folder = cluster.proxies.bootstrap_servers, tmp_path_factory.mktemp("proxied")
    yield from trial_over(cluster, servers, "proxied", folder, **{"kafka.request.timeout.ms": "3000"})


def trial_over(cluster: Cluster, servers: str, name: str, folder: Path, **options: str) -> Iterator[Trial]:
    kafka, topics = cluster.kafka, {guarantee: f"{name}-{guarantee}" for guarantee in GUARANTEES}
    for topic in topics.values():
        kafka.create_topic(topic, PARTITIONS, replication_factor=3)
    streams = Streams(servers, folder, topics, {**OPTIONS, **options})
    read = {guarantee: ReadTopic(kafka.bootstrap_servers, topic) for guarantee, topic in topics.items()}
    try:
        yield Trial(cluster, streams, read, dict.fromkeys(GUARANTEES, 0))
    finally:
        streams.close()


Fault = Callable[..., contextlib.AbstractContextManager[None]]


@pytest.fixture
def fault(record_property: Callable[[str, object], None]) -> Fault:
    """`fault(trial, kind)`: the block is what happens to the streams; `ends`: with which errors one may end."""

    @contextlib.contextmanager
    def during(trial: Trial, kind: str, *, ends: Collection[str] = ()) -> Iterator[None]:
        streams = trial.streams
        streams.run()
        streams.get_on(1)
        ended, committed = len(streams.endings()), sum(map(streams.committed, GUARANTEES))
        read = sum(topic.records for topic in trial.read.values())
        doubled = trial.compare()[AT_LEAST_ONCE].doubled
        yield
        wait_until_whole(trial.kafka)
        streams.get_on(1)
        assert {error for _, error in streams.endings()[ended:]} <= set(ends), streams.told
        found = trial.compare()
        record_property("fault", kind)
        record_property("micro-batches", sum(map(streams.committed, GUARANTEES)) - committed)
        record_property("rows compared", sum(topic.records for topic in trial.read.values()) - read)
        record_property("rows lost", found[AT_LEAST_ONCE].lost + found[EXACTLY_ONCE].lost)
        record_property("rows doubled, exactly-once", found[EXACTLY_ONCE].doubled)
        record_property("rows doubled, at-least-once", found[AT_LEAST_ONCE].doubled - doubled)
        assert found[EXACTLY_ONCE] == Difference(lost=0, doubled=0, too_early=0)
        assert (found[AT_LEAST_ONCE].lost, found[AT_LEAST_ONCE].too_early) == (0, 0)

    return during


WHO: dict[str, Callable[[Trial], int]] = {
    "leader": lambda trial: leader(trial.kafka, trial.sink, 0),
    "controller": lambda trial: controller(trial.kafka),
    "coordinator of a transaction": lambda trial: transactions(trial.kafka, trial.sink)[f"{trial.sink}.0"].coordinator,
    "coordinator of a group": lambda trial: group_coordinator(trial.kafka, f"{trial.sink}.decision"),
}


class TestCluster:
    # --- brokers ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("who", WHO)
    def test_one_is_killed(self, direct: Trial, fault: Fault, who: str) -> None:
        with fault(direct, f"kill -9 of the {who}"):
            node = WHO[who](direct)
            with started_again(direct.kafka, node):
                direct.kafka.kill(node)
                direct.streams.get_on(2)

    @pytest.mark.parametrize("who", ["leader", "controller"])
    def test_one_stands_still_for_5_seconds(self, direct: Trial, fault: Fault, who: str) -> None:
        with fault(direct, f"SIGSTOP of the {who}, 5 s"), stopped(direct.kafka, WHO[who](direct), 5):
            pass

    def test_one_stands_still_for_45_seconds(self, direct: Trial, fault: Fault) -> None:
        """It finds that others lead, and what it has of its own is cut off."""
        with fault(direct, "SIGSTOP of the controller, which leads partitions, 45 s"):
            node = controller(direct.kafka)
            assert node in {leader(direct.kafka, direct.sink, each) for each in range(PARTITIONS)}
            with stopped(direct.kafka, node, 45):
                direct.streams.get_on(1)

    def test_all_are_restarted_one_after_another(self, direct: Trial, fault: Fault) -> None:
        with fault(direct, "rolling restart"):
            for node in direct.kafka.node_ids:
                restart_in_order(direct.kafka, node)
                wait_until_whole(direct.kafka)
                direct.streams.get_on(1)

    def test_the_disk_of_one_is_full(self, direct: Trial, fault: Fault) -> None:
        """Kafka ends a broker that cannot write."""
        if direct.cluster.why_not:
            pytest.skip(f"a small disk takes root: {direct.cluster.why_not}")
        kafka, node = direct.kafka, 3
        with fault(direct, "disk full"):
            with started_again(kafka, node), full(direct.cluster.small):
                wait_until(lambda: has_ended(kafka), DEADLINE_S, "the broker ends")
                direct.streams.get_on(2)
            assert "No space left on device" in (kafka.dir / f"node-{node}" / "broker.log").read_text(errors="replace")

    # --- topics -------------------------------------------------------------------------------------------------------

    def test_partitions_are_added(self, direct: Trial, fault: Fault) -> None:
        with fault(direct, "partitions added"):
            for topic in direct.read.values():
                count = partition_count(direct.kafka, topic.topic)
                add_partitions(direct.kafka, topic.topic, count + 2)
                wait_until(partial(has_rows, direct.kafka, topic.topic, count + 1), DEADLINE_S, "rows in the last one")

    def test_they_are_deleted_and_made_again(self, direct: Trial, fault: Fault) -> None:
        """A micro-batch with rows in the old one ends in an error; what is in the new one is whole micro-batches.

        Rows in a partition that the new one does not have, as others were added to the old one, have no leader to be
        asked.
        """
        streams, ended = direct.streams, len(direct.streams.endings())
        with fault(direct, "topics deleted and made again", ends={"TopicRecreated", "LeaderUnavailable"}):
            for _ in range(5):  # until it was in the middle of a micro-batch
                for topic in streams.topics.values():
                    delete_topic(direct.kafka, topic)
                    direct.kafka.create_topic(topic, PARTITIONS, replication_factor=3)
                begun = {guarantee: streams.committed_rows(guarantee) + ROWS for guarantee in GUARANTEES}
                direct.made_again()
                streams.get_on(1)
                direct.compare()
                assert all(direct.first[guarantee] <= begun[guarantee] for guarantee in GUARANTEES)
                if len(streams.endings()) > ended:
                    break
        assert len(streams.endings()) > ended

    # --- the application ----------------------------------------------------------------------------------------------

    def test_it_ends_in_order_and_leaves_nothing_open(self, direct: Trial, fault: Fault) -> None:
        with fault(direct, "restart of the application"):
            direct.streams.end()
            for guarantee, topic in direct.read.items():
                assert held_back(direct.kafka, topic.topic) == 0
                topic.read_on()
                assert max(topic.rows) == direct.streams.committed_rows(guarantee) - 1
            assert open_transactions(direct.kafka, direct.sink) == []
            direct.streams.run()


BOTH = tuple(Direction)
HARMS = {
    "delays": {(each, Kind.DELAYED): 100 for each in BOTH},
    "cuts": {(each, Kind.CUT): 15 for each in BOTH},
    "half sent": {(each, Kind.HALF): 15 for each in BOTH},
    "swallows": {(each, Kind.SWALLOWED): 10 for each in BOTH},
    "all of that": {(each, kind): 8 for each in BOTH for kind in Kind},
}
LEAST_HARM = 8


class TestNetwork:
    @pytest.mark.parametrize("harm", HARMS)
    def test_messages_come_to_harm(self, proxied: Trial, fault: Fault, harm: str) -> None:
        proxies, schedule = proxied.cluster.proxies, Schedule(1, HARMS[harm])
        before = proxies.happened.copy()

        def enough() -> bool:
            """Each kind, and some of them more often."""
            happened = proxies.happened - before
            return len(happened) >= len(schedule.per_thousand) and happened.total() >= LEAST_HARM

        with fault(proxied, f"messages: {harm}"), proxies.harm(schedule):
            wait_until(enough, DEADLINE_S, f"messages come to harm by {harm}")
            proxied.streams.get_on(1)
