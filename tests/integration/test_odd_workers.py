"""Real Spark whose Python workers are not as usual: each is an application of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applications import told_by
from broker_admin import produce
from committed_rows import held_back, read
from kafka_sink.broker import LocalKafka
from read_back import read_topic

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROWS, DEADLINE_S = 100, 60


@pytest.mark.parametrize(
    ("limits", "conf", "read_ends", "stream_ends"),
    [
        # Sockets, pipes and files of a worker are far fewer.
        ("ulimit -n 64", [], ROWS, None),
        # As on a full disk. A batch read notes its action in a file, unless all actions may read the same offsets. A
        # stream notes its name in the checkpoint.
        ("ulimit -f 0", [], "PlanNotNoted", "CheckpointUnusable"),
        # A worker of its own for each task, plan and commit. Spark gives up one that does not start in 10 s: on a busy
        # machine tasks have another attempt, plans and commits have none.
        ("true", ["spark.python.use.daemon=false", "spark.master=local[2,4]"], ROWS, None),
    ],
)
def test_reads_and_writes_of(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path,
    limits: str, conf: list[str], read_ends: object, stream_ends: object,
) -> None:  # fmt: skip
    source, target = topic(2), topic(2)
    produce(kafka, source, ROWS // 2, ROWS // 2)
    told = told_by("odd_workers_app.py", kafka.bootstrap_servers, source, target, tmp_path, limits, *conf)
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


@pytest.mark.parametrize("skew_s", [3_600, -3_600])
def test_reads_and_writes_of_workers_whose_clock_is_an_hour_off(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, skew_s: int
) -> None:
    """So is that of plans and commits. Spark's own, as the brokers', is right."""
    source, target = topic(2), topic(2)
    produce(kafka, source, ROWS // 2, ROWS // 2)
    # Python runs it when it starts.
    (tmp_path / "sitecustomize.py").write_text(
        f"import time\ns, ns = time.time, time.time_ns\n"
        f"time.time, time.time_ns = lambda: s() + {skew_s}, lambda: ns() + {skew_s} * 10**9\n"
    )
    skewed = f"export PYTHONPATH={tmp_path}:$PYTHONPATH"
    told = told_by("odd_workers_app.py", kafka.bootstrap_servers, source, target, tmp_path, skewed)
    expected = {"read": ROWS, "first": ROWS, "at-least-once": None, "exactly-once": None, "stream": None}
    assert told == expected
    assert set(read(kafka, target).values()) == {2, 4}
    assert held_back(kafka, target) == 0
    times_ms = [record.timestamp_ms for _, _, record in read_topic(kafka.bootstrap_servers, target, DEADLINE_S)]
    assert all(abs(time_ms / 1_000 - skew_s - time.time()) < 600 for time_ms in times_ms)
