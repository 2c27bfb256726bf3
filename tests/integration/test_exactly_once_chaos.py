"""Exactly-once with real Spark, real brokers, and what goes wrong around a commit.

Brokers die in it; a driver sleeps through its transactions' timeout; a replay has other rows or slots; two drivers are
on one checkpoint; another query has an old one's name.

Windows are reached by holding the process that runs a step of the commit (`exactly_once_runs.Run`).
"""

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import processes
from broker_admin import group_coordinator, held_back, leader, open_transactions, read, transactions
from exactly_once_runs import ALL_ONCE, ROWS_A_FILE, Run, finish_run, go_on, incoming, kill_at
from kafka_sink.broker import LocalKafka
from spark_writes import Here
from waiting import wait_until

# Three starts of Spark, and brokers that come back, take minutes where everything waits for a core.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

DEADLINE_S = 120
VERSIONS = ["4.3.1", "3.9.2"]
COMMIT_TOPIC = "pykafka-commits"
REPLICATED = {"default.replication.factor": 3, "min.insync.replicas": 2}
OF_FIRST_MICRO_BATCH = Counter(range(2 * ROWS_A_FILE))
DECIDED = "after EndTxn {sink}.driver commit"
UNDECIDED = "before TxnOffsetCommit {sink}.decision"
# Distinct keys, so that each slot has rows of each partition.
SPREAD = ("--key", "value")
# A transaction must last for its micro-batch and 5 s, and may not last as long as a test.
SHORT = ("kafka.transaction.timeout.ms=30000", "kafka.delivery.timeout.ms=30000", "kafka.request.timeout.ms=15000")


def assert_whole(kafka: LocalKafka, topic: str) -> None:
    assert read(kafka, topic) == ALL_ONCE
    assert open_transactions(kafka, topic) == []
    assert held_back(kafka, topic) == 0


def fails_with(error: str, status: int, said: str) -> None:
    assert status > 0, said
    assert f"kafka_sink.errors.{error}" in said


# What a transaction's coordinator knows is on one broker only: it answers EndTxn, also while a broker is stopped that
# would have to copy that.
ALONE = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3, kafka_version=request.param, config=REPLICATED | ALONE) as three:
        yield three


@pytest.fixture(scope="module", params=VERSIONS)
def replicated(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """Three brokers, with all that they know on each."""
    with LocalKafka(nodes=3, kafka_version=request.param, config=REPLICATED) as three:
        yield three


@pytest.fixture(scope="module")
def impatient() -> Iterator[LocalKafka]:
    """A broker that looks for transactions that have timed out every second; by default every 10 s."""
    with LocalKafka(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000}) as one:
        yield one


@pytest.mark.parametrize("dies", ["leader", "coordinator"])
def test_a_broker_dies_between_an_end_txn_and_its_markers(cluster: LocalKafka, tmp_path: Path, dies: str) -> None:
    name = f"markers-{dies}"
    cluster.create_topic(name, 6, replication_factor=3)
    incoming(tmp_path / "incoming")
    before, after = f"before EndTxn {name}.0 commit", f"after EndTxn {name}.0 commit"
    with Run(cluster, name, tmp_path, *SPREAD, holds=[before, after]) as application:
        application.wait_until_held(before)
        coordinator = transactions(cluster, f"{name}")[f"{name}.0"].coordinator
        stopped = next(node for each in range(6) if (node := leader(cluster, name, each)) != coordinator)
        # From here on no marker gets into this broker's partitions.
        processes.stop(cluster.pid(stopped))
        application.go_on(before)
        application.wait_until_held(after)
        dead = stopped if dies == "leader" else coordinator
        cluster.kill(dead)
        if dies == "coordinator":
            processes.resume(cluster.pid(stopped))
        application.go_on(after)
        cluster.start(dead)
        application.end_well()
    assert_whole(cluster, name)


# Step -> who dies there.
DYING: dict[str, Callable[[LocalKafka, str], int]] = {
    # Of a transaction.
    DECIDED: lambda kafka, name: transactions(kafka, name)[f"{name}.1"].coordinator,
    # Of the groups.
    UNDECIDED: lambda kafka, name: group_coordinator(kafka, f"{name}.decision"),
    "before TxnOffsetCommit {sink}.0": lambda kafka, name: leader(kafka, COMMIT_TOPIC, 0),
}


@pytest.mark.parametrize("step", DYING)
def test_a_broker_dies_in_mid_commit_and_comes_back(replicated: LocalKafka, tmp_path: Path, step: str) -> None:
    name = f"dying-{[*DYING].index(step)}"
    replicated.create_topic(name, 3, replication_factor=3)
    incoming(tmp_path / "incoming")
    held = step.format(sink=name)
    with Run(replicated, name, tmp_path, *SPREAD, holds=[held]) as application:
        application.wait_until_held(held)
        dead = DYING[step](replicated, name)
        replicated.kill(dead)
        application.go_on(held)
        replicated.start(dead)
        application.end_well()
    assert_whole(replicated, name)


