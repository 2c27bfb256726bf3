"""What a task of a batch read reads in a later action on the same DataFrame, which Spark does not plan again."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kafka_sink.errors import PlanNotNoted, PlanReused
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.kept_clients import blocks_folder
from kafka_sink.spark.reading import executions
from kafka_sink.spark.reading.executions import planned_tasks, ranges_of
from kafka_sink.spark.task import Task

A0, A0_REST = FetchRange("a", None, 0, 0, 5), FetchRange("a", None, 0, 5, 10, leader_epoch=1)
A1 = FetchRange("a", None, 1, 0, 3)
GROWN = (A0, replace(A0_REST, end=12, leader_epoch=2), A1)
ADDED = FetchRange("b", None, 0, 0, 7)
PLANNED_MS = 1_800_000_000_000
# The folder for blocks of a driver whose executors are other processes.
CLUSTER = "/of/the/driver"


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the executor that the tasks run in."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another")
    return tmp_path


class Plan:
    """The tasks of a plan, of a range each or of several. `fresh`: what a plan of now has. `replans`: how often tasks
    made one."""

    def __init__(
        self, *tasks: FetchRange | tuple[FetchRange, ...], driver: str | None = None,
        idle: Mapping[TopicPartition, FetchRange] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        packed = [each if isinstance(each, tuple) else (each,) for each in tasks]
        self.tasks = list(planned_tasks(packed, PLANNED_MS, blocks_folder() if driver is None else driver, dict(idle)))
        self.fresh: Sequence[FetchRange] = [each for ranges in packed for each in ranges]
        self.replans = 0

    def read(self, execution: str | None, number: int, *, query: str | None = None, stage: int = 1) -> list[FetchRange]:
        ids = {"spark.sql.execution.id": execution, "spark.sql.execution.query.id": query}
        conf = {"callSite.short": ""} | {key: value for key, value in ids.items() if value is not None}
        return ranges_of(self.tasks[number], Task(number, conf, stage), self._replan)

    def read_all(self, execution: str | None, **more: Any) -> list[FetchRange]:
        return [each for number in range(len(self.tasks)) for each in self.read(execution, number, **more)]

    def _replan(self) -> Sequence[FetchRange]:
        self.replans += 1
        return self.fresh


def test_a_later_action_reads_what_has_arrived_since() -> None:
    plan = Plan(A0, A0_REST, A1)
    assert plan.read_all("1") == [A0, A0_REST, A1]
    plan.fresh = (*GROWN, ADDED)
    assert (plan.read_all("1"), plan.replans) == ([A0, A0_REST, A1], 0)
    assert plan.read_all("2") == [A0, GROWN[1], A1, ADDED]
    # Tasks that run again, and those that come later, read what the action's first task planned.
    plan.fresh = (*GROWN[:2], replace(A1, end=30))
    assert plan.read_all("2") == [A0, GROWN[1], A1, ADDED]
    assert plan.read_all("3") == [A0, GROWN[1], replace(A1, end=30)]
    assert plan.replans == 2


def test_only_the_last_range_of_a_partition_grows_whatever_task_has_it() -> None:
    for tasks in ([(A0_REST, A1), (A0,)], [(A0, A1), (A0_REST,)], [(A1,), (A0, A0_REST)]):
        plan = Plan(*tasks)
        planned = plan.read_all("1")
        plan.fresh = (*GROWN, ADDED)
        assert plan.read_all("2") == [GROWN[1] if each == A0_REST else each for each in planned] + [ADDED]


def test_an_action_that_found_nothing_hides_nothing_from_the_next() -> None:
    plan = Plan()
    assert plan.read_all("1") == []
    plan.fresh = (A0, A0_REST)
    assert plan.read_all("2") == [A0, A0_REST]
    # A log that ends earlier by now is read as planned: the task then says what is missing.
    plan = Plan(A0, A0_REST)
    plan.read_all("3")
    plan.fresh = (replace(A0, end=4),)
    assert plan.read_all("4") == [A0, A0_REST]


@pytest.mark.parametrize("driver", [None, CLUSTER])
def test_an_action_after_retention_begins_where_the_log_begins_by_then(driver: str | None) -> None:
    """Nothing is lost of a read from the earliest offset. A read from an offset that is gone fails in its new plan."""
    plan = Plan(A0, A0_REST, A1, driver=driver)
    plan.read_all("1")
    plan.fresh = (replace(A0_REST, first=7), A1)
    assert plan.read_all("2") == [plan.fresh[0], A1]
    plan.fresh = (replace(A0_REST, first=10), A1)
    assert plan.read_all("3") == [A1], "all is deleted"


@pytest.mark.parametrize("driver", [CLUSTER, ""])
@pytest.mark.parametrize(("fresh", "partition", "planned_end", "end"), [
    (GROWN, 0, 10, 12), ((A0, A0_REST, replace(A1, end=4)), 1, 3, 4), ((A0, A0_REST, A1, ADDED), 0, 0, 7),
])  # fmt: skip
def test_where_executors_cannot_agree_newer_records_are_an_error(
    driver: str, fresh: Sequence[FetchRange], partition: int, planned_end: int, end: int
) -> None:
    plan = Plan(A0, A0_REST, A1, driver=driver)
    plan.read_all("1")
    assert plan.read_all("2") == [A0, A0_REST, A1]
    plan.fresh = fresh
    assert plan.read("3", 0) == [A0], "each task sees the growth of its own partition"
    with pytest.raises(PlanReused, match="reuseOffsets=true") as raised:
        plan.read_all("3")
    error = raised.value
    assert (error.partition, error.planned_end, error.end) == (partition, planned_end, end)


@pytest.mark.parametrize("size", [4, 10, 30])
def test_a_topic_that_was_created_again_since_is_read_whole(size: int) -> None:
    """Its offsets are others than those of the plan."""
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    planned = [replace(each, topic_id=old) for each in (A0, A0_REST, A1)]
    again = replace(A0, topic_id=new, end=size)
    fresh = (again, replace(A1, topic_id=new, end=0))
    for tasks in (planned, [tuple(planned)], [(planned[1], planned[2]), planned[0]]):
        plan = Plan(*tasks)
        plan.read_all("1")
        plan.fresh = fresh
        assert plan.read_all("2") == [again]
    plan = Plan(*planned, driver=CLUSTER)
    plan.read_all("1")
    plan.fresh = fresh
    with pytest.raises(PlanReused) as raised:
        plan.read_all("2")
    assert (raised.value.partition, raised.value.end) == (0, size)


def query_of(milliseconds_after_the_plan: int) -> str:
    """Return the id of a query that Spark began at this time."""
    return str(uuid.UUID(int=(PLANNED_MS + milliseconds_after_the_plan) << 80 | 7 << 76 | 2 << 62 | 0xA5))


def test_an_executor_that_ran_no_task_of_the_first_action_knows_a_later_one_by_the_time_of_its_query() -> None:
    plan = Plan(A0, A0_REST, A1, driver=CLUSTER)
    plan.fresh = GROWN
    with pytest.raises(PlanReused, match="up to offset 12"):
        plan.read_all("2", query=query_of(1))
    # A query that began before the plan, and that runs after another one.
    with pytest.raises(PlanReused):
        plan.read_all("3", query=query_of(-1))
    assert Plan(A0, A0_REST, A1, driver=CLUSTER).read_all("4", query=query_of(1)) == [A0, A0_REST, A1]


@pytest.mark.parametrize("query", [
    *map(query_of, (-3_600_000, -1, 0)), "", "none", str(uuid.UUID(int=(1 << 122) - 1, version=4))
])  # fmt: skip
def test_the_query_that_a_plan_was_made_in_began_before_it(query: str) -> None:
    """However late its tasks run. An id without a time tells nothing."""
    plan = Plan(A0, A0_REST, A1, driver=CLUSTER)
    plan.fresh = GROWN
    assert (plan.read_all("1", query=query), plan.replans) == ([A0, A0_REST, A1], 0)


def test_each_job_of_an_rdd_reads_what_has_arrived_since() -> None:
    plan = Plan(A0, A0_REST, A1)
    assert plan.read_all(None) == plan.read_all(None) == [A0, A0_REST, A1]
    plan.fresh = GROWN
    assert (plan.read_all("1"), plan.read_all(None, stage=2)) == ([A0, GROWN[1], A1], [A0, GROWN[1], A1])
    plan.fresh = (*GROWN, ADDED)
    # Tasks of a stage that run again.
    assert plan.read_all(None, stage=2) == [A0, GROWN[1], A1]
    assert plan.read_all(None, stage=3) == [A0, GROWN[1], A1, ADDED]
    # Where executors cannot agree, all jobs read the same.
    plan = Plan(A0, A0_REST, driver=CLUSTER)
    plan.read_all(None)
    plan.fresh = GROWN
    assert plan.read_all(None, stage=2) == [A0, A0_REST]
    with pytest.raises(PlanReused):
        plan.read_all("1")


def test_a_task_of_another_engine_reads_the_plan(executor: Path) -> None:
    plan = Plan(A0)
    plan.fresh = GROWN
    for _ in range(2):
        assert ranges_of(plan.tasks[0], Task(0, {}), plan._replan) == [A0]
    assert not list(executor.iterdir())


@pytest.mark.parametrize("first", ["1", None])
def test_where_no_note_can_be_kept_an_action_fails_and_reads_no_old_offsets(
    executor: Path, monkeypatch: pytest.MonkeyPatch, first: str | None
) -> None:
    """A full disk, or a folder that is gone, before the first action or after it."""
    plan = Plan(A0)
    if first is not None:
        plan.read_all(first)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(executor / "gone"))
    with pytest.raises(PlanNotNoted, match="reuseOffsets=true") as raised:
        plan.read_all("2")
    assert (raised.value.folder, raised.value.reason) == (str(executor / "gone"), "No such file or directory")


def test_plans_of_two_dataframes_are_apart_and_leave_one_file_each(executor: Path) -> None:
    first, second = Plan(A0), Plan(A0)
    first.read_all("1")
    assert (second.read_all("2"), second.replans) == ([A0], 0)
    assert sum(each.is_file() for each in executor.rglob("*")) == 2


def test_an_executor_that_lives_on_keeps_the_notes_of_plans_in_use(
    executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "MOST_NOTES", 10)
    used = Plan(A0)
    for number in range(30):
        used.fresh = (A0, A0_REST) if number else (A0,)
        used.read("1", 0)
        Plan(A0).read_all("1")
    assert sum(each.is_file() for each in executor.rglob("*")) <= 10
    assert used.read("2", 0) == [replace(A0, end=10, leader_epoch=1)]
