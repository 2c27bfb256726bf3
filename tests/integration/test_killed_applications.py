"""An application with a stream of each guarantee is killed at any moment, again and again, and queries are stopped in
each of their phases: rows, dead letters, what interceptors did, what `kafka_sink.dedupe` makes of it, and the progress
in groups."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
import processes
from broker_admin import held_back, producer, read_values, send
from exactly_once_runs import Run
from kafka_reads import PYKAFKA, assert_group_is_not_ahead, committed, frame, logged
from kafka_sink.broker import LocalKafka
from killed_app import DEAD, GROUP, GUARANTEES, SOURCE
from spark_writes import Here
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_000)]

# A busy machine takes minutes for the start of an application.
DEADLINE_S = 700
PARTITIONS = 3
KILLS = 2
ROWS_A_ROUND = 1_500


def test_every_row_letter_and_mark_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1_000)
    chance = random.Random(seed)
    print("seed", seed)
    with LocalKafka() as kafka:
        kafka.create_topic(SOURCE, PARTITIONS)
        for guarantee in GUARANTEES:
            kafka.create_topic(guarantee, 2)
            kafka.create_topic(DEAD + guarantee, 1)
        for number in range(KILLS):
            write(kafka, number)
            kill_after(chance.randint(1, 4), kafka, tmp_path, chance.choice([0.0, 0.1, 0.3, 0.7]))
            for guarantee in GUARANTEES:
                assert_group_is_not_ahead(kafka, GROUP + guarantee, tmp_path / guarantee, SOURCE, PARTITIONS)
        read_on(kafka, tmp_path)
        assert_all_is_there(kafka)
        for guarantee in GUARANTEES:
            assert_group_is_not_ahead(kafka, GROUP + guarantee, tmp_path / guarantee, SOURCE, PARTITIONS)
            assert_dedupe_leaves_one_of_each(spark, kafka, guarantee)


def write(kafka: LocalKafka, number: int) -> None:
    for partition in range(PARTITIONS):
        rows = range(number * ROWS_A_ROUND + partition, (number + 1) * ROWS_A_ROUND, PARTITIONS)
        send(producer(kafka), SOURCE, (b"%d" % row for row in rows), partition=partition)


def application(kafka: LocalKafka, folder: Path, until: str) -> Run:
    return Run(kafka, str(folder), folder, until, hooked=False, app="killed_app.py")


def kill_after(micro_batches: int, kafka: LocalKafka, folder: Path, pause_s: float) -> None:
    """Kill all processes of the application when so many micro-batches more are recorded, and a moment has passed."""

    def recorded() -> int:
        return sum(len(committed(folder / guarantee)) for guarantee in GUARANTEES)

    wanted = recorded() + micro_batches
    with application(kafka, folder, "on") as running:
        ended = lambda: not processes.of_session(running.process_id)  # noqa: E731
        wait_until(lambda: recorded() >= wanted or ended(), DEADLINE_S, "micro-batches")
        assert not ended(), running.said
        threading.Event().wait(pause_s)


def read_on(kafka: LocalKafka, folder: Path) -> None:
    """Let the application read what is there. On a busy machine Spark gives up a worker that does not start in 10 s."""
    for _ in range(3):
        with application(kafka, folder, "now") as reading:
            status, said = reading.end()
        if status == 0:
            return
        assert "failed to connect back" in said or "CANNOT_OPEN_SOCKET" in said, said
    raise AssertionError(said)


def assert_all_is_there(kafka: LocalKafka) -> None:
    good, bad = ({row for row in range(KILLS * ROWS_A_ROUND) if (row % 100 == 7) is is_bad} for is_bad in (False, True))
    for guarantee in GUARANTEES:
        assert held_back(kafka, guarantee) == 0
        rows = Counter(read_values(kafka, guarantee))
        assert {int(value.removesuffix(b"!")) for value in rows if value.count(b"!") == 1} == good
        assert len(rows) == len(good)
        letters = read_values(kafka, DEAD + guarantee)
        assert {int(value.removesuffix(b"!")) for value in letters} == bad
        if guarantee == "exactly-once":
            assert set(rows.values()) == set(letters.values()) == {1}


def assert_dedupe_leaves_one_of_each(spark: SparkSession, kafka: LocalKafka, guarantee: str) -> None:
    options = {"subscribe": guarantee, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    once = kafka_sink.dedupe(frame(spark, PYKAFKA, kafka, **options)).select("value").collect()
    assert Counter(bytes(row.value) for row in once) == Counter(set(read_values(kafka, guarantee)))


QUERIES, ROWS = 16, 40


def started(here: Here, source: str, target: str) -> StreamingQuery:
    """Each shows its progress in a group of its target's name."""
    reader = here.spark.readStream.format("pykafka").options(**{"kafka.bootstrap.servers": here.servers})
    reader = reader.options(subscribe=source, startingOffsets="earliest", groupId=target, maxOffsetsPerTrigger="40")
    writer = reader.load().select("value").writeStream.format("pykafka").options(**here.to(target))
    writer = writer.option("deliveryGuarantee", "exactly-once")
    return writer.option("checkpointLocation", str(here.folder / target)).start()


def test_queries_that_are_stopped_in_each_phase_have_each_row_once_and_are_not_behind_their_groups(here: Here) -> None:
    """Of one application; a stop finds some that have planned, some in a task, and some in a commit."""
    source, targets = here.topic(2), [here.topic(2) for _ in range(QUERIES)]
    checkpoint, sent = here.folder / targets[0], 0

    def levels() -> list[bool]:
        return [assert_group_is_not_ahead(here.kafka, each, here.folder / each, source, 2) for each in targets]

    def run(phase: Callable[[StreamingQuery, int, int], object]) -> None:
        nonlocal sent
        for partition in range(2):
            send(producer(here.kafka), source, (b"%d" % n for n in range(sent, sent + ROWS)), partition=partition)
            sent += ROWS
        planned, recorded = len(logged(checkpoint)), len(committed(checkpoint))
        queries = [started(here, source, target) for target in targets]
        wait_until(lambda: phase(queries[0], planned, recorded), DEADLINE_S, "the phase")
        levels()
        for query in queries:
            query.stop()
            assert query.exception() is None
        levels()

    phases: list[Callable[[StreamingQuery, int, int], object]] = [
        lambda query, planned, recorded: query.status["isTriggerActive"],
        lambda query, planned, recorded: len(logged(checkpoint)) > planned,
        lambda query, planned, recorded: here.spark.sparkContext.statusTracker().getActiveStageIds(),
        lambda query, planned, recorded: len(committed(checkpoint)) > recorded + 1,
    ]
    for phase in 2 * phases:
        run(phase)
    queries = [started(here, source, target) for target in targets]
    for query in queries:
        query.processAllAvailable()
    wait_until(lambda: all(levels()), DEADLINE_S, "the groups' offsets")
    for query in queries:
        query.stop()
    expected = Counter(b"%d" % number for number in range(sent))
    assert [read_values(here.kafka, target) for target in targets] == [expected] * QUERIES
    assert [held_back(here.kafka, target) for target in targets] == [0] * QUERIES