@pytest.mark.parametrize(
    ("step", "error", "visible"),
    [
        (UNDECIDED, "TransactionTimedOut", Counter()),
        ("before EndTxn {sink}.driver commit", "TransactionTimedOut", Counter()),
        (DECIDED, "CommitOutcomeUnknown", Counter()),
        ("after EndTxn {sink}.0 commit", "CommitOutcomeUnknown", Counter(range(ROWS_A_FILE))),
    ],
)
def test_the_driver_sleeps_past_the_timeout(
    spark: SparkSession, impatient: LocalKafka, tmp_path: Path, step: str, error: str, visible: Counter[int]
) -> None:
    name = f"asleep-{re.sub('[^a-zA-Z0-9]', '-', step)}"
    impatient.create_topic(name, 3)
    incoming(tmp_path / "incoming")
    step = step.format(sink=name)
    with Run(impatient, name, tmp_path, *SHORT, holds=[step]) as application:
        application.wait_until_held(step)
        application.send_signal(signal.SIGSTOP)
        wait_until(lambda: not open_transactions(impatient, name), DEADLINE_S, "the transactions time out")
        application.send_signal(signal.SIGCONT)
        application.go_on(step)
        status, said = application.end()
    fails_with(error, status, said)
    # All of a slot or nothing of it.
    got = read(impatient, name)
    assert got == visible or (visible and got in slots_of_first_micro_batch())
    go_on(spark, impatient, name, tmp_path)
    assert_whole(impatient, name)


def slots_of_first_micro_batch() -> list[Counter[int]]:
    return [Counter(range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)) for file in range(2)]


def test_other_rows_come_when_a_part_of_the_micro_batch_has_timed_out(
    spark: SparkSession, impatient: LocalKafka, tmp_path: Path
) -> None:
    name = "torn"
    impatient.create_topic(name, 3)
    kill_at(f"after EndTxn {name}.0 commit", impatient, name, tmp_path, *SHORT)
    wait_until(lambda: not open_transactions(impatient, name), DEADLINE_S, "the transaction times out")
    fails_with("TornBatch", *finish_run(spark, impatient, name, tmp_path, *SHORT, "--key", "rand()"))
    assert read(impatient, name) in slots_of_first_micro_batch()
    assert open_transactions(impatient, name) == []
    # With the rows that it had it goes on.
    go_on(spark, impatient, name, tmp_path)
    assert_whole(impatient, name)


OTHERWISE = [("--slots", "1"), ("--slots", "3"), ("--key", "rand()")]


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_other_slots_or_rows_replace_what_nobody_has_seen(here: Here, otherwise: tuple[str, ...]) -> None:
    name = here.topic(3)
    kill_at(UNDECIDED, here.kafka, name, here.folder)
    go_on(here.spark, here.kafka, name, here.folder, *otherwise)
    assert_whole(here.kafka, name)


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_other_slots_or_rows_stop_at_what_was_decided_and_the_old_ones_go_on(
    here: Here, otherwise: tuple[str, ...]
) -> None:
    name = here.topic(3)
    # Of random rows a part is committed; the start commits the other part.
    kill_at("after EndTxn {sink}.0 commit" if "--key" in otherwise else DECIDED, here.kafka, name, here.folder)
    fails_with("NonDeterministicReplay", *finish_run(here.spark, here.kafka, name, here.folder, *otherwise))
    assert read(here.kafka, name) == OF_FIRST_MICRO_BATCH
    assert open_transactions(here.kafka, name) == []
    go_on(here.spark, here.kafka, name, here.folder)
    assert_whole(here.kafka, name)


def test_of_two_drivers_on_a_checkpoint_the_older_stops_and_disturbs_nothing(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    incoming(tmp_path / "incoming")
    undecided = UNDECIDED.format(sink=name)
    with Run(kafka, name, tmp_path, holds=[undecided], name="older") as older:
        older.wait_until_held(undecided)
        with Run(kafka, name, tmp_path, holds=[undecided], name="newer") as newer:
            newer.wait_until_held(undecided)
            older.go_on(undecided)
            fails_with("DriverFenced", *older.end())
            newer.go_on(undecided)
            newer.end_well()
    assert_whole(kafka, name)


def test_a_new_checkpoint_under_an_old_prefix_finishes_the_decided_and_begins_anew(here: Here) -> None:
    name = here.topic(3)
    kill_at(DECIDED, here.kafka, name, here.folder)
    go_on(here.spark, here.kafka, name, here.folder, checkpoint="new")
    assert read(here.kafka, name) == ALL_ONCE + OF_FIRST_MICRO_BATCH
    assert transactions(here.kafka, name).keys() == {f"{name}.0", f"{name}.1", f"{name}.driver"}
    assert open_transactions(here.kafka, name) == []
