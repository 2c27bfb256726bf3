"""An application with a stream of each guarantee is killed at any moment, again and again: rows, dead letters, what
interceptors did, what `kafka_sink.dedupe` makes of it, and the progress in groups."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_sink
import processes
from broker_admin import producer
from committed_rows import held_back, read_values
from kafka_reads import PYKAFKA, frame
from kafka_sink.broker import LocalKafka
from killed_app import DEAD, GROUP, GUARANTEES, SOURCE
from stream_reads import assert_group_is_not_ahead, committed
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_000)]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
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
    of = producer(kafka)
    for row in range(number * ROWS_A_ROUND, (number + 1) * ROWS_A_ROUND):
        of.produce(SOURCE, b"%d" % row, partition=row % PARTITIONS)
    assert of.flush(DEADLINE_S) == 0


def application(kafka: LocalKafka, folder: Path, until: str) -> list[str]:
    return [sys.executable, str(SUPPORT / "killed_app.py"), kafka.bootstrap_servers, str(folder), until]


def surroundings(folder: Path) -> dict[str, object]:
    # PYTHONSAFEPATH would hide what lies beside the application.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    paths = str(SUPPORT), environment.get("PYTHONPATH")
    return {"env": {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, "cwd": folder}


def kill_after(micro_batches: int, kafka: LocalKafka, folder: Path, pause_s: float) -> None:
    """Kill all processes of the application when so many micro-batches more are recorded, and a moment has passed."""

    def recorded() -> int:
        return sum(len(committed(folder / guarantee)) for guarantee in GUARANTEES)

    wanted = recorded() + micro_batches
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            application(kafka, folder, "on"), stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            **surroundings(folder),
        )  # fmt: skip
    try:
        wait_until(lambda: recorded() >= wanted or running.poll() is not None, DEADLINE_S, "micro-batches")
        assert running.poll() is None, (folder / "said").read_text()
        threading.Event().wait(pause_s)
    finally:
        processes.send_signal(processes.of_session(running.pid), signal.SIGKILL)
        running.wait()


def read_on(kafka: LocalKafka, folder: Path) -> None:
    """Let the application read what is there. On a busy machine Spark gives up a worker that does not start in 10 s."""
    for _ in range(3):
        ended = subprocess.run(
            application(kafka, folder, "now"),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            **surroundings(folder),
        )
        if ended.returncode == 0:
            return
        assert "failed to connect back" in ended.stderr or "CANNOT_OPEN_SOCKET" in ended.stderr, ended.stderr
    raise AssertionError(ended.stderr)


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
