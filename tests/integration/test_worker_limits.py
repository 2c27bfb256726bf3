"""Writes to a real broker in processes that have no more files, threads or memory: the error names it within seconds,
and nothing of the producer is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.broker import LocalKafka
from kafka_sink.errors.exhaustion import PATIENCE_MS

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "limited_write.py"
DEADLINE_S = 120


@pytest.mark.parametrize(
    ("when", "lacks", "said", "within_s"),
    [
        ("new", "files", "no more open files: the limit of open files of a process (ulimit -n) is reached", 5),
        # Another connection of the process may end: it is waited for, far less than kafka.max.block.ms.
        ("new", "sockets", "no more open files: the limit of open files of a process (ulimit -n) is reached", 20),
        ("new", "threads", "no more threads: a thread could not be started", 5),
        ("new", "memory", "no more memory: ", 5),
    ],
)
def test_what_a_worker_has_no_more_of_is_named_and_nothing_is_left(
    kafka: LocalKafka, topic: Callable[..., str], when: str, lacks: str, said: str, within_s: int
) -> None:
    command = [sys.executable, str(SCRIPT), kafka.bootstrap_servers, topic(2), when, lacks]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["error"], told["kept"], told["threads"], told["sockets"]) == ("WorkerExhausted", False, [], 0), told
    assert said in told["text"]
    assert told["seconds"] < within_s
    assert lacks != "sockets" or told["seconds"] >= PATIENCE_MS / 1_000
