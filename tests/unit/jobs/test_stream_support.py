from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import stream_support as job
from kafka_sink.monitoring.micro_batch import BadRows, Read, Run, Totals, Written


class Query:
    """A streaming query as `follow` sees it: some progress at each look; at the last look no more will begin, and
    what was running then shows when its end has been waited for."""

    def __init__(self, looks: list[list[Any]], running: list[Any]) -> None:
        self.looks = looks
        self.running = running
        self.recentProgress: list[Any] = []

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if timeout is None:
            self.recentProgress += self.running
            return None
        self.recentProgress = self.looks.pop(0)
        return not self.looks

    @property
    def isActive(self) -> bool:
        return bool(self.looks)


def progress(batch_id: int, rows: int, duration_ms: int = 500) -> Any:
    durations = {"triggerExecution": duration_ms, "addBatch": duration_ms}
    of_query = {"id": "q", "runId": "r", "name": None, "sources": []}
    return SimpleNamespace(batchId=batch_id, numInputRows=rows, durationMs=durations, **of_query)


class AllButOne:
    """Leaders have all rows of a micro-batch but a bad one."""

    def __init__(self, *rows: int) -> None:
        self.rows = rows

    def written_in(self, run: Run) -> Written:
        count = self.rows[run.batch_id]
        return Written({"t": Totals(count - 1, 1, 100_000)}, {BadRows("dropped", "KeyNull"): 1})

    def read_in(self, run: Run) -> Read:
        return Read()


def test_every_micro_batch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, last = progress(0, 2000), progress(1, 1000, 1000), progress(2, 10)
    waiting_for_files = progress(1, 0)
    looks = [[], [first, waiting_for_files], [first, waiting_for_files, second]]
    job.follow(Query(looks, [last]), threading.Event(), AllButOne(2000, 1000, 10))  # type: ignore[arg-type]
    wrote = "(0.1 MB, 1 batches) by t in"
    assert capsys.readouterr().out.splitlines() == [
        f"micro-batch #0: 2,000 rows in, 1,999 acknowledged {wrote} 0.50 s, 3,998 rows/s; 1 bad rows dropped",
        f"micro-batch #1: 1,000 rows in, 999 acknowledged {wrote} 1.00 s, 999 rows/s; 1 bad rows dropped",
        f"micro-batch #2: 10 rows in, 9 acknowledged {wrote} 0.50 s, 18 rows/s; 1 bad rows dropped",
        "3,007 rows in 3 micro-batches, 2.00 s, 1,504 rows/s",
    ]


def test_a_query_that_is_held_is_followed_no_further(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query([[]], [])
    terminate = threading.Event()
    terminate.set()
    monkeypatch.setattr(job, "hold_between_micro_batches", lambda _: query.recentProgress.append(progress(0, 7)))
    job.follow(query, terminate, AllButOne(7))  # type: ignore[arg-type]
    assert "6 rows in 1 micro-batches" in capsys.readouterr().out
