"""The pure parts of the benchmarks with Spark: what is counted, what it is compared with, what is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import process_tree
from spark_driver import Cost
from spark_peers import JVM, PYKAFKA, SAME, Peer
from spark_process import SparkProcess
from spark_report import figure, ratios


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


def test_the_cpu_time_of_grandchildren_counts_when_they_have_ended() -> None:
    """What Spark's workers used, which a daemon started and waited for."""
    before_s = process_tree.cpu_s(os.getpid())
    child_before = time.process_time()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    subprocess.run([sys.executable, "-I", "-c", parent], check=True)
    own_s = time.process_time() - child_before
    assert process_tree.cpu_s(os.getpid()) - before_s - own_s > 0.25


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
