"""Exactly-once with real Spark and three brokers, which move replicas, change the version of their transactions, have
too few replicas, or elect a replica that lacks rows. In `test_streams_under_faults.py` and `test_exactly_once_chaos.py`
brokers and applications end or pause."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from broker_admin import admin, held_back, leader, open_transactions, producer, read, send
from chaos.brokers import started_again, wait_until_whole
from exactly_once_runs import ALL_ONCE, ROWS_A_FILE, Run, go_on, incoming
from kafka_reads import PYKAFKA, both_ways, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.commit import attempt, deciding, planning
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.commit.handover import Facts, Sink, SlotBegun, SlotPrepared
from kafka_sink.commit.markers import Marker, Names
from kafka_sink.commit.runner import run
from kafka_sink.errors import AcknowledgedRowsGone, LogBroken, PreparedRowsGone, ProduceRejected
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_producer, once
from read_back import read_topic
from soak import topics
from soak.application import ALL, DRIVER, PLANNER
from soak.supervisor import PARTITIONS, TopicSupervisor
from soak.topics import TopicWriter
from spark_writes import pykafka
from waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2_400)]

DEADLINE_S = 300
# Spark starts, and plans its first micro-batch, on a machine that is busy.
START_DEADLINE_S = 900
COMMIT_TOPIC, GROUPS, TRANSACTIONS = "pykafka-commits", "__consumer_offsets", "__transaction_state"
STATE = (COMMIT_TOPIC, GROUPS, TRANSACTIONS)
# The time is what is done to the commit: its first requests are refused, and sent again.
REFUSED_S = 15
UNDECIDED = "before TxnOffsetCommit {sink}.decision"
DECIDED = "after EndTxn {sink}.driver commit"
OF_FIRST_MICRO_BATCH = Counter(range(2 * ROWS_A_FILE))


# --- replicas move, the version changes, drivers die ------------------------------------------------------------------


@pytest.fixture
def two_replicas() -> Iterator[LocalKafka]:
    """All is on two of the three brokers, so that it can move."""
    config = {
        "default.replication.factor": 2, "min.insync.replicas": 1, "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2, "transaction.state.log.min.isr": 1,
    }  # fmt: skip
    with LocalKafka(nodes=3, config=config) as three:
        yield three


def move_replicas(kafka: LocalKafka, *topics: str) -> None:
    """Move every partition to the next two brokers, and wait until all have arrived."""
    found = admin(kafka).list_topics(timeout=DEADLINE_S).topics
    target = {
        (topic, number): [each % 3 + 1 for each in partition.replicas]
        for topic in topics
        for number, partition in found[topic].partitions.items()
    }
    plan = [{"topic": topic, "partition": number, "replicas": to} for (topic, number), to in target.items()]
    file = kafka.dir / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    kafka.run_tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", kafka.bootstrap_servers,
        "--reassignment-json-file", str(file), "--execute",
    )  # fmt: skip

    def moved() -> bool:
        now = admin(kafka).list_topics(timeout=DEADLINE_S).topics
        of = {place: now[place[0]].partitions[place[1]] for place in target}
        return all(set(of[place].replicas) == set(of[place].isrs) == set(to) for place, to in target.items())

    wait_until(moved, DEADLINE_S, "all replicas have moved")


def switch_version(kafka: LocalKafka, way: str, version: int) -> None:
    kafka.run_tool(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", kafka.bootstrap_servers, way, "--feature",
        f"transaction.version={version}",
    )  # fmt: skip


def test_from_topic_to_topic_while_replicas_move_versions_change_and_drivers_die(
    two_replicas: LocalKafka, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("fault", "replicas move, transaction.version changes, and kill -9 of the driver")
    kafka, source, sink = two_replicas, "moved-source", "moved-sink"
    for topic in (source, sink):
        kafka.create_topic(topic, PARTITIONS, replication_factor=2)
    writer = TopicWriter(kafka.bootstrap_servers, source, seed=1)
    supervisor = TopicSupervisor(kafka, source, sink, tmp_path, seed=1)
    # More than what gathers during a fault, so that the query keeps up.
    supervisor.command += ["--source-option", "maxOffsetsPerTrigger=20000"]
    application, rng = supervisor.application, random.Random(1)
    command = [*supervisor.command, "--processing-time", "0 seconds"]

    def get_on() -> None:
        before = application.committed()

        def more() -> bool:
            if application.status() is not None:
                application.note_ending()
                application.start(command)
            return application.committed() > before

        wait_until(more, START_DEADLINE_S, "a micro-batch")

    faults: list[Callable[[], object]] = [
        lambda: switch_version(kafka, "downgrade", 1),
        lambda: move_replicas(kafka, source, sink, *STATE),
        lambda: application.kill(DRIVER, rng),
        lambda: move_replicas(kafka, *STATE),
        lambda: switch_version(kafka, "upgrade", 2),
        lambda: application.kill(PLANNER, rng),
        lambda: (move_replicas(kafka, sink, TRANSACTIONS), application.kill(ALL, rng)),
        lambda: (switch_version(kafka, "downgrade", 1), application.kill(DRIVER, rng)),
    ]
    with closing(supervisor):
        application.start(command)
        for fault in faults:
            get_on()
            fault()
        get_on()
        writer.stop()
        supervisor.finish()
    expected = topics.transformed(read_topic(kafka.bootstrap_servers, source, DEADLINE_S))
    found = topics.compared(expected, read_topic(kafka.bootstrap_servers, sink, DEADLINE_S))
    assert expected and found.none, found
    assert (open_transactions(kafka, sink), held_back(kafka, sink)) == ([], 0)
    # Spark ends a query whose planner has died.
    assert set(application.endings) <= {"status 1"}


# --- a broker is away, and the others may not write -------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3, config={"default.replication.factor": 3, "min.insync.replicas": 2}) as three:
        yield three


def set_min_isr(kafka: LocalKafka, count: int, *topics: str) -> None:
    for topic in topics:
        kafka.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, "--alter", "--entity-type",
            "topics", "--entity-name", topic, "--add-config", f"min.insync.replicas={count}",
        )  # fmt: skip


def in_sync(kafka: LocalKafka, topic: str) -> set[int]:
    partitions = admin(kafka).list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
    return set.union(*(set(each.isrs) for each in partitions))


@pytest.mark.parametrize(
    "step", [UNDECIDED, "before EndTxn {sink}.driver commit", DECIDED, "after EndTxn {sink}.0 commit"]
)
def test_the_least_number_of_replicas_is_lost_in_mid_commit(
    cluster: LocalKafka, tmp_path: Path, step: str, request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    record_property("fault", f"min.insync.replicas not met {step.format(sink='<sink>')}")
    name = f"isr-{request.node.callspec.indices['step']}"
    cluster.create_topic(name, 3, replication_factor=3)
    incoming(tmp_path / "incoming")
    step, topics = step.format(sink=name), (name, *STATE)
    with Run(cluster, name, tmp_path, "--key", "value", holds=[step]) as application:
        application.wait_until_held(step)
        try:
            set_min_isr(cluster, 3, *topics)
            with started_again(cluster, 3):
                cluster.kill(3)
                wait_until(lambda: all(in_sync(cluster, each) <= {1, 2} for each in topics), DEADLINE_S, "it is away")
                application.go_on(step)
                until = time.monotonic() + REFUSED_S
                wait_until(lambda: time.monotonic() >= until, DEADLINE_S, "brokers have refused for long")
            wait_until_whole(cluster)
        finally:
            set_min_isr(cluster, 2, *topics)
        application.end_well()
    assert read(cluster, name) == ALL_ONCE
    assert (open_transactions(cluster, name), held_back(cluster, name)) == ([], 0)


# --- an unclean election ----------------------------------------------------------------------------------------------

UNCLEAN = {"min.insync.replicas": 1, "unclean.leader.election.enable": "true"}


def unclean_topic(kafka: LocalKafka, name: str) -> tuple[int, int]:
    """Create a topic of one partition. Return its leader, and its other replica."""
    wait_until_whole(kafka)
    kafka.create_topic(name, 1, replication_factor=2, config=UNCLEAN)
    wait_until_whole(kafka)
    partition = admin(kafka).list_topics(name, timeout=DEADLINE_S).topics[name].partitions[0]
    (other,) = set(partition.replicas) - {partition.leader}
    return partition.leader, other


def elect(kafka: LocalKafka, name: str, first: int, second: int) -> None:
    """Make the replica that was away the leader, which the first one becomes a follower of."""
    kafka.kill(first)
    kafka.start(second)
    wait_until(lambda: leader(kafka, name, 0) == second, DEADLINE_S, "the other replica leads")
    kafka.start(first)
    wait_until_whole(kafka)


@pytest.mark.parametrize("step", [UNDECIDED, DECIDED])
def test_rows_of_a_transaction_are_gone_after_an_unclean_election_in_mid_commit(
    spark: SparkSession, cluster: LocalKafka, tmp_path: Path, step: str, request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """Before the decision the commit notices it. After it nobody can, as docs/guarantees.md says."""
    record_property("fault", f"unclean election {step.format(sink='<sink>')}")
    name = f"gone-{request.node.callspec.indices['step']}"
    first, second = unclean_topic(cluster, name)
    incoming(tmp_path / "incoming")
    step = step.format(sink=name)
    cluster.kill(second)
    wait_until(lambda: in_sync(cluster, name) == {first}, DEADLINE_S, "the other replica is away")
    with Run(cluster, name, tmp_path, holds=[step]) as application:
        application.wait_until_held(step)
        elect(cluster, name, first, second)
        application.go_on(step)
        status, said = application.end()
    if step.startswith("before"):
        assert status > 0 and "kafka_sink.errors.PreparedRowsGone" in said, said
        assert read(cluster, name) == read(cluster, name, "read_uncommitted") == Counter()
        go_on(spark, cluster, name, tmp_path)
        assert read(cluster, name) == ALL_ONCE
    else:
        assert status == 0, said
        go_on(spark, cluster, name, tmp_path)
        assert read(cluster, name) == ALL_ONCE - OF_FIRST_MICRO_BATCH
    assert (open_transactions(cluster, name), held_back(cluster, name)) == ([], 0)


def begun_slot(client: AdminClient, name: str) -> tuple[Sink, Facts, SlotBegun, Transaction]:
    """The first slot of the first micro-batch of a sink, and its transaction."""
    sink = Sink(Names(name, COMMIT_TOPIC), 120_000, client.transaction_version())
    ensure_commit_topic(client, COMMIT_TOPIC)
    facts = run(client, planning.plan(sink))
    begun = run(client, attempt.begin(sink, facts, slot=0, micro_batch_id=0, query_id="q"))
    ids = begun.ids.producer_id, begun.ids.producer_epoch
    return sink, facts, begun, Transaction(sink.names.slot(0), *ids, sink.transaction_version)


def test_the_last_rows_of_a_transaction_are_gone_after_an_unclean_election(
    cluster: LocalKafka, record_property: Callable[[str, object], None]
) -> None:
    """The other replica leads with the first rows, so the transaction begins where it began. Nothing is committed."""
    record_property("fault", "unclean election, of a replica with the first rows of a transaction")
    name = "gone-last"
    first, second = unclean_topic(cluster, name)
    config = sink_config({"kafka.bootstrap.servers": cluster.bootstrap_servers}).producer
    with once(AdminClient, config) as client, lease_producer(config) as writer:
        sink, facts, begun, transaction = begun_slot(client, name)
        write = Write(writer, topic=name, transaction=transaction)
        write.append(pa.record_batch({"value": ["1", "2"]}))
        wait_until(lambda: len(read(cluster, name, "read_uncommitted")) == 2, DEADLINE_S, "both replicas have them")
        cluster.kill(second)
        wait_until(lambda: in_sync(cluster, name) == {first}, DEADLINE_S, "the other replica is away")
        write.append(pa.record_batch({"value": ["3", "4", "5"]}))
        (receipt,) = write.finish()
        partition = TopicPartition(name, 0)
        run(client, attempt.prepare(sink, begun, Marker(0, "q", "f")))
        elect(cluster, name, first, second)
        slot = SlotPrepared(
            0, begun.ids, "q", "f", None, (partition,), {partition: receipt.first_offset}, {partition: 5}
        )
        with pytest.raises(PreparedRowsGone, match="lacks the last 3"):
            run(client, deciding.commit(sink, facts, [slot], micro_batch_id=0, now_ms=wall_clock_ms()))
        run(client, planning.abort(sink, facts.generation))
    assert read(cluster, name) == Counter()


@pytest.mark.parametrize(("version", "error"), [(1, AcknowledgedRowsGone), (2, ProduceRejected)])
def test_rows_of_a_transaction_are_gone_before_its_next_rows_come(
    version: int, error: type[Exception], record_property: Callable[[str, object], None]
) -> None:
    """The other replica leads without any of them. With transactions of version 1 a leader that knows nothing of the
    producer takes the next rows, where the first ones were (KIP-360)."""
    record_property("fault", f"unclean election in mid-write, transaction.version {version}")
    name = f"gone-between-{version}"
    with LocalKafka(nodes=3) as kafka:
        if version == 1:
            switch_version(kafka, "downgrade", 1)
        first, second = unclean_topic(kafka, name)
        config = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer
        with once(AdminClient, config) as client:
            *_, transaction = begun_slot(client, name)
            assert transaction.version == version
            kafka.kill(second)
            wait_until(lambda: in_sync(kafka, name) == {first}, DEADLINE_S, "the other replica is away")
            with pytest.raises(error), lease_producer(config) as writer:
                write = Write(writer, topic=name, transaction=transaction)
                write.append(pa.record_batch({"value": ["1", "2"]}))
                wait_until(lambda: len(read(kafka, name, "read_uncommitted")) == 2, DEADLINE_S, "they are there")
                elect(kafka, name, first, second)
                write.append(pa.record_batch({"value": ["3", "4", "5"]}))
                write.finish()


@pytest.mark.parametrize(
    ("isolation", "more"), [("read_committed", 60), ("read_uncommitted", 60), ("read_uncommitted", 5)]
)
def test_an_unclean_election_in_the_midst_of_transactions_that_are_read(
    spark: SparkSession, cluster: LocalKafka, tmp_path: Path,
    isolation: str, more: int, record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """The replica that is elected lacks a committed transaction, an aborted one and an open one. Its log stays shorter
    than what the stream has read, or grows over it with other records."""
    record_property("fault", f"unclean election, {isolation}, {more} other records")
    name = f"{isolation.replace('_', '-')}-{more}"
    first, second = unclean_topic(cluster, name)

    def transact(end: str, value: bytes, count: int = 10) -> None:
        of = producer(cluster, **{"transactional.id": f"{name}-{end}-{value.decode()}"})
        of.init_transactions(DEADLINE_S)
        of.begin_transaction()
        send(of, name, [value] * count)
        if end != "open":
            (of.commit_transaction if end == "commit" else of.abort_transaction)(DEADLINE_S)

    transact("commit", b"both")
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka.isolation.level": isolation}
    committed = isolation == "read_committed"
    seen = {b"both": 10, b"lost": 10} | ({} if committed else {b"aborted": 10, b"open": 10})
    with both_ways(spark, cluster, tmp_path, **options) as (strict, lenient):
        cluster.kill(second)
        transact("abort", b"aborted")
        transact("commit", b"lost")
        transact("open", b"open")
        wait_until(lambda: len(strict.rows) == len(lenient.rows) == sum(seen.values()), DEADLINE_S, "all is read")
        cluster.kill(first)
        cluster.start(second)
        wait_until(lambda: leader(cluster, name, 0) == second, DEADLINE_S, "the other replica leads")
        cluster.start(first)
        transact("commit", b"other", more)
        error = strict.error()
        assert isinstance(error, LogBroken), error
        assert (error.position, error.cause, error.goes_on_at) == (33 if committed else 43, "truncated", 11)
        assert "unclean.leader.election.enable=false" in str(error)
        wait_until(lambda: len(lenient.rows) == sum(seen.values()) + more, DEADLINE_S, "the other records are read")
    assert Counter(bytes(row.value) for row in strict.rows) == seen
    assert Counter(bytes(row.value) for row in lenient.rows) == {**seen, b"other": more}
    wait_until_whole(cluster)


# --- many partitions --------------------------------------------------------------------------------------------------


def test_from_300_partitions_into_300_while_a_broker_dies(
    spark: SparkSession, cluster: LocalKafka, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("fault", "kill -9 of a broker, 300 partitions to 300")
    source, sink, partitions, each = "wide-source", "wide-sink", 300, 10
    for topic in (source, sink):
        cluster.create_topic(topic, partitions, replication_factor=3)
    expected: Counter[int] = Counter()

    def more(first: int) -> None:
        of = producer(cluster)
        for number in range(partitions):
            values = range(first + number * each, first + (number + 1) * each)
            for value in values:
                of.produce(source, b"%d" % value, partition=number)
            expected.update(values)
        assert of.flush(DEADLINE_S) == 0

    def query() -> None:
        frame = stream(
            spark, PYKAFKA, cluster, subscribe=source, startingOffsets="earliest",
            **{"kafka.isolation.level": "read_committed"},
        )  # fmt: skip
        rows = frame.selectExpr("value")
        writer = pykafka(rows.writeStream, cluster, sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=sink)
        running = writer.trigger(availableNow=True).start()
        try:
            wait_until(lambda: held_back(cluster, sink) > 0 or not running.isActive, DEADLINE_S, "rows")
            with started_again(cluster, victim):
                cluster.kill(victim)
            assert running.awaitTermination(DEADLINE_S)
        finally:
            running.stop()

    for victim in (1, 2):
        more(victim * 10_000)
        query()
        wait_until_whole(cluster)
    assert read(cluster, sink) == expected
    assert (open_transactions(cluster, sink), held_back(cluster, sink)) == ([], 0)
