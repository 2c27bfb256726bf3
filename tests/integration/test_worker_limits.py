"""Writes to a real broker in processes that have no more files, threads or memory: the error names it within seconds,
and nothing of the producer is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from applications import told_by
from kafka_sink.broker import LocalKafka
from kafka_sink.errors.exhaustion import PATIENCE_MS

# Far less than kafka.max.block.ms.
WITHIN_S = 30


@pytest.mark.parametrize(
    ("when", "lacks", "said"),
    [
        ("new", "files", "no more open files: the limit of open files of a process (ulimit -n) is reached"),
        # Another connection of the process may end: it is waited for.
        pytest.param(
            *("new", "sockets", "no more open files: the limit of open files of a process (ulimit -n) is reached"),
            marks=pytest.mark.long,
        ),
        ("new", "threads", "no more threads: a thread could not be started"),
        ("new", "memory", "no more memory: "),
    ],
)
def test_what_a_worker_has_no_more_of_is_named_and_nothing_is_left(
    kafka: LocalKafka, topic: Callable[..., str], when: str, lacks: str, said: str
) -> None:
    told = told_by("limited_write.py", kafka.bootstrap_servers, topic(2), when, lacks)
    assert (told["error"], told["kept"], told["threads"], told["sockets"]) == ("WorkerExhausted", False, [], 0), told
    assert said in told["text"]
    assert told["seconds"] < WITHIN_S
    assert lacks != "sockets" or told["seconds"] >= PATIENCE_MS / 1_000
