"""One Kafka, one checkpoint, and the events that happen to the drivers between the two.

A step is an effect that some driver is about to have; the steps of all drivers are counted as one sequence. A
`Schedule` has the events before given steps, `may_fail` and `may_stop` the errors that drivers may then end with. A
`World` runs a schedule to its end: a driver that died or stopped is started again, as a user would, until all
micro-batches are logged or two starts in a row stop with a final error.

What is checked, of every world:

* in Spark's commit log  =>  each row of that run is visible exactly once, at that moment and at the end
* not in the log  =>  each of its slots is visible whole or not at all, and the query has stopped with an error that
  says so. Nothing else is visible, so no row of an abandoned attempt is visible
* a version that its user gave up => it is visible whole, once, or not at all
* errors are of the kinds that the events of the schedule allow
* after the next `plan` no open transaction holds readers back, and nothing else has become visible
* the transactional ids are those of the driver and the slots
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, dataclass_transform

from kafka_sink import errors
from kafka_sink.commit import planning
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import METADATA_MAX_CHARACTERS, Names
from kafka_sink.commit.requests import Pause
from kafka_sink.kafka.protocol.apis.groups import OffsetFetchResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from model import spark_driver as spark
from model.logical_kafka import LAST_EPOCH, LogicalKafka, Produce

# Kafka's default of `offsets.retention.minutes`.
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
# A week after which the markers of a decision are gone, and the decision itself, a little younger, is not.
MARKERS_EXPIRE_MS = OFFSETS_RETENTION_MS - 10_000
ALL_EXPIRE_MS = OFFSETS_RETENTION_MS + 3_600_000


@dataclass_transform(frozen_default=True)
class Event:
    """What happens to drivers or to Kafka before a step. Each is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Crash(Event):
    """The driver dies, and is started again."""


class Twice(Event):
    """The request is carried out twice: its answer was lost, and the client asked again."""


class Late(Event):
    """The request of step `sent` is carried out (once more)."""

    sent: int


class Fail(Event):
    """The request gets no answer in time; it was carried out, or not."""

    carried_out: bool


class TimeOut(Event):
    """One transaction, or every open one, times out."""

    transactional_id: str | None = None


class AbortByHand(Event):
    """An operator aborts a slot's transaction."""

    slot: int


class LoseMarker(Event):
    """The next commit of the slot, or its next abort, does not come to the leader of its partition."""

    slot: int
    committed: bool = True


class StandStill(Event):
    """The next `reads` of offsets are answered by stale group coordinators: they lack the last `changes` of the
    offsets."""

    changes: int
    reads: int


class CoordinatorsStandStill(Event):
    """The next `requests` go to stale transaction coordinators: they lack the last `changes` of transactions."""

    changes: int
    requests: int


class LeadersStandStill(Event):
    """The next `requests` go to stale leaders: they lack the last `changes` of producers."""

    changes: int
    requests: int


class Lose(Event):
    """Spark gives the task's attempt up and begins another; the old attempt is paused."""


class Resume(Event):
    """Paused attempts go on: `effects` is the number of their next effects, None for all."""

    effects: int | None = None


class RunStageAgain(Event):
    """Spark runs the stage of the task again (FetchFailed) while the task's attempt goes on. It keeps the attempt's
    result, and drops that of the second."""


class Switch(Event):
    """This driver pauses. Another driver on the same checkpoint begins or goes on."""


class Forget(Event):
    """No driver is left and time passes; when the next begins, some groups are gone."""

    what: str
    later_ms: int = 0


class LoseGroups(Event):
    """Somebody deletes these groups while drivers live; or only their offsets of markers and decisions."""

    groups: tuple[str, ...]
    only_offsets: bool = False


class RollBack(Event):
    """The brokers lose the last changes of offsets, of all groups or of `groups`, and of transactions."""

    offsets: int = 0
    transactions: int = 0
    groups: tuple[str, ...] | None = None


class Mark(Event):
    """Nothing happens, and `RollBackToMark` goes back to here."""


class RollBackToMark(Event):
    """The brokers lose all changes of offsets and transactions since the mark."""


class ForgetIds(Event):
    """The transactional ids that are not in use are gone."""


