"""The pure parts of the benchmarks with Spark: what is counted, what it is compared with, what is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import process_tree
from process_tree import ProcessStat, parse_stat, tree_of
from spark_driver import Cost
from spark_peers import (
    CONFLUENT,
    JVM,
    PYKAFKA,
    SAME,
    Peer,
    SameSettings,
    Servers,
    kafka_settings,
    librdkafka_settings,
)
from spark_process import SparkProcess
from spark_report import figure, ratios

MIB = 1024 * 1024
SAME_SETTINGS = SameSettings(linger_ms=100, batch_bytes=MIB, buffer_bytes=64 * MIB)
SERVERS = Servers("h:1", "h:2", "/ca.pem")


def application(tmp_path: Path, code: str, answer_timeout_s: float = 30.0) -> SparkProcess:
    return SparkProcess(["-c", code], tmp_path / "log", answer_timeout_s=answer_timeout_s)


ECHO = "import sys; print('0', flush=True); [print(line, end='', flush=True) for line in sys.stdin]"


def test_an_application_answers_each_request_and_ends_when_it_is_told() -> None:
    spark = SparkProcess(["-c", ECHO], Path(os.devnull))
    assert [spark.ask({"number": number}) for number in range(3)] == [{"number": 0}, {"number": 1}, {"number": 2}]
    spark.stop()
    with pytest.raises(ValueError, match="closed"):
        spark.ask({})


def test_an_application_that_ends_or_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"status 3; its log is .*/log"):
        application(tmp_path, "raise SystemExit(3)")
    once = application(tmp_path, "print('0', flush=True); input(); raise SystemExit(4)")
    with pytest.raises(SystemExit, match="status 4"):
        once.ask({})
    with pytest.raises(SystemExit, match=r"within 0\.1 s"):
        application(tmp_path, "input()", answer_timeout_s=0.1)


def test_a_tree_is_a_process_and_all_below_it_whatever_a_command_is_called() -> None:
    line = "42 (a) b (c) S 7 42 42 0 -1 4194560 900 10 0 0 11 22 300 4000 20 0 5 0 123 456 789\n"
    assert parse_stat(line) == ProcessStat(pid=42, parent_pid=7, cpu_ticks=11 + 22 + 300 + 4000)
    parents = {5: 4, 2: 1, 4: 2, 3: 2, 9: 8, 8: 1}
    stats = [ProcessStat(pid, parent, 1) for pid, parent in parents.items()]
    assert {each.pid for each in tree_of(2, stats)} == {2, 3, 4, 5}
    assert tree_of(77, stats) == []


def test_the_cpu_time_of_grandchildren_counts_when_they_have_ended() -> None:
    """What Spark's workers used, which a daemon started and waited for."""
    before_s = process_tree.cpu_s(os.getpid())
    child_before = time.process_time()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    subprocess.run([sys.executable, "-I", "-c", parent], check=True)
    own_s = time.process_time() - child_before
    assert process_tree.cpu_s(os.getpid()) - before_s - own_s > 0.25


def test_the_same_settings_are_the_same_for_every_client() -> None:
    java = kafka_settings(Peer(JVM, "zstd", SAME), SAME_SETTINGS, SERVERS)
    assert java == kafka_settings(Peer(PYKAFKA, "zstd", SAME), SAME_SETTINGS, SERVERS)
    c = librdkafka_settings(Peer(CONFLUENT, "zstd", SAME), SAME_SETTINGS, SERVERS)
    assert str(c["linger.ms"]) == java["linger.ms"] == "100"
    assert str(c["batch.size"]) == java["batch.size"] == "1048576"
    assert int(c["queue.buffering.max.kbytes"]) * 1024 == int(java["buffer.memory"]) == 64 * MIB
    assert c["message.max.bytes"] == int(java["max.request.size"])
    assert c["compression.type"] == java["compression.type"] == "zstd"
    # Java's and pykafka's defaults.
    assert (c["acks"], c["enable.idempotence"], c["compression.level"]) == ("all", True, 3)


OURS, THEIRS = Peer(PYKAFKA, "none", SAME), Peer(JVM, "none", SAME)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    costs = [Cost(1.0, 3.0), Cost(4.0, 1.0), Cost(2.0, 2.0)]
    found = figure(OURS, costs, rows=2_000_000)
    assert (found.rows_per_s, found.slowest_rows_per_s, found.fastest_rows_per_s) == (1e6, 0.5e6, 2e6)
    assert found.cpu_s_per_million_rows == 1.0


def test_a_ratio_compares_within_a_round() -> None:
    """The machine was ten times as slow in the second round, for both."""
    costs = {OURS: [Cost(1.0, 1.0), Cost(10.0, 10.0), Cost(1.0, 1.0)], THEIRS: [Cost(2.0, 4.0), Cost(20.0, 40.0)] * 1}
    costs[THEIRS].append(Cost(3.0, 2.0))
    (found,) = ratios(costs)
    assert (found.sink, found.compression) == (JVM, "none")
    assert (found.rows_per_s, found.cpu_per_row) == (2.0, 0.25)
    assert (found.rows_per_s_goal, found.cpu_per_row_goal) == (1.5, 0.7)
