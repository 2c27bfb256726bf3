"""Real Spark whose Python workers have little: each is an application of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from applications import told_by
from broker_admin import produce
from committed_rows import held_back, read
from kafka_sink.broker import LocalKafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 100


@pytest.mark.parametrize(
    ("limits", "read_ends", "stream_ends"),
    [
        # Sockets, pipes and files of a worker are far fewer.
        ("ulimit -n 64", ROWS, None),
        # As on a full disk. A batch read notes its action in a file, unless all actions may read the same offsets. A
        # stream notes its name in the checkpoint.
        ("ulimit -f 0", "PlanNotNoted", "CheckpointUnusable"),
    ],
)
def test_reads_and_writes_of(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, limits: str, read_ends: object, stream_ends: object
) -> None:
    source, target = topic(2), topic(2)
    produce(kafka, source, ROWS // 2, ROWS // 2)
    told = told_by("odd_workers_app.py", kafka.bootstrap_servers, source, target, tmp_path, limits)
    assert told == {
        "read": read_ends,
        "first": ROWS,
        "at-least-once": None,
        "exactly-once": None,
        "stream": stream_ends,
    }
    # Each number of both writes, and the half of them that the source has twice.
    assert sum(read(kafka, target).values()) == 2 * ROWS + (ROWS if stream_ends is None else 0)
    assert set(read(kafka, target).values()) == ({2, 4} if stream_ends is None else {2})
    assert held_back(kafka, target) == 0
