"""Which execution of Spark a plan of a batch read was made for, and what a later one reads.

Spark 4.1 to 4.3 keeps the plan of a Python source for the life of a DataFrame: a second action, a temporary view that
is asked again, and a static side of a stream all run the tasks of the first action. Nothing in Spark plans again, so
tasks do. They know their execution by local properties of Spark:

    the id of the query            has the time at which Spark began with it (UUID 7, Spark 4.2 on). Spark plans a read
                                   in its first execution, so a query that began after the plan is a later one
    the id of the execution        the first task of a plan in an executor notes it in the executor's folder. Another
                                   one is a later execution
    the stage                      counts as the execution of a job of an RDD, which has neither id
    a task of a later execution    plans again, once in an executor, and notes the ranges there

With a local master there is one executor: it has the driver's folder for blocks. All tasks of an execution read the
ranges of one plan there, also those that run again. The executors of a cluster share no folder. Each could find other
ends, so `PlanReused` fails the action if there are newer records. With reuseOffsets=true every action reads the
offsets of the first.

A note that cannot be kept or read is an error (`PlanNotNoted`): on a full disk a later action would read the first
offsets.

What a cluster does not see: a query that began before the plan, and runs after another one, in executors that ran no
task of the first. These are collect(), toPandas() and the like of a DataFrame that was made before the first action on
it, without Spark Connect; and every query of Spark 4.1.

Source: org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2.getOrCreateReadInfo,
org.apache.spark.sql.execution.SQLExecution.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from kafka_sink.errors import PlanNotNoted, PlanReused
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.topic_partition import TopicPartition, ids_differ
from kafka_sink.spark.kept_clients import blocks_folder
from kafka_sink.spark.task import Task

T = TypeVar("T")

# Two for each DataFrame that has had two actions.
MOST_NOTES = 10_000
_EXECUTION = "spark.sql.execution.id"
_QUERY = "spark.sql.execution.query.id"


@dataclass(frozen=True, slots=True)
class PlannedTask(InputPartition):
    """A task's part of a plan. `plan_id`: the same for all tasks of the plan. `planned_ms`: when the plan was begun, by
    the driver's clock. `driver`: the driver's folder for blocks. `ranges`: none if the plan has none. `ends`: where the
    plan ends each partition, in the last task; in others, those partitions whose last ranges they have. `idle`: in the
    last task, the empty ranges of partitions of which only this plan can tell where they begin."""

    plan_id: str
    planned_ms: int
    driver: str
    ranges: tuple[FetchRange, ...]
    ends: Mapping[TopicPartition, int]
    is_last: bool
    idle: Mapping[TopicPartition, FetchRange]


def planned_tasks(
    tasks: Sequence[tuple[FetchRange, ...]], planned_ms: int, driver: str, idle: Mapping[TopicPartition, FetchRange]
) -> Iterator[PlannedTask]:
    """Return a task for each group of ranges, and at least one."""
    plan_id = uuid.uuid4().hex
    ends: dict[TopicPartition, int] = {}
    for each in itertools.chain.from_iterable(tasks):
        ends[each.topic_partition] = max(each.end, ends.get(each.topic_partition, 0))
    for number, ranges in enumerate(tasks or [()], start=1):
        is_last = number >= len(tasks)
        own = {each.topic_partition: each.end for each in ranges if each.end == ends[each.topic_partition]}
        known = (ends, True, idle) if is_last else (own, False, {})
        yield PlannedTask(plan_id, planned_ms, driver, ranges, *known)


def ranges_of(planned: PlannedTask, task: Task, replan: Callable[[], Sequence[FetchRange]]) -> list[FetchRange]:
    """Return the ranges that the task reads in its execution. `replan`: plans the read anew, and returns what there is
    to read of each partition, also if it is nothing: a log of which retention has left nothing is read no more.

    Raises PlanReused, PlanNotNoted, and what `replan` raises.
    """
    ranges = list(planned.ranges)
    if not task.conf:
        # Not Spark.
        return ranges
    is_one_executor = planned.driver != "" and planned.driver == blocks_folder()
    # The jobs of an RDD are in no execution. Where executors cannot agree, they all read the same rows.
    execution = task.conf.get(_EXECUTION, f"rdd-{task.stage}" if is_one_executor else "rdd")
    if execution == _noted(planned.plan_id, lambda: None if _began_after(planned, task) else execution):
        return ranges
    fresh = _noted(f"{planned.plan_id}-{execution}", lambda: tuple(replan()))
    fresh = tuple(replace(each, first=max(each.first, _idle_first(planned, each))) for each in fresh)
    last = {each.topic_partition: each for each in fresh}
    # What retention has deleted since is no part of the read any more.
    begins = {each.topic_partition: each.first for each in reversed(fresh)}
    if not is_one_executor:
        _check_none_is_newer(planned, fresh, last)
    else:
        ends = planned.ends
        for number, each in enumerate(planned.ranges):
            of = each.topic_partition
            ranges[number] = _grown(each, last.get(of, each), is_last=each.end == ends.get(of))
        ranges += [each for each in fresh if planned.is_last and each.topic_partition not in ends]
    ranges = [replace(each, first=max(each.first, begins.get(each.topic_partition, 0))) for each in ranges]
    return [each for each in ranges if each.first < each.end]


def _grown(planned: FetchRange, newest: FetchRange, *, is_last: bool) -> FetchRange:
    """Return what a range of the plan has by now. The last one of a partition has what is new, which is all of a topic
    that was created again."""
    if ids_differ(planned.topic_id, newest.topic_id):
        return newest if is_last else replace(planned, end=planned.first)
    if is_last and newest.end > planned.end:
        return replace(planned, end=newest.end, leader_epoch=newest.leader_epoch)
    return planned


def _idle_first(planned: PlannedTask, fresh: FetchRange) -> int:
    """Return where the plan begins a partition that had nothing to read. It says nothing of a topic that was created
    again since: that is read whole."""
    idle = planned.idle.get(fresh.topic_partition)
    return 0 if idle is None or ids_differ(idle.topic_id, fresh.topic_id) else idle.first


def _began_after(planned: PlannedTask, task: Task) -> bool:
    """Tell if Spark began with the task's query after the plan. Both times are of the driver's clock."""
    with suppress(KeyError, ValueError):
        query = uuid.UUID(task.conf[_QUERY])
        return query.version == 7 and query.int >> 80 > planned.planned_ms
    return False


def _check_none_is_newer(
    planned: PlannedTask, fresh: Sequence[FetchRange], last: Mapping[TopicPartition, FetchRange]
) -> None:
    # Of topics that were created again, all is newer.
    again = {
        of for each in planned.ranges if ids_differ(each.topic_id, last.get(of := each.topic_partition, each).topic_id)
    }
    for each in fresh:
        partition = each.topic_partition
        if not planned.is_last and partition not in planned.ends:
            continue
        planned_end, end = planned.ends.get(partition, each.first), last[partition].end
        if planned_end < end or (partition in again and each.first < end):
            raise PlanReused(**partition._asdict(), planned_end=planned_end, end=end)


def _noted(name: str, make: Callable[[], T]) -> T:
    """Return what the executor's first task noted under `name`: what `make` returned there. Raises PlanNotNoted."""
    # Spark removes its folder with the executor.
    parent = blocks_folder() or tempfile.gettempdir()
    folder = Path(parent, f"pykafka-plans-{os.getuid()}")
    place = folder / name
    with _usable(parent), suppress(FileNotFoundError):
        os.utime(place)
        known: T = pickle.loads(place.read_bytes())
        return known
    made = make()
    with _usable(parent):
        folder.mkdir(mode=0o700, exist_ok=True)
        _forget_oldest(folder)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            pickle.dump(made, file)
            file.flush()
            # Atomic: of tasks that come at the same time the first one counts.
            with suppress(FileExistsError):
                os.link(file.name, place)
        noted: T = pickle.loads(place.read_bytes())
    return noted


@contextmanager
def _usable(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PlanNotNoted(folder=folder, reason=os.strerror(error.errno or errno.EIO)) from error


def _forget_oldest(folder: Path) -> None:
    """Keep a folder of an executor that lives for long from growing. The notes that were read last stay."""
    notes = list(os.scandir(folder))
    if len(notes) >= MOST_NOTES:
        for _, path in sorted((note.stat().st_mtime_ns, note.path) for note in notes)[: MOST_NOTES // 10]:
            with suppress(FileNotFoundError):
                os.unlink(path)
