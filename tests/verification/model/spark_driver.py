"""Spark's driver around the two-phase commit, as a program of effects that can stop at any of them.

    offset log ─> plan ─> tasks, each with attempts ─> commit ─> commit log        and again, for the next micro-batch

Batch writes with a version are micro-batches too. The user chooses their ids, and writes one again or goes on with the
next.

A dead process is a closed generator; its effects stay. An attempt of a task that Spark considers lost may live on. The
driver keeps it with its next effect, and its caller may resume the attempt at any later time.

Source: MicroBatchExecution (the order of the logs, the micro-batch's id in memory), PythonStreamingWrite and
WriteToDataSourceV2Exec (failed tasks, and a failed commit, are followed by abort, in another process), TaskSetManager
(attempts).
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from kafka_sink.commit import attempt, deciding, planning
from kafka_sink.commit.handover import Facts, Sink, SlotPrepared
from kafka_sink.commit.markers import Marker
from kafka_sink.commit.requests import Effect, Steps
from kafka_sink.errors import ExactlyOnceError
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.logical_kafka import Produce

QUERY = "query"
# `spark.task.maxFailures` is 4; what the third and fourth would show, the second does.
MOST_FAILURES = 2
# Of the one topic; a slot's rows go to the partition of its number.
PARTITIONS = tuple(TopicPartition("t", partition) for partition in range(5))


@dataclass(slots=True)
class Checkpoint:
    """Spark's two logs, by number of the micro-batch; of batch writes, the user's."""

    planned: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Log:
    """The effect of writing a micro-batch down, by its number. `rows`: those that Spark then takes for written; None
    for a version that was passed over for a later one."""

    log: list[int]
    number: int
    micro_batch_id: int
    rows: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """The effect of a task's message on its way to the driver."""

    slot: int


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Which run of which task. `run` counts those of all drivers' micro-batches."""

    micro_batch_id: int
    slot: int
    run: int
    attempt: int


class TaskFailed(Exception):
    """A task's error, which Spark answers with another attempt, and in the end with the micro-batch's."""


class AttemptLost(Exception):
    """Thrown into a driver: the executor of the task that it is in is lost to it, and may live on."""


class StageRunsAgain(Exception):
    """Thrown into a driver: the stage of the task that it is in is run again, and the task's attempt goes on."""


class GaveUp(Exception):
    """Thrown into a driver: a request got no answer in time."""


class LogTaken(Exception):
    """Another driver has written this down: Spark's "multiple streaming jobs detected"."""


Rows = Callable[[TaskRun], tuple[str, ...]]
Step = Effect | Produce | Log | Message
Program = Generator[Step, Any, None]
# A task's message, and the rows that it had.
Attempt = Generator[Step, Any, tuple[SlotPrepared, tuple[str, ...]]]


def fingerprint_of(rows: Sequence[str]) -> str:
    return f"{len(rows)}:{','.join(rows)}"


def total(fingerprints: Iterable[str]) -> list[str]:
    return sorted(filter(None, chain(*(each.partition(":")[2].split(",") for each in fingerprints))))


def one_by_one(steps: Steps[Any]) -> Generator[Effect, Any, Any]:
    """What may go out at the same time goes out in turn, so that a process can die in between."""
    answers: Sequence[Any] | None = None
    while True:
        try:
            effects = steps.send(answers) if answers is not None else next(steps)
        except StopIteration as ended:
            return ended.value
        answers = []
        for effect in effects:
            answers.append((yield effect))


