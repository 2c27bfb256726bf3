"""Batch writes under `txnAppId` and `txnVersion`, with real Spark and a real broker: killed, run again, out of order,
with other rows, two at once; and update mode, which comes through foreachBatch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import broker_admin
from batch_versions_app import DIGIT
from committed_rows import read
from exactly_once_runs import kill_at, run
from here import Here
from kafka_sink.broker import LocalKafka
from spark_writes import ARROW_BATCH_ROWS, finish, held, numbers, pykafka, wait_for_rows

CHAOS = pytest.mark.chaos

APP = "batch_versions_app.py"
DEADLINE_S = 240
ROWS = 30
ALL_ONCE = Counter(range(ROWS))


def rows(spark: SparkSession, tasks: int, first: int = 0) -> DataFrame:
    return numbers(spark, ROWS, tasks, first)


def write(frame: DataFrame, kafka: LocalKafka, topic: str, version: int, **options: str) -> None:
    writer = pykafka(frame.write.mode("append"), kafka, topic).option("deliveryGuarantee", "exactly-once")
    writer.option("txnAppId", topic).option("txnVersion", version).options(**options).save()


def failure_of(frame: DataFrame, kafka: LocalKafka, topic: str, version: int) -> str:
    with pytest.raises(PySparkException) as failure:
        write(frame, kafka, topic, version)
    return str(failure.value)


def abort_manually(kafka: LocalKafka, transactional_id: str) -> None:
    """As if it had timed out: who begins anew under a transactional id ends what it had open."""
    producer = broker_admin.producer(kafka, **{"transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)


def test_a_version_is_written_once_and_one_that_comes_too_late_is_not(here: Here) -> None:
    name = here.topic(3)
    write(rows(here.spark, 2), here.kafka, name, 0)
    write(rows(here.spark, 2), here.kafka, name, 0)
    # The same rows from other tasks: nothing is to be filled in.
    write(rows(here.spark, 5), here.kafka, name, 0)
    write(rows(here.spark, 2, first=ROWS), here.kafka, name, 1_763_700_000)
    write(rows(here.spark, 2, first=2 * ROWS), here.kafka, name, 7)
    assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))
    assert "was written before and its slots 0, 1 gave other rows" in failure_of(
        rows(here.spark, 2, first=1), here.kafka, name, 1_763_700_000
    )
    assert read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


def test_the_first_version_is_0_unless_it_is_said_that_nothing_came_before(here: Here) -> None:
    name = here.topic(1)
    said = failure_of(rows(here.spark, 1), here.kafka, name, 20_261_121)
    assert "StateExpired" in said
    assert "it is the first under this name and not 0" in said
    assert read(here.kafka, name, "read_uncommitted") == Counter()
    write(rows(here.spark, 1), here.kafka, name, 20_261_121, allowLostState="true")
    write(rows(here.spark, 1), here.kafka, name, 20_261_121)
    assert read(here.kafka, name) == ALL_ONCE


def test_a_stream_has_no_version(here: Here) -> None:
    name = here.topic(1)
    versioned = {"deliveryGuarantee": "exactly-once", "txnAppId": name, "txnVersion": "0"}
    with pytest.raises(PySparkException, match="In foreachBatch, set it on the batch write"):
        finish(here.start(here.arriving(here.numbers(1)), name, versioned))
    assert read(here.kafka, name, "read_uncommitted") == Counter()


@pytest.mark.long
def test_of_two_writes_under_one_name_the_first_is_fenced(here: Here) -> None:
    name, gate = here.topic(1), here.folder / "gate"
    many = here.numbers(4 * ARROW_BATCH_ROWS)

    def first() -> str:
        # A thread of one's own has no active session.
        here.spark.createDataFrame([], "x INT")
        return failure_of(held(many, gate, after_rows=3 * ARROW_BATCH_ROWS), here.kafka, name, 0)

    with ThreadPoolExecutor(1) as pool:
        fenced = pool.submit(first)
        wait_for_rows(here.kafka, name)
        write(rows(here.spark, 1), here.kafka, name, 0)
        gate.touch()
        said = fenced.result(DEADLINE_S)
    assert "kafka_sink.errors." in said
    assert read(here.kafka, name) == ALL_ONCE
    assert read(here.kafka, name, "read_uncommitted").total() > ROWS, "the first had sent nothing"


def once(version: int, tasks: int = 2) -> tuple[str, ...]:
    return "once", str(version), str(ROWS), str(tasks)


@pytest.mark.chaos
def test_a_write_killed_after_its_decision_is_finished_by_a_rerun_without_rows(here: Here) -> None:
    name = here.topic(3)
    kill_at("after EndTxn {sink}.driver commit", here.kafka, name, here.folder, *once(0), app=APP)
    assert read(here.kafka, name) == Counter()
    write(rows(here.spark, 2), here.kafka, name, 0)
    assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == ALL_ONCE


@CHAOS
def test_a_write_killed_before_its_decision_is_written_by_a_rerun_with_any_rows(here: Here) -> None:
    name = here.topic(3)
    kill_at("before TxnOffsetCommit {sink}.decision", here.kafka, name, here.folder, *once(0), app=APP)
    write(rows(here.spark, 3, first=ROWS), here.kafka, name, 0)
    assert read(here.kafka, name) == Counter(range(ROWS, 2 * ROWS))
    assert read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


@CHAOS
def test_a_version_visible_in_part_is_filled_with_its_own_rows_and_passed_by_none(here: Here) -> None:
    name = here.topic(3)
    kill_at("after EndTxn {sink}.0 commit", here.kafka, name, here.folder, *once(0), app=APP)
    abort_manually(here.kafka, f"{name}.1")
    half = Counter(range(ROWS // 2))
    assert read(here.kafka, name) == half
    later = failure_of(rows(here.spark, 2, first=ROWS), here.kafka, name, 5)
    assert "CommittedDataMissing" in later
    assert "the last decided one is 0, and its slot 1 cannot be read (slot 0 can)" in later
    # Other rows, and the same of other tasks.
    for other in (rows(here.spark, 2, first=1), rows(here.spark, 3)):
        assert "TornBatch" in failure_of(other, here.kafka, name, 0)
    assert read(here.kafka, name) == half
    write(rows(here.spark, 2), here.kafka, name, 0)
    assert read(here.kafka, name) == ALL_ONCE
    write(rows(here.spark, 2, first=ROWS), here.kafka, name, 5)
    assert read(here.kafka, name) == Counter(range(2 * ROWS))


@CHAOS
def test_versions_over_brokers_with_the_older_transactions(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKafka(nodes=1, kafka_version="3.9.2") as older:
        older.create_topic("t", 3)
        kill_at("after EndTxn t.driver commit", older, "t", tmp_path, *once(0), app=APP)
        write(rows(spark, 2), older, "t", 0)
        write(rows(spark, 2), older, "t", 0)
        write(rows(spark, 2, first=ROWS), older, "t", 9)
        write(rows(spark, 2, first=ROWS), older, "t", 5)
        assert read(older, "t") == read(older, "t", "read_uncommitted") == Counter(range(2 * ROWS))


FILES, ROWS_A_FILE, FILES_A_MICRO_BATCH = 6, 40, 2


def incoming(folder: Path) -> Path:
    """Numbers, as many of each last digit in every file; oldest first."""
    folder.mkdir()
    for file in range(FILES):
        arrived = folder / f"{file}.json"
        arrived.write_text("".join(f'{{"value": "{row}"}}\n' for row in range(ROWS_A_FILE)))
        os.utime(arrived, (file, file))
    return folder


@pytest.mark.parametrize(
    ("step", "written_before"),
    [
        pytest.param("after EndTxn {sink}.driver commit", True, marks=CHAOS),
        pytest.param("before EndTxn {sink}.driver commit", False, marks=CHAOS),
        pytest.param("after EndTxn {sink}.0 commit", True, marks=pytest.mark.long),
        pytest.param("after DescribeProducers", True, marks=pytest.mark.long),
    ],
)
def test_update_mode_in_an_application_that_is_killed(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, step: str, written_before: bool
) -> None:
    name = topic(3)
    arguments = "stream", str(incoming(tmp_path / "incoming")), str(tmp_path / "checkpoint")
    kill_at(step, kafka, name, tmp_path, *arguments, app=APP)
    status, said = run(kafka, name, tmp_path, None, *arguments, app=APP)
    assert status == 0, said
    warned = f"txnVersion 0 of txnAppId '{name}' writes nothing (10 rows were read), because it was written before"
    assert (warned in said) == written_before, said
    of_a_digit = ROWS_A_FILE // 10 * FILES_A_MICRO_BATCH
    updates = [
        digit * DIGIT + of_a_digit * (micro_batch + 1)
        for micro_batch in range(FILES // FILES_A_MICRO_BATCH)
        for digit in range(10)
    ]
    assert read(kafka, name) == Counter(updates)
