from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import export_to_kafka as job
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    "source",
    [
        ["--table", "t"],
        ["--query", "SELECT 1"],
        ["--source", "p"],
        ["--source", "p", "--format", "csv", "--schema", "a INT", "--source-option", "header=true"],
        ["--format", "jdbc", "--source-option", "dbtable=t"],
    ],
)
def test_a_table_a_query_files_or_any_source(source: list[str]) -> None:
    assert job.parse([*source, "--topic", "t"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "one of --table, --query, --source and --format is needed"),
        (["--table", "t", "--query", "q"], "not allowed with argument"),
        (["--table", "t", "--format", "csv"], "go with --source, not with --table"),
        (["--query", "q", "--schema", "a INT"], "go with --source, not with --table"),
        (["--query", "q", "--source-option", "a=b"], "go with --source, not with --table"),
    ],
)
def test_and_not_two_of_them(capsys: pytest.CaptureFixture[str], source: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse([*source, "--topic", "t"])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


RECEIPTS = {
    TopicPartition("t", 10): PartitionOffsets("t", 10, 5, None, None, 1, 99),
    TopicPartition("t", 2): PartitionOffsets("t", 2, 12_345, 0, 12_400, 3, 1_250_000),
}


def test_the_summary_has_a_line_a_partition_in_order_and_a_total() -> None:
    assert job.summary(RECEIPTS) == [
        "topic  partition  records     offsets   bytes",
        "t              2   12,345  0 - 12,400  1.2 MB",
        "t             10        5     unknown    99 B",
        "total          2   12,350              1.3 MB",
    ]
    assert job.summary({})[-1].split() == ["total", "0", "0", "0", "B"]


class Tracker:
    """Spark's, of a group with two jobs, one stage of which Spark has not come to."""

    def __init__(self, completed: int) -> None:
        self.completed = completed

    def getJobIdsForGroup(self, group: str) -> list[int]:
        assert group == "ours"
        return [0, 1]

    def getJobInfo(self, job_id: int) -> Any:
        return SimpleNamespace(stageIds=[10] if job_id == 0 else [11, 12])

    def getStageInfo(self, stage_id: int) -> Any:
        completed = {10: 4, 11: self.completed}
        return SimpleNamespace(numTasks=4, numCompletedTasks=completed[stage_id]) if stage_id in completed else None


def test_a_progress_line_is_for_what_has_changed() -> None:
    tracker = Tracker(completed=0)
    progress = job.Progress(tracker, "ours", started=100.0)  # type: ignore[arg-type]

    def words(receipts: Any, now: float) -> str:
        line = progress.line(receipts, now)
        return "" if line is None else " ".join(line.split())

    assert words({}, 101.0) == "1.0 s 4 of 8 tasks 0 records 0 B"
    assert words({}, 102.0) == ""
    tracker.completed = 1
    # The receipts of a task that has ended may come later.
    assert words({}, 103.0) == "3.0 s 5 of 8 tasks 0 records 0 B"
    assert words(RECEIPTS, 103.5) == "3.5 s 5 of 8 tasks 12,350 records 1.3 MB"
