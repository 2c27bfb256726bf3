"""Batch writes under `txnAppId` and `txnVersion`, with real Spark and a real broker: killed, run again, out of order,
with other rows; and update mode, which comes through foreachBatch."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import broker_admin
from batch_versions_app import DIGIT
from broker_admin import read
from exactly_once_runs import kill_at, run
from kafka_sink.broker import LocalKafka
from spark_writes import Here, pykafka

CHAOS = pytest.mark.chaos

APP = "batch_versions_app.py"
DEADLINE_S = 240
ROWS = 30
ALL_ONCE = Counter(range(ROWS))


def write(here: Here, version: int, topic: str, tasks: int = 2, first: int = 0, **options: str) -> None:
    """Of ROWS numbers, from `first` on."""
    writer = pykafka(here.numbers(ROWS, tasks, first).write.mode("append"), here.kafka, topic)
    writer.option("deliveryGuarantee", "exactly-once").option("txnAppId", topic).option("txnVersion", version)
    writer.options(**options).save()


def failure_of(here: Here, version: int, topic: str, tasks: int = 2, first: int = 0) -> str:
    with pytest.raises(PySparkException) as failure:
        write(here, version, topic, tasks, first)
    return str(failure.value)


def abort_manually(kafka: LocalKafka, transactional_id: str) -> None:
    """As if it had timed out: who begins anew under a transactional id ends what it had open."""
    broker_admin.producer(kafka, **{"transactional.id": transactional_id}).init_transactions(DEADLINE_S)


def test_a_version_is_written_once_and_one_that_comes_too_late_is_not(here: Here) -> None:
    name = here.topic(3)
    write(here, 0, name)
    write(here, 0, name)
    # The same rows from other tasks: nothing is to be filled in.
    write(here, 0, name, 5)
    write(here, 1_763_700_000, name, first=ROWS)
    write(here, 7, name, first=2 * ROWS)
    assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))
    assert "was written before and its slots 0, 1 gave other rows" in failure_of(here, 1_763_700_000, name, first=1)
    assert read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


def test_the_first_version_is_0_unless_it_is_said_that_nothing_came_before(here: Here) -> None:
    name = here.topic(1)
    said = failure_of(here, 20_261_121, name, 1)
    assert "StateExpired" in said
    assert "it is the first under this name and not 0" in said
    assert read(here.kafka, name, "read_uncommitted") == Counter()
    write(here, 20_261_121, name, 1, allowLostState="true")
    write(here, 20_261_121, name, 1)
    assert read(here.kafka, name) == ALL_ONCE


# Version 0, of two tasks.
ONCE = ("once", "0", str(ROWS), "2")


@CHAOS
def test_a_write_killed_after_its_decision_is_finished_by_a_rerun_without_rows(here: Here) -> None:
    name = here.topic(3)
    kill_at("after EndTxn {sink}.driver commit", here.kafka, name, here.folder, *ONCE, app=APP)
    assert read(here.kafka, name) == Counter()
    write(here, 0, name)
    assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == ALL_ONCE


@CHAOS
def test_a_write_killed_before_its_decision_is_written_by_a_rerun_with_any_rows(here: Here) -> None:
    name = here.topic(3)
    kill_at("before TxnOffsetCommit {sink}.decision", here.kafka, name, here.folder, *ONCE, app=APP)
    write(here, 0, name, 3, first=ROWS)
    assert read(here.kafka, name) == Counter(range(ROWS, 2 * ROWS))
    assert read(here.kafka, name, "read_uncommitted") == Counter(range(2 * ROWS))


@CHAOS
def test_a_version_visible_in_part_is_filled_with_its_own_rows_and_passed_by_none(here: Here) -> None:
    name = here.topic(3)
    kill_at("after EndTxn {sink}.0 commit", here.kafka, name, here.folder, *ONCE, app=APP)
    abort_manually(here.kafka, f"{name}.1")
    half = Counter(range(ROWS // 2))
    assert read(here.kafka, name) == half
    later = failure_of(here, 5, name, first=ROWS)
    assert "CommittedDataMissing" in later
    assert "the last decided one is 0, and its slot 1 cannot be read (slot 0 can)" in later
    # Other rows, and the same of other tasks.
    assert "TornBatch" in failure_of(here, 0, name, first=1)
    assert "TornBatch" in failure_of(here, 0, name, 3)
    assert read(here.kafka, name) == half
    write(here, 0, name)
    assert read(here.kafka, name) == ALL_ONCE
    write(here, 5, name, first=ROWS)
    assert read(here.kafka, name) == Counter(range(2 * ROWS))


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