class GoBack(Event):
    """No driver is left, and the checkpoint loses so many micro-batches of its commit log."""

    micro_batches: int


class GiveUp(Event):
    """No driver is left, and the user of a batch write goes on with the next version, whatever became of this one."""


# Rows of each slot of each micro-batch.
Shape = tuple[tuple[int, ...], ...]
TWO_BY_TWO: Shape = ((2, 2), (2, 2))
ALWAYS, FIRST_SLOT, NEVER = "every run gives the same rows", "slot 0 gives the same rows", "each run gives other rows"
COME_AND_GO = "of each slot but 0 every other attempt gives other rows, and every other none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`shapes`: of the runs in turn. `same_rows`: one of the four above. `metadata_max` and `last_epoch` are
    small where many groups, and many producer ids, are to be had from few slots and runs. `cores`: with more than one,
    tasks take turns, effect by effect. `versions`: those of batch writes, in the order in which they are written, and
    perhaps again; a shape has each of them once. A stream counts from 0."""

    version: int
    events: tuple[tuple[int, Event], ...] = ()
    shapes: tuple[Shape, ...] = (TWO_BY_TWO,)
    same_rows: str = ALWAYS
    metadata_max: int = METADATA_MAX_CHARACTERS
    last_epoch: int = LAST_EPOCH
    allow_lost_state: bool = False
    cores: int = 1
    versions: tuple[int, ...] = ()

    def micro_batch_ids(self) -> Sequence[int]:
        return self.versions or range(len(self.shapes[0]))

    def shape_of(self, run: int, micro_batch_id: int) -> tuple[int, ...]:
        shape = self.shapes[run % len(self.shapes)]
        return shape[list(dict.fromkeys(self.micro_batch_ids())).index(micro_batch_id)]

    def kinds(self) -> set[type]:
        return {type(event) for _, event in self.events}


# What can take a transaction away between a decision and its EndTxn requests: the broker's timeout, an operator, an
# attempt that Spark had given up, another driver or an InitProducerId that was on its way for long. A restart commits
# what still can be, and writes the rest again, if the rows are the same.
ROLLING_BACK = {RollBack, RollBackToMark}
TAKING_AWAY = {Late, TimeOut, AbortByHand, Resume, Switch, Forget, *ROLLING_BACK}
# Not named without lost groups.
OF_LOST_STATE: set[type[Exception]] = {
    errors.StateExpired, errors.MarkersLost, errors.FingerprintsLost, errors.CommittedDataMissing,
    errors.UnreadableState, errors.StateWentBack,
}  # fmt: skip
FINAL: set[type[Exception]] = {
    errors.NonDeterministicReplay, errors.TornBatch, errors.CheckpointBehind, errors.WrittenOtherwise, *OF_LOST_STATE,
}  # fmt: skip


def may_fail(schedule: Schedule) -> set[type[Exception]]:
    """Errors after which a restart goes on."""
    kinds = schedule.kinds()
    allowed: set[type[Exception]] = set()
    if kinds & TAKING_AWAY:
        allowed |= {
            errors.DriverFenced, errors.AttemptFenced, errors.AttemptReplaced, errors.TransactionTimedOut,
            errors.PreparedRowsGone, errors.CommitOutcomeUnknown, spark.TaskFailed,
        }  # fmt: skip
    if Fail in kinds:
        allowed |= {spark.GaveUp}
    if RunStageAgain in kinds or schedule.same_rows == COME_AND_GO:
        allowed |= {errors.AttemptReplaced}
    if kinds & {LoseGroups, *ROLLING_BACK}:
        # In mid-commit; a commit that another follows upon has lost its decision.
        allowed |= {errors.CommitOutcomeUnknown, errors.StateExpired}
    is_lost = any(isinstance(event, LoseMarker) and not event.committed for _, event in schedule.events)
    if is_lost or kinds & ROLLING_BACK:
        allowed |= {errors.AbortedRowsOpen}
    if Switch in kinds:
        # A driver that another has overtaken; one that has other rows than the other.
        allowed |= {spark.LogTaken, errors.CheckpointBehind}
    return allowed


def may_stop(schedule: Schedule) -> set[type[Exception]]:
    """Errors that every restart ends with."""
    kinds = schedule.kinds()
    allowed: set[type[Exception]] = set()
    if schedule.same_rows != ALWAYS or len(schedule.shapes) > 1:
        allowed |= {errors.NonDeterministicReplay}
        allowed |= {errors.TornBatch} if kinds & TAKING_AWAY else set()
    if kinds & {Forget, LoseGroups, *ROLLING_BACK} and not schedule.allow_lost_state:
        allowed |= OF_LOST_STATE
    if kinds & {GoBack, *ROLLING_BACK} and not schedule.versions:
        allowed |= {errors.CheckpointBehind}
    if kinds & ROLLING_BACK:
        allowed |= {errors.WrittenOtherwise}
    if GiveUp in kinds:
        # Of the first version, before it was decided; of one that is torn.
        allowed |= {errors.StateExpired, errors.CommittedDataMissing} if kinds & TAKING_AWAY else {errors.StateExpired}
    return allowed


TIMEOUT_MS = 60_000
MOST_STARTS = 14
NAMES = Names("sink", "commits")


@dataclass(slots=True, eq=False)
class _Process:
    driver: spark.Driver
    program: spark.Program
    effect: spark.Step
    is_blocked: bool = False


class Watcher(Protocol):
    """Receives each event of a world with the effect that follows it, and each effect that Kafka or a log carried out,
    with its answer. `step`: the number of effects begun so far."""

    def happens(self, step: int, event: Event, effect: spark.Step) -> None: ...
    def carried_out(self, step: int, effect: spark.Step, answer: object) -> None: ...


class World:
    """`step`: how many there were. `errors`: of the drivers, in order. `stopped_by`: the final one, if any."""

    def __init__(self, schedule: Schedule, watcher: Watcher | None = None) -> None:
        self.schedule = schedule
        self._watcher = watcher
        stands_still = bool(schedule.kinds() & {CoordinatorsStandStill, LeadersStandStill, *ROLLING_BACK})
        self.kafka = LogicalKafka(schedule.version, schedule.last_epoch, remembers=stands_still)
        self.step = 0
        self.errors: list[type[Exception]] = []
        self.stopped_by: type[Exception] | None = None
        self._events: dict[int, list[Event]] = defaultdict(list)
        for step, event in schedule.events:
            self._events[step].append(event)
        self._sink = Sink(
            NAMES, TIMEOUT_MS, schedule.version, schedule.metadata_max, is_versioned=bool(schedule.versions)
        )
        self._checkpoint = spark.Checkpoint()
        self._micro_batch_ids = schedule.micro_batch_ids()
        self._given_up: set[int] = set()
        self._runs = count()
        self._most_slots = 0
        self._live: list[_Process] = []
        self._lost: list[tuple[spark.Attempt, spark.Step]] = []
        self._sent: list[spark.Step] = []
        self._logged: dict[int, tuple[str, ...]] = {}

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        last: type[Exception] | None = None
        for _ in range(MOST_STARTS):
            before = len(self.errors)
            self._start()
            while self._live:
                self._have_next()
            if len(self._checkpoint.committed) == len(self._micro_batch_ids):
                return
            ended_by = self.errors[-1] if len(self.errors) > before else None
            if ended_by in FINAL and last in FINAL:
                self.stopped_by = ended_by
                return
            last = ended_by
        raise AssertionError(f"no driver came to an end: {self.errors}")

    def _start(self) -> None:
        schedule = self.schedule

        def slots(micro_batch_id: int, run: int) -> int:
            here = len(schedule.shape_of(run, micro_batch_id))
            self._most_slots = max(self._most_slots, here)
            return here

        driver = spark.Driver(
            self._sink, self._checkpoint, self._rows, slots, self._micro_batch_ids, lambda: self.kafka.now_ms,
            self._runs.__next__, schedule.allow_lost_state, schedule.cores, self._lost,
        )  # fmt: skip
        program = driver.program()
        first = next(program, None)
        if first is not None:
            self._live.append(_Process(driver, program, first))

    def _rows(self, task: spark.TaskRun) -> tuple[str, ...]:
        schedule = self.schedule
        rows = schedule.shape_of(task.run, task.micro_batch_id)[task.slot]
        if schedule.same_rows == COME_AND_GO and task.slot and (task.slot + task.attempt) % 2:
            rows = 0
        is_same = schedule.same_rows == ALWAYS or (schedule.same_rows == FIRST_SLOT and task.slot == 0)
        which = "" if is_same else f"{task.run}.{task.attempt}"
        return tuple(f"{task.micro_batch_id}/{task.slot}/{which}/{row}/{rows}" for row in range(rows))

    def _have_next(self) -> None:
        """Run the next effect of the first live driver, unless an event comes before it."""
        process = self._live[0]
        effect = process.effect
        self._sent.append(effect)
        instead: Event | None = None
        times = 1
        for event in self._events.get(self.step, ()):
            if self._watcher:
                self._watcher.happens(self.step, event, effect)
            if isinstance(event, Twice):
                times = 2
            elif isinstance(event, Crash | Fail | Lose | Switch | Forget | GoBack | GiveUp | RunStageAgain):
                instead = event
            else:
                self._happen(event)
        self.step += 1
        match instead:
            case Crash():
                self._die(process)
            case Forget() | GoBack() | GiveUp():
                for each in list(self._live):
                    self._die(each)
                self._lose_memory(instead)
            case Switch():
                self._switch()
            case Lose() if process.driver.in_task:
                self._throw(process, spark.AttemptLost())
            case RunStageAgain() if process.driver.in_task:
                self._throw(process, spark.StageRunsAgain())
            case Fail(carried_out=carried_out) if not isinstance(effect, spark.Log):
                if carried_out:
                    self._execute(effect)
                self._throw(process, spark.GaveUp())
            case _:
                self._go_on(process, times)

    def _happen(self, event: Event) -> None:
        match event:
            case Late(sent):
                request = self._sent[sent]
                if not isinstance(request, Produce | spark.Log | spark.Message):
                    self._execute(request)
            case TimeOut(transactional_id):
                self.kafka.time_out(transactional_id)
            case AbortByHand(slot=slot):
                self.kafka.abort_manually(NAMES.slot(slot))
            case LoseMarker(slot=slot, committed=committed):
                # A slot's rows go to the partition of its number.
                self.kafka.lose_marker(slot, committed=committed)
            case StandStill(changes=changes, reads=reads):
                self.kafka.stand_still(changes, reads)
            case CoordinatorsStandStill(changes=changes, requests=requests):
                self.kafka.transaction_history.stand_still(changes, requests)
            case LeadersStandStill(changes=changes, requests=requests):
                self.kafka.producer_history.stand_still(changes, requests)
            case Resume(effects=effects):
                self._resume(effects)
            case LoseGroups(groups=groups, only_offsets=only_offsets):
                lose = self.kafka.delete_offsets if only_offsets else self.kafka.forget_offsets
                lose(groups)
            case RollBack(offsets=offsets, transactions=transactions, groups=groups):
                self.kafka.roll_offsets_back(offsets, groups)
                self.kafka.roll_transactions_back(transactions)
            case Mark():
                self.kafka.mark()
            case RollBackToMark():
                self.kafka.roll_back_to_mark()
            case ForgetIds():
                self.kafka.forget_transactional_ids()

    def _die(self, process: _Process) -> None:
        process.program.close()
        self._live.remove(process)

    def _lose_memory(self, event: Forget | GoBack | GiveUp) -> None:
        if isinstance(event, GoBack):
            del self._checkpoint.committed[-event.micro_batches :]
            return
        if isinstance(event, GiveUp):
            number = len(self._checkpoint.committed)
            # After the last there is none to go on with.
            if number < len(self._micro_batch_ids) - 1:
                self._given_up.add(self._micro_batch_ids[number])
                for log in (self._checkpoint.planned, self._checkpoint.committed):
                    log[number:] = [number]
            return
        self.kafka.now_ms += event.later_ms
        if event.later_ms:
            self.kafka.time_out()
        slots = [NAMES.slot(slot) for slot in range(self._most_slots)]
        groups = {"everything": None, "the decision": [NAMES.decision(0)], "the markers": slots}
        self.kafka.forget_offsets(groups[event.what])

    def _switch(self) -> None:
        if len(self._live) == 1:
            self._start()
        self._live.append(self._live.pop(0))

    def _go_on(self, process: _Process, times: int) -> None:
        effect = process.effect
        if isinstance(effect, spark.Log) and effect.number in effect.log:
            self._throw(process, spark.LogTaken())
            return
        answer = None
        for _ in range(1 if isinstance(effect, Produce | spark.Log) else times):
            answer = self._execute(effect)
        if _is_unstable(answer):
            # The client asks again, until another driver has ended its transaction or the broker has.
            process.is_blocked = True
            if all(each.is_blocked for each in self._live):
                assert self.kafka.time_out(), "an offset is unstable, and no transaction is open"
            else:
                self._live.append(self._live.pop(0))
            return
        process.is_blocked = False
        self._have_effect(process, process.program.send, answer)

    def _throw(self, process: _Process, error: Exception) -> None:
        self._have_effect(process, process.program.throw, error)

    def _have_effect(self, process: _Process, go_on: Callable[[Any], spark.Step], told: Any) -> None:
        try:
            process.effect = go_on(told)
        except (StopIteration, errors.ExactlyOnceError, spark.TaskFailed, spark.GaveUp, spark.LogTaken) as end:
            self._live.remove(process)
            if not isinstance(end, StopIteration):
                self.errors.append(type(end))

    def _resume(self, effects: int | None) -> None:
        standing, self._lost[:] = self._lost[:], []
        for program, effect in standing:
            for _ in range(effects or 1_000):
                answer = self._execute(effect)
                if _is_unstable(answer):
                    break
                try:
                    effect = program.send(answer)
                except (StopIteration, errors.ExactlyOnceError, spark.TaskFailed):
                    break
            else:
                self._lost.append((program, effect))

    def _execute(self, effect: spark.Step) -> Any:
        answer = self._answer(effect)
        if self._watcher:
            self._watcher.carried_out(self.step, effect, answer)
        return answer

    def _answer(self, effect: spark.Step) -> Any:
        match effect:
            case Pause() | spark.Message():
                return None
            case spark.Log(log=log, number=number, micro_batch_id=micro_batch_id, rows=rows):
                log.append(number)
                if log is self._checkpoint.committed and rows is not None:
                    self._logged[micro_batch_id] = rows
                    self._check_logged()
                return None
        return self.kafka.execute(effect)

    # --- checking -----------------------------------------------------------------------------------------------------

    def _visible(self) -> Counter[str]:
        """Micro-batch 0 of a query of which neither groups nor transactional ids are left cannot be told from the first
        of a new one, and is written again: those doubles are left out."""
        visible = Counter(self.kafka.visible)
        forgotten = {event.what for _, event in self.schedule.events if isinstance(event, Forget)}
        if "everything" in forgotten and ForgetIds in self.schedule.kinds():
            logged = self._logged.get(0, ())
            first = {row: 1 for row in visible if row in logged}
            visible = Counter({row: times for row, times in visible.items() if not row.startswith("0/")} | first)
        return visible

    def _check_logged(self) -> None:
        visible = self._visible()
        for micro_batch_id, rows in self._logged.items():
            wrong = {row: visible[row] for row in rows if visible[row] != 1}
            assert not wrong, f"micro-batch {micro_batch_id} is logged; rows and how often they are visible: {wrong}"

    def check(self) -> None:
        self._check_logged()
        logged = Counter(row for rows in self._logged.values() for row in rows)
        others = self._visible() - logged
        if self.stopped_by is None:
            self._check_given_up(others)
            assert not others, f"visible, and of no run that Spark logged: {others}"
        else:
            self._check_stopped(others)
        allowed = may_fail(self.schedule) | may_stop(self.schedule)
        assert set(self.errors) <= allowed, f"drivers ended with {self.errors}"
        self._check_left_behind()

    def _check_given_up(self, others: Counter[str]) -> None:
        """Takes what may be visible of them from `others`."""
        for version in self._given_up - self._logged.keys():
            slots = range(len(self.schedule.shape_of(0, version)))
            whole = Counter(row for slot in slots for row in self._rows(spark.TaskRun(version, slot, 0, 0)))
            visible = Counter({row: times for row, times in others.items() if row.startswith(f"{version}/")})
            assert not visible or visible == whole, f"version {version} was given up, and is visible in part: {visible}"
            others -= whole

    def _check_stopped(self, others: Counter[str]) -> None:
        assert self.stopped_by in may_stop(self.schedule), f"stopped by {self.stopped_by}"
        assert all(times == 1 for times in others.values()), f"doubled: {others}"
        slots: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
        for row in others:
            micro_batch_id, slot, *rest = row.split("/")
            assert int(micro_batch_id) not in self._logged, f"{row} is of a micro-batch of which others are logged"
            slots[micro_batch_id, slot].append(rest)
        for slot_rows in slots.values():
            assert len({which for which, *_ in slot_rows}) == 1, f"of more than one attempt: {slot_rows}"
            assert len(slot_rows) == int(slot_rows[0][-1]), f"a slot is visible in part: {slot_rows}"
        # What is visible may be a micro-batch that was logged once, or a slot without rows.
        has_empty_slots = any(0 in micro_batch for shape in self.schedule.shapes for micro_batch in shape)
        comes_again = len(set(self._micro_batch_ids)) < len(self._micro_batch_ids)
        losing = {GoBack, Forget, LoseGroups, *ROLLING_BACK}
        is_explained = has_empty_slots or comes_again or self.schedule.kinds() & losing
        if self.stopped_by in (errors.NonDeterministicReplay, errors.TornBatch) and not is_explained:
            assert others, f"{self.stopped_by} though nothing was visible"

    def _check_left_behind(self) -> None:
        # A task that stops the query stops others in mid-write, and abort has no message of theirs.
        # A plan that finds state lost ends nothing: a lost decision may name what is open.
        disturbed = self.schedule.kinds() & {*TAKING_AWAY, Fail, GoBack} or self.stopped_by is errors.StateWentBack
        assert disturbed or self.kafka.holding_back() == [], "an open transaction was left behind"
        before = list(self.kafka.visible)
        is_rolled_back = bool(self.schedule.kinds() & ROLLING_BACK)
        try:
            self._run_alone(spark.one_by_one(planning.plan(self._sink)))
        except errors.StateWentBack:
            # Each plan stops with it before it ends a transaction: an operator has to look first.
            assert is_rolled_back or self.schedule.kinds() & {LoseGroups, Forget}, "nothing was lost"
        else:
            # A coordinator that went back may have open again what its leaders have ended, and hold nobody back.
            assert is_rolled_back or self.kafka.holding_back() == [], "an open transaction outlived a plan"
        assert self.kafka.visible == before, "a plan made rows visible after the end"
        expected = {NAMES.driver, *map(NAMES.slot, range(self._most_slots))}
        ids = self.kafka.transactional_ids()
        # Of other slots than it ends with, a driver may have died before it came to the last; what is passed over has
        # none.
        is_stream = not self.schedule.versions
        is_simple = self.schedule.kinds() <= {Crash, Twice} and len(self.schedule.shapes) == 1 and is_stream
        assert ids == expected if is_simple else ids <= expected, f"ids: {ids}"

    def _run_alone(self, steps: spark.Program) -> None:
        effect = next(steps, None)
        while effect is not None:
            answer = self._execute(effect)
            if _is_unstable(answer):
                assert self.kafka.time_out(), "an offset is unstable, and no transaction is open"
                continue
            try:
                effect = steps.send(answer)
            except StopIteration:
                return


def _is_unstable(answer: Any) -> bool:
    return isinstance(answer, OffsetFetchResponse) and any(
        group.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT for group in answer.groups
    )


def run(schedule: Schedule, watcher: Watcher | None = None) -> World:
    """Run a world and return it. A failure has the schedule in its error."""
    world = World(schedule, watcher)
    try:
        world.run()
        world.check()
    except Exception as error:
        error.add_note(f"{schedule!r}")
        raise
    return world


def steps_of_a_quiet_run(schedule: Schedule) -> int:
    world = run(schedule)
    assert not world.errors
    return world.step
