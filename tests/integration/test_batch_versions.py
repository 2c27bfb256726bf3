"""Batch writes under `txnAppId` and `txnVersion`, with real Spark and a real broker: killed, run again, out of order,
with other rows, two at once; and update mode, which comes through foreachBatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from batch_versions_app import DIGIT
from committed_rows import read
from kafka_sink.broker import LocalKafka
from spark_writes import ARROW_BATCH_ROWS, finish, held, pykafka, wait_for_rows

CHAOS = pytest.mark.chaos

APP = Path(__file__).resolve().parents[1] / "support" / "batch_versions_app.py"
HOOKS = APP.parent / "hooks"
DEADLINE_S = 240
KILLED = -9
ROWS = 30
ALL_ONCE = Counter(range(ROWS))


def run(kafka: LocalKafka, topic: str, tmp_path: Path, kill_at: str | None, *arguments: str) -> tuple[int, str]:
    """One run of the application, which is killed at a step, or at none: its status, and all it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    if kill_at is not None:
        files = {"once": str(tmp_path / "happened"), "log": str(tmp_path / "requests")}
        hook = {"step": kill_at, "kill": "application", "holds": {}, **files}
        environment["PYKAFKA_HOOK"] = json.dumps(hook)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOOKS), environment.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, str(APP), kafka.bootstrap_servers, topic, *arguments],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE_S, start_new_session=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def numbers(spark: SparkSession, tasks: int, count: int = ROWS, first: int = 0) -> DataFrame:
    return spark.range(first, first + count, 1, tasks).selectExpr("CAST(id AS STRING) AS value")


def write(frame: DataFrame, kafka: LocalKafka, topic: str, version: int, **options: str) -> None:
    writer = pykafka(frame.write.mode("append"), kafka, topic).option("deliveryGuarantee", "exactly-once")
    writer.option("txnAppId", topic).option("txnVersion", version).options(**options).save()


def failure_of(frame: DataFrame, kafka: LocalKafka, topic: str, version: int) -> str:
    with pytest.raises(PySparkException) as failure:
        write(frame, kafka, topic, version)
    return str(failure.value)