@dataclass(slots=True)
class Driver:
    """`micro_batch_ids`: by number. `slots`: how many a run of a micro-batch has. `next_run`: of all drivers. `cores`:
    how many tasks run at a time. `lost`: attempts that live on, each with its next effect. `in_task`: an attempt is
    what would be lost now."""

    sink: Sink
    checkpoint: Checkpoint
    rows: Rows
    slots: Callable[[int, int], int]
    micro_batch_ids: Sequence[int]
    now_ms: Callable[[], int]
    next_run: Callable[[], int]
    allow_lost_state: bool = False
    cores: int = 1
    lost: list[tuple[Attempt, Step]] = field(default_factory=list)
    in_task: bool = False

    def program(self) -> Program:
        """Until all micro-batches are committed. Raises the error that stops the query."""
        for number in range(len(self.checkpoint.committed), len(self.micro_batch_ids)):
            micro_batch_id = self.micro_batch_ids[number]
            if number >= len(self.checkpoint.planned):
                yield Log(self.checkpoint.planned, number, micro_batch_id)
            run = self.next_run()
            facts = yield from one_by_one(planning.plan(self.sink, allow_lost_state=self.allow_lost_state))
            done: dict[int, tuple[SlotPrepared, tuple[str, ...]]] = {}
            slots = self.slots(micro_batch_id, run)
            if self.sink.is_versioned:
                is_written = planning.is_written(
                    self.sink, facts, query_id=QUERY, version=micro_batch_id, allow_lost_state=self.allow_lost_state
                )
                if (yield from one_by_one(is_written)):
                    written = yield from self._count(facts, micro_batch_id, run, slots)
                    yield Log(self.checkpoint.committed, number, micro_batch_id, written)
                    continue
            if facts.decision is not None:
                touched = [each for each in PARTITIONS if each.topic in facts.decision.topics]
                yield from one_by_one(planning.end_what_hangs(self.sink, facts, touched))
            try:
                yield from self._tasks(facts, [TaskRun(micro_batch_id, slot, run, 0) for slot in range(slots)], done)
                prepared, rows = zip(*(done[slot] for slot in range(slots)), strict=True)
                commit = deciding.commit(
                    self.sink, facts, prepared, micro_batch_id=micro_batch_id, now_ms=self.now_ms(),
                    allow_lost_state=self.allow_lost_state,
                )  # fmt: skip
                yield from one_by_one(commit)
            except (ExactlyOnceError, TaskFailed, GaveUp):
                yield from one_by_one(planning.abort(self.sink, facts.generation))
                raise
            yield Log(self.checkpoint.committed, number, micro_batch_id, tuple(chain(*rows)))

    def _count(self, facts: Facts, version: int, run: int, slots: int) -> Generator[Step, Any, tuple[str, ...] | None]:
        """Tasks whose rows are only read. Those of a version that is visible; None for one that was passed over."""
        rows = []
        for slot in range(slots):
            rows.append(self.rows(TaskRun(version, slot, run, 0)))
            yield Message(slot)
        assert facts.decision is not None
        if facts.decision.micro_batch_id != version:
            return None
        fingerprints, touched = list(map(fingerprint_of, rows)), [TopicPartition("t", slot) for slot in range(slots)]
        yield from one_by_one(planning.check_written(self.sink, facts, fingerprints, total=total, touched=touched))
        return tuple(chain(*rows))

    def _tasks(
        self, facts: Facts, tasks: list[TaskRun], done: dict[int, tuple[SlotPrepared, tuple[str, ...]]]
    ) -> Program:
        """`cores` at a time, which take turns. What tasks came to goes to `done`, by slot, also if another fails."""
        waiting = [(task.slot, self._task_until_done(facts, task)) for task in tasks]
        running: list[tuple[int, Attempt, Step]] = []
        self.in_task = True
        try:
            while waiting or running:
                while waiting and len(running) < self.cores:
                    slot, task = waiting.pop(0)
                    running.append((slot, task, next(task)))
                slot, task, effect = running.pop(0)
                answer, thrown = None, None
                try:
                    answer = yield effect
                except (AttemptLost, GaveUp, StageRunsAgain) as error:
                    thrown = error
                try:
                    following = task.send(answer) if thrown is None else task.throw(thrown)
                except StopIteration as ended:
                    done[slot] = ended.value
                else:
                    running.append((slot, task, following))
        finally:
            self.in_task = False

    def _task_until_done(self, facts: Facts, first: TaskRun) -> Attempt:
        failures = 0
        attempt = 0
        runs_again = False
        while True:
            run = TaskRun(first.micro_batch_id, first.slot, first.run, attempt)
            task = self._task(facts, run, is_retry=attempt > 0)
            attempt += 1
            try:
                effect = next(task)
                while True:
                    try:
                        answer = yield effect
                    except StageRunsAgain:
                        runs_again = True
                        continue
                    effect = task.send(answer)
            except AttemptLost:
                self.lost.append((task, effect))
            except StopIteration as ended:
                done: tuple[SlotPrepared, tuple[str, ...]] = ended.value
                if runs_again:
                    # Spark has a result of the task, and does not look at how this attempt ends.
                    with suppress(ExactlyOnceError, TaskFailed, GaveUp, AttemptLost, StageRunsAgain):
                        # Spark counts the attempts of each run of a stage anew.
                        again = TaskRun(first.micro_batch_id, first.slot, first.run, attempt)
                        yield from self._task(facts, again, is_retry=False)
                return done
            except (ExactlyOnceError, TaskFailed, GaveUp):
                failures += 1
                if failures == MOST_FAILURES:
                    raise

    def _task(self, facts: Facts, task: TaskRun, *, is_retry: bool) -> Attempt:
        """One attempt."""
        slot, micro_batch_id = task.slot, task.micro_batch_id
        rows = self.rows(task)
        fingerprint = fingerprint_of(rows)
        ids = None if is_retry else facts.resting_ids(slot, self.sink.transaction_version)
        if not rows and ids is not None:
            yield Message(slot)
            return SlotPrepared(slot, ids, QUERY, fingerprint, visible=None, rests=True), rows
        begins = attempt.begin(
            self.sink, facts, slot=slot, micro_batch_id=micro_batch_id, query_id=QUERY,
            allow_lost_state=self.allow_lost_state,
        )  # fmt: skip
        begun = yield from one_by_one(begins)
        first_offsets: dict[TopicPartition, int | None] = {}
        counts: dict[TopicPartition, int] = {}
        if begun.visible is None:
            if rows:
                name = self.sink.names.slot(slot)
                produced = yield Produce(name, begun.ids.producer_id, begun.ids.producer_epoch, slot, rows)
                if produced.error_code != ErrorCode.NONE:
                    raise TaskFailed(produced.error_code)
                first_offsets[TopicPartition("t", slot)] = produced.base_offset
                counts[TopicPartition("t", slot)] = len(rows)
            marker = Marker(micro_batch_id, QUERY, fingerprint)
            yield from one_by_one(attempt.prepare(self.sink, begun, marker))
        yield Message(slot)
        partitions = (TopicPartition("t", slot),) if rows else ()
        return SlotPrepared(slot, begun.ids, QUERY, fingerprint, begun.visible, partitions, first_offsets, counts), rows
