"""Events that happen to the drivers of a world before given steps, and the errors that drivers may then end with.

A step is an effect that some driver is about to have; the steps of all drivers are counted as one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_sink.commit.markers import METADATA_MAX_CHARACTERS
from kafka_sink.errors import (
    AbortedRowsOpen,
    AttemptFenced,
    AttemptReplaced,
    CheckpointBehind,
    CommitOutcomeUnknown,
    CommittedDataMissing,
    DriverFenced,
    FingerprintsLost,
    MarkersLost,
    NonDeterministicReplay,
    PreparedRowsGone,
    StateExpired,
    StateWentBack,
    TornBatch,
    TransactionTimedOut,
    UnreadableState,
    WrittenOtherwise,
)
from model.logical_kafka import LAST_EPOCH
from model.spark_driver import GaveUp, LogTaken, TaskFailed

# Kafka's default of `offsets.retention.minutes`.
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
# A week after which the markers of a decision are gone, and the decision itself, a little younger, is not.
MARKERS_EXPIRE_MS = OFFSETS_RETENTION_MS - 10_000
ALL_EXPIRE_MS = OFFSETS_RETENTION_MS + 3_600_000


@dataclass(frozen=True, slots=True)
class Crash:
    """The driver dies, and is started again."""


@dataclass(frozen=True, slots=True)
class Twice:
    """The request is carried out twice: its answer was lost, and the client asked again."""


@dataclass(frozen=True, slots=True)
class Late:
    """The request of step `sent` is carried out (once more)."""

    sent: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The request gets no answer in time; it was carried out, or not."""

    carried_out: bool


@dataclass(frozen=True, slots=True)
class TimeOut:
    """One transaction, or every open one, times out."""

    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class AbortByHand:
    """An operator aborts a slot's transaction."""

    slot: int


@dataclass(frozen=True, slots=True)
class LoseMarker:
    """The next commit of the slot, or its next abort, does not come to the leader of its partition."""

    slot: int
    committed: bool = True


@dataclass(frozen=True, slots=True)
class StandStill:
    """The next `reads` of offsets are answered by stale group coordinators: they lack the last `changes` of the
    offsets."""

    changes: int
    reads: int


@dataclass(frozen=True, slots=True)
class CoordinatorsStandStill:
    """The next `requests` go to stale transaction coordinators: they lack the last `changes` of transactions."""

    changes: int
    requests: int


@dataclass(frozen=True, slots=True)
class LeadersStandStill:
    """The next `requests` go to stale leaders: they lack the last `changes` of producers."""

    changes: int
    requests: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Spark gives the task's attempt up and begins another; the old attempt is paused."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Paused attempts go on: `effects` is the number of their next effects, None for all."""

    effects: int | None = None


@dataclass(frozen=True, slots=True)
class RunStageAgain:
    """Spark runs the stage of the task again (FetchFailed) while the task's attempt goes on. It keeps the attempt's
    result, and drops that of the second."""


@dataclass(frozen=True, slots=True)
class Switch:
    """This driver pauses. Another driver on the same checkpoint begins or goes on."""


@dataclass(frozen=True, slots=True)
class Forget:
    """No driver is left and time passes; when the next begins, some groups are gone."""

    what: str
    later_ms: int = 0


@dataclass(frozen=True, slots=True)
class LoseGroups:
    """Somebody deletes these groups while drivers live; or only their offsets of markers and decisions."""

    groups: tuple[str, ...]
    only_offsets: bool = False


@dataclass(frozen=True, slots=True)
class RollBack:
    """The brokers lose the last changes of offsets, of all groups or of `groups`, and of transactions."""

    offsets: int = 0
    transactions: int = 0
    groups: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing happens, and `RollBackToMark` goes back to here."""


@dataclass(frozen=True, slots=True)
class RollBackToMark:
    """The brokers lose all changes of offsets and transactions since the mark."""


@dataclass(frozen=True, slots=True)
class ForgetIds:
    """The transactional ids that are not in use are gone."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """No driver is left, and the checkpoint loses so many micro-batches of its commit log."""

    micro_batches: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No driver is left, and the user of a batch write goes on with the next version, whatever became of this one."""


Event = (
    Crash | Twice | Late | Fail | TimeOut | AbortByHand | LoseMarker | Lose | Resume | RunStageAgain | Switch | Forget
    | ForgetIds | GoBack | GiveUp | LoseGroups | RollBack | Mark | RollBackToMark | StandStill | CoordinatorsStandStill
    | LeadersStandStill
)  # fmt: skip

# Rows of each slot of each micro-batch.
Shape = tuple[tuple[int, ...], ...]
TWO_BY_TWO: Shape = ((2, 2), (2, 2))
ALWAYS, FIRST_SLOT, NEVER = "every run gives the same rows", "slot 0 gives the same rows", "each run gives other rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`shapes`: of the runs in turn. `same_rows`: ALWAYS, FIRST_SLOT or NEVER. `metadata_max` and `last_epoch` are
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
    StateExpired, MarkersLost, FingerprintsLost, CommittedDataMissing, UnreadableState, StateWentBack,
}  # fmt: skip
FINAL: set[type[Exception]] = {NonDeterministicReplay, TornBatch, CheckpointBehind, WrittenOtherwise, *OF_LOST_STATE}


def may_fail(schedule: Schedule) -> set[type[Exception]]:
    """Errors after which a restart goes on."""
    kinds = schedule.kinds()
    allowed: set[type[Exception]] = set()
    if kinds & TAKING_AWAY:
        allowed |= {
            DriverFenced, AttemptFenced, AttemptReplaced, TransactionTimedOut, PreparedRowsGone, CommitOutcomeUnknown,
            TaskFailed,
        }  # fmt: skip
    if Fail in kinds:
        allowed |= {GaveUp}
    if RunStageAgain in kinds:
        allowed |= {AttemptReplaced}
    if kinds & {LoseGroups, *ROLLING_BACK}:
        # In mid-commit; a commit that another follows upon has lost its decision.
        allowed |= {CommitOutcomeUnknown, StateExpired}
    is_lost = any(isinstance(event, LoseMarker) and not event.committed for _, event in schedule.events)
    if is_lost or kinds & ROLLING_BACK:
        allowed |= {AbortedRowsOpen}
    if Switch in kinds:
        # A driver that another has overtaken; one that has other rows than the other.
        allowed |= {LogTaken, CheckpointBehind}
    return allowed


def may_stop(schedule: Schedule) -> set[type[Exception]]:
    """Errors that every restart ends with."""
    kinds = schedule.kinds()
    allowed: set[type[Exception]] = set()
    if schedule.same_rows != ALWAYS or len(schedule.shapes) > 1:
        allowed |= {NonDeterministicReplay}
        allowed |= {TornBatch} if kinds & TAKING_AWAY else set()
    if kinds & {Forget, LoseGroups, *ROLLING_BACK} and not schedule.allow_lost_state:
        allowed |= OF_LOST_STATE
    if kinds & {GoBack, *ROLLING_BACK} and not schedule.versions:
        allowed |= {CheckpointBehind}
    if kinds & ROLLING_BACK:
        allowed |= {WrittenOtherwise}
    if GiveUp in kinds:
        # Of the first version, before it was decided; of one that is torn.
        allowed |= {StateExpired, CommittedDataMissing} if kinds & TAKING_AWAY else {StateExpired}
    return allowed