def abort_manually(kafka: LocalKafka, transactional_id: str) -> None:
    """As if it had timed out: who begins anew under a transactional id ends what it had open."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)


# --- in one Spark -----------------------------------------------------------------------------------------------------


def test_a_version_is_written_once_and_one_that_comes_too_late_is_not(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic(3)
    write(numbers(spark, 2), kafka, name, 0)
    write(numbers(spark, 2), kafka, name, 0)
    # The same rows from other tasks: nothing is to be filled in.
    write(numbers(spark, 5), kafka, name, 0)
    write(numbers(spark, 2, first=ROWS), kafka, name, 1_763_700_000)
    write(numbers(spark, 2, first=2 * ROWS), kafka, name, 7)
    assert read(kafka, name) == read(kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))
    assert "was written before and its slots 0, 1 gave other rows" in failure_of(
        numbers(spark, 2, first=1), kafka, name, 1_763_700_000
    )
    assert read(kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


def test_the_first_version_is_0_unless_it_is_said_that_nothing_came_before(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic(1)
    said = failure_of(numbers(spark, 1), kafka, name, 20_261_121)
    assert "StateExpired" in said
    assert "it is the first under this name and not 0" in said
    assert read(kafka, name, "read_uncommitted") == Counter()
    write(numbers(spark, 1), kafka, name, 20_261_121, allowLostState="true")
    write(numbers(spark, 1), kafka, name, 20_261_121)
    assert read(kafka, name) == ALL_ONCE


def test_a_stream_has_no_version(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "0.json").write_text('{"value": "1"}\n')
    rows = spark.readStream.schema("value STRING").json(str(tmp_path / "incoming"))
    writer = pykafka(rows.writeStream, kafka, name).option("deliveryGuarantee", "exactly-once")
    writer = writer.option("txnAppId", name).option("txnVersion", 0).trigger(availableNow=True)
    with pytest.raises(PySparkException, match="In foreachBatch, set it on the batch write"):
        finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    assert read(kafka, name, "read_uncommitted") == Counter()


def test_of_two_writes_under_one_name_the_first_is_fenced(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, gate = topic(1), tmp_path / "gate"
    rows = numbers(spark, 1, count=4 * ARROW_BATCH_ROWS)

    def first() -> str:
        # A thread of one's own has no active session.
        spark.createDataFrame([], "x INT")
        return failure_of(held(rows, gate, after_rows=3 * ARROW_BATCH_ROWS), kafka, name, 0)

    with ThreadPoolExecutor(1) as pool:
        fenced = pool.submit(first)
        wait_for_rows(kafka, name)
        write(numbers(spark, 1), kafka, name, 0)
        gate.touch()
        said = fenced.result(DEADLINE_S)
    assert "kafka_sink.errors." in said
    assert read(kafka, name) == ALL_ONCE
    assert read(kafka, name, "read_uncommitted").total() > ROWS, "the first had sent nothing"


# --- killed -----------------------------------------------------------------------------------------------------------


def once(version: int, tasks: int = 2) -> tuple[str, ...]:
    return "once", str(version), str(ROWS), str(tasks)


@pytest.mark.chaos
def test_a_write_killed_after_its_decision_is_finished_by_a_rerun_without_rows(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    status, said = run(kafka, name, tmp_path, f"after EndTxn {name}.driver commit", *once(0))
    assert status == KILLED, said
    assert read(kafka, name) == Counter()
    write(numbers(spark, 2), kafka, name, 0)
    assert read(kafka, name) == read(kafka, name, "read_uncommitted") == ALL_ONCE


@CHAOS
def test_a_write_killed_before_its_decision_is_written_by_a_rerun_with_any_rows(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    status, said = run(kafka, name, tmp_path, f"before TxnOffsetCommit {name}.decision", *once(0))
    assert status == KILLED, said
    write(numbers(spark, 3, first=ROWS), kafka, name, 0)
    assert read(kafka, name) == Counter(range(ROWS, 2 * ROWS))
    assert read(kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


@CHAOS
def test_a_version_visible_in_part_is_filled_with_its_own_rows_and_passed_by_none(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    status, said = run(kafka, name, tmp_path, f"after EndTxn {name}.0 commit", *once(0))
    assert status == KILLED, said
    abort_manually(kafka, f"{name}.1")
    half = Counter(range(ROWS // 2))
    assert read(kafka, name) == half
    later = failure_of(numbers(spark, 2, first=ROWS), kafka, name, 5)
    assert "CommittedDataMissing" in later
    assert "the last decided one is 0, and its slot 1 cannot be read (slot 0 can)" in later
    # Other rows, and the same of other tasks.
    for other in (numbers(spark, 2, first=1), numbers(spark, 3)):
        assert "TornBatch" in failure_of(other, kafka, name, 0)
    assert read(kafka, name) == half
    write(numbers(spark, 2), kafka, name, 0)
    assert read(kafka, name) == ALL_ONCE
    write(numbers(spark, 2, first=ROWS), kafka, name, 5)
    assert read(kafka, name) == Counter(range(2 * ROWS))


@CHAOS
def test_versions_over_brokers_with_the_older_transactions(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKafka(nodes=1, kafka_version="3.9.2") as older:
        older.create_topic("t", 3)
        status, said = run(older, "t", tmp_path, "after EndTxn t.driver commit", *once(0))
        assert status == KILLED, said
        write(numbers(spark, 2), older, "t", 0)
        write(numbers(spark, 2), older, "t", 0)
        write(numbers(spark, 2, first=ROWS), older, "t", 9)
        write(numbers(spark, 2, first=ROWS), older, "t", 5)
        assert read(older, "t") == read(older, "t", "read_uncommitted") == Counter(range(2 * ROWS))


# --- update mode ------------------------------------------------------------------------------------------------------

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
    status, said = run(kafka, name, tmp_path, step.format(sink=name), *arguments)
    assert status == KILLED, said
    status, said = run(kafka, name, tmp_path, None, *arguments)
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
