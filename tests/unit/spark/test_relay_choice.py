"""Which tasks write over a relay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_sink.spark import relay_choice

DAEMON, EXECUTOR = 41, 40


@pytest.fixture(autouse=True)
def proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The processes of an executor of 16 cores, whose Python worker this is."""
    monkeypatch.delenv("PYKAFKA_RELAY", raising=False)
    monkeypatch.setattr(relay_choice, "is_possible", lambda: True)
    monkeypatch.setattr(relay_choice, "PROC", tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: DAEMON)
    commands = {
        DAEMON: b"python\0-m\0pyspark.daemon\0",
        EXECUTOR: b"java\0org.apache.spark.executor.CoarseGrainedExecutorBackend\0--cores\x0016\0--app-id\0a\0",
    }
    for process_id, command in commands.items():
        (tmp_path / f"{process_id}").mkdir()
        (tmp_path / f"{process_id}/cmdline").write_bytes(command)
        (tmp_path / f"{process_id}/stat").write_text(f"{process_id} (a (b) c) S {process_id - 1} 1 1")
    return tmp_path


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[12, 3]"}, 12),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "spark://master:7077"}, 16),
        ({"spark.master": "yarn", "spark.task.cpus": "4"}, 4),
        ({"spark.task.cpus": "many"}, 0),
        ({"spark.task.cpus": "0"}, 0),
        ({}, 16),
    ],
)
def test_how_many_tasks_an_executor_runs_at_once(conf: dict[str, str], tasks: int) -> None:
    assert relay_choice.tasks_at_once(conf) == tasks


def test_an_executor_may_start_its_workers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark.python.use.daemon=false"""
    monkeypatch.setattr(os, "getppid", lambda: EXECUTOR)
    assert relay_choice.tasks_at_once({}) == 16


@pytest.mark.parametrize("command", [b"", b"java\0--cores\0", b"java\0--cores\0many\0"])
def test_an_executor_that_does_not_say_how_many_counts_as_small(proc: Path, command: bytes) -> None:
    (proc / f"{EXECUTOR}/cmdline").write_bytes(command)
    assert relay_choice.tasks_at_once({}) == 0


def test_a_system_without_such_files_has_no_relay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(relay_choice, "PROC", tmp_path / "none")
    assert not relay_choice.is_wanted({})


@pytest.mark.parametrize(
    ("asked", "master", "is_possible", "expected"),
    [
        (None, "local[8]", True, True),
        (None, "local[7]", True, False),
        (None, "local[8]", False, False),
        ("on", "local[1]", True, True),
        ("on", "local[1]", False, False),
        ("off", "local[64]", True, False),
        ("nonsense", "local[64]", True, True),
    ],
)
def test_large_executors_have_a_relay_unless_someone_decides_otherwise(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, master: str, is_possible: bool, expected: bool
) -> None:
    if asked is not None:
        monkeypatch.setenv("PYKAFKA_RELAY", asked)
    monkeypatch.setattr(relay_choice, "is_possible", lambda: is_possible)
    assert relay_choice.is_wanted({"spark.master": master}) is expected
