from __future__ import annotations

from typing import Any

import pytest

import stream_to_kafka as job

NEEDED = ["--source", "in", "--schema", "id INT", "--topic", "t", "--checkpoint", "c", "--available-now"]


@pytest.mark.parametrize("triggers", [[], ["--available-now", "--processing-time", "1 second"]])
def test_exactly_one_trigger(capsys: pytest.CaptureFixture[str], triggers: list[str]) -> None:
    with pytest.raises(SystemExit):
        job.parse([*NEEDED[:-1], *triggers])
    assert "--processing-time" in capsys.readouterr().err


def test_a_source_option_keeps_what_follows_the_first_equals_sign() -> None:
    args = job.parse([*NEEDED, "--source-option", "header=true", "--source-option", "sep=="])
    assert dict(args.source_option) == {"header": "true", "sep": "="}


def test_path_and_schema_are_for_sources_that_have_them() -> None:
    args = job.parse(["--format", "rate", "--topic", "t", "--checkpoint", "c", "--available-now"])
    assert (args.source, args.schema) == (None, None)


def test_help_has_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert '    --partition "tenant_id % {partitions}" --processing-time "10 seconds"' in text
    assert "default: to_json(struct(*))" in text


class Query:
    """A streaming query as `follow` sees it: some progress at each look; at the last look no more will begin, and
    what was running then shows when its end has been waited for."""

    def __init__(self, looks: list[list[dict[str, Any]]], running: list[dict[str, Any]]) -> None:
        self.looks = looks
        self.running = running
        self.recentProgress: list[dict[str, Any]] = []

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if timeout is None:
            self.recentProgress += self.running
            return None
        self.recentProgress = self.looks.pop(0)
        return not self.looks


def progress(batch_id: int, rows: int, duration_ms: int = 500) -> dict[str, Any]:
    return {"batchId": batch_id, "numInputRows": rows, "batchDuration": duration_ms}


def test_every_micro_batch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, last = progress(0, 2000), progress(1, 1000, 1000), progress(2, 10)
    waiting_for_files = progress(1, 0)
    looks = [[], [first, waiting_for_files], [first, waiting_for_files, second]]
    job.follow(Query(looks, [last]))  # type: ignore[arg-type]
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "micro-batch 0 2,000 rows 0.50 s 4,000 rows/s",
        "micro-batch 1 1,000 rows 1.00 s 1,000 rows/s",
        "micro-batch 2 10 rows 0.50 s 20 rows/s",
        "3,010 rows in 3 micro-batches, 2.00 s, 1,505 rows/s",
    ]


class Running:
    """A query that says what it is doing, look by look, and notes when it was stopped."""

    isActive = True

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.stopped_at = ""

    @property
    def status(self) -> dict[str, Any]:
        self.stopped_at = self.messages.pop(0)
        return {"message": self.stopped_at, "isTriggerActive": True}

    def stop(self) -> None:
        self.messages.append("stopped")


@pytest.mark.parametrize("pause", ["Waiting for next trigger", "Getting offsets from FileStreamSource", "Stopped"])
def test_a_query_is_stopped_when_no_micro_batch_has_tasks(pause: str) -> None:
    query = Running("Processing new data", "Processing new data", "No new data but cleaning up state", pause)
    job.end_after_micro_batch(query)  # type: ignore[arg-type]
    assert query.stopped_at == pause
    assert query.messages == ["stopped"]


def test_a_query_that_has_failed_meanwhile_is_not_waited_for() -> None:
    query = Running("Processing new data")
    query.isActive = False
    job.end_after_micro_batch(query)  # type: ignore[arg-type]
    assert query.messages == ["Processing new data", "stopped"]
