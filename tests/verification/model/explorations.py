"""`make explore`: runs the two-phase commit through families of schedules, and counts them.

    PYTHONPATH=tests/verification python -m model.explorations [--only words] [--worlds 1000] [--seeds 10000]
        [--first 0] [--results FILE]

Each family is a set of schedules, for both versions of the transaction protocol: all placements of its events at the
steps of a quiet run. `test_exactly_once.py` runs some of each, evenly spread. This program runs all, or `--worlds` of
each. The last family is endless: it mixes all events by seed, as `make simulate` does. A failing schedule is printed as
a Python value, which `model.worlds.run` accepts. Exit status 1 if any schedule fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from kafka_sink.commit.effects import ToLeaders
from kafka_sink.kafka.protocol.apis.write_txn_markers import (
    WriteTxnMarkersRequest,
)
from model.schedules import (
    ALL_EXPIRE_MS,
    ALWAYS,
    FIRST_SLOT,
    MARKERS_EXPIRE_MS,
    NEVER,
    TWO_BY_TWO,
    AbortByHand,
    CoordinatorsStandStill,
    Crash,
    Event,
    Fail,
    Forget,
    ForgetIds,
    GiveUp,
    GoBack,
    Late,
    LeadersStandStill,
    Lose,
    LoseGroups,
    LoseMarker,
    Mark,
    Resume,
    RollBack,
    RollBackToMark,
    RunStageAgain,
    Schedule,
    Shape,
    StandStill,
    Switch,
    TimeOut,
    Twice,
)
from model.spark_driver import Step
from model.worlds import run, steps_of_a_quiet_run
from reliability.campaign import Campaign

# A quiet schedule, and what is to happen in it: together they are a schedule.
Told = tuple[Schedule, tuple[tuple[int, Event], ...]]
Family = Callable[[int], Iterator[Told]]
VERSIONS = (1, 2)
# Of everything together, in a full run.
SEEDS = 10_000
IDS = ("sink.driver", "sink.0", "sink.1")
# After a decision's head, two pins like "1003:1" have room, or one.
TWO_PINS, ONE_PIN = 48, 40
SHAPES: tuple[Shape, ...] = (
    ((0, 2), (2, 0)),
    ((0, 0), (0, 0)),
    ((2,), (1, 1, 1), (2,)),
    ((1, 1, 1), (2,), (0, 1)),
)


def _steps(schedule: Schedule) -> range:
    return range(steps_of_a_quiet_run(schedule))


def _crash_twice(schedule: Schedule) -> Iterator[Told]:
    """Crash twice: the second time in the run that follows."""
    steps = _steps(schedule)
    for first, later in product(steps, steps):
        yield schedule, ((first, Crash()), (first + 1 + later, Crash()))


# --- the families -----------------------------------------------------------------------------------------------------


def crashes(version: int) -> Iterator[Told]:
    """The driver dies before any two effects; tasks run one after the other, or take turns."""
    for cores in (1, 2):
        yield from _crash_twice(Schedule(version=version, cores=cores))


def requests_twice(version: int) -> Iterator[Told]:
    """Any request is carried out twice, and the driver dies before any effect."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for twice, crash in product(range(2 * len(steps)), steps):
        yield quiet, ((twice, Twice()), (crash, Crash()))


def late_duplicates(version: int) -> Iterator[Told]:
    """Any request arrives once more at any later time."""
    quiet = Schedule(version=version)
    for sent, arrives in product(_steps(quiet), repeat=2):
        if sent < arrives:
            yield quiet, ((arrives, Late(sent)),)


def late_duplicates_after_a_crash(version: int) -> Iterator[Told]:
    """Any request arrives once more, in the run after the one that sent it."""
    quiet = Schedule(version=version)
    for crash, later in product(_steps(quiet), repeat=2):
        for sent in range(max(0, crash - 12), crash):
            yield quiet, ((crash, Crash()), (crash + 1 + later, Late(sent)))


def timeouts(version: int) -> Iterator[Told]:
    """All open transactions, or one, time out at any time; the driver dies before any effect."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for crash, expired, which in product(steps, range(2 * len(steps)), (None, *IDS)):
        yield quiet, ((crash, Crash()), (expired, TimeOut(which)))


def other_rows(version: int) -> Iterator[Told]:
    """Runs give other rows, or other slots, and the driver dies before any two effects."""
    for same_rows in (FIRST_SLOT, NEVER):
        yield from _crash_twice(Schedule(version=version, same_rows=same_rows))
    for shapes in product((((2, 2), (2, 2)), ((2,), (2,)), ((2, 2, 2), (2, 2, 2))), repeat=2):
        if shapes[0] != shapes[1]:
            yield from _crash_twice(Schedule(version=version, shapes=shapes))


def other_rows_and_timeouts(version: int) -> Iterator[Told]:
    """As `other_rows`, and transactions time out."""
    for same_rows, shapes in product((FIRST_SLOT, NEVER), (((2, 2), (2, 2)), ((2, 2, 2), (2, 2)))):
        quiet = Schedule(version=version, same_rows=same_rows, shapes=(shapes, ((2, 2), (2, 2))))
        steps = _steps(quiet)
        for expired, crash, which in product(steps, range(2 * len(steps)), (None, *IDS[1:])):
            yield quiet, ((expired, TimeOut(which)), (crash, Crash()))


def two_drivers(version: int) -> Iterator[Told]:
    """A second driver begins on the checkpoint at any step, and the first goes on at any later one, or never."""
    for quiet in (
        Schedule(version=version),
        Schedule(version=version, same_rows=NEVER),
        Schedule(version=version, metadata_max=ONE_PIN),
        # The one may be two micro-batches ahead.
        Schedule(version=version, shapes=(((1,), (1,), (1,)),)),
        Schedule(version=version, cores=2),
        # The other has a slot more, and the slots of both are equal.
        Schedule(version=version, shapes=(((0,), (0,)), ((0, 2), (0, 2)))),
    ):
        steps = _steps(quiet)
        for first, later in product(steps, range(1, len(steps) + 20)):
            yield quiet, ((first, Switch()), (first + later, Switch()))


def two_drivers_three_switches(version: int) -> Iterator[Told]:
    """As `two_drivers`, and the second driver goes on once more while the first is paused."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for first, second, third in product(steps, range(1, len(steps) + 20), range(1, len(steps))):
        yield quiet, ((first, Switch()), (first + second, Switch()), (first + second + third, Switch()))


def zombies(version: int) -> Iterator[Told]:
    """An attempt pauses before any of its effects, another begins, and the old one goes on at any later time."""
    for same_rows, cores in ((ALWAYS, 1), (NEVER, 1), (NEVER, 2)):
        quiet = Schedule(version=version, same_rows=same_rows, cores=cores)
        steps = _steps(quiet)
        for lost, later, effects in product(steps, range(1, len(steps) + 10), (None, 1, 2)):
            yield quiet, ((lost, Lose()), (lost + later, Resume(effects)))


def zombies_and_crashes(version: int) -> Iterator[Told]:
    """As `zombies`, and the driver dies in between: the old attempt goes on in the next run."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for lost, crash, later in product(steps, range(1, 30), range(1, len(steps))):
        yield quiet, ((lost, Lose()), (lost + crash, Crash()), (lost + crash + later, Resume()))


def attempts_again(version: int) -> Iterator[Told]:
    """An attempt is lost, or fails, before any effect; the driver dies before any effect."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    lost_or_failed: tuple[Event, ...] = (Lose(), Fail(True))
    for lost, crash, event in product(steps, range(2 * len(steps)), lost_or_failed):
        yield quiet, ((lost, event), (crash, Crash()))


def stages_again(version: int) -> Iterator[Told]:
    """Spark runs the stage of a task again, and keeps the result of the attempt that goes on; the driver dies before
    any effect."""
    for same_rows, cores in ((ALWAYS, 1), (NEVER, 1), (ALWAYS, 2)):
        quiet = Schedule(version=version, same_rows=same_rows, cores=cores)
        steps = _steps(quiet)
        for again, crash in product(steps, range(1, 2 * len(steps))):
            yield quiet, ((again, RunStageAgain()), (again + crash, Crash()))


def unanswered(version: int) -> Iterator[Told]:
    """A request gets no answer in time. It is carried out, or not, or arrives at any later time. So abort may run
    after a commit that has decided but does not know this."""
    for same_rows in (ALWAYS, NEVER):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for failed, later in product(steps, range(1, len(steps))):
            yield quiet, ((failed, Fail(True)), (failed + later, Crash()))
            yield quiet, ((failed, Fail(False)), (failed + later, Late(failed)))
            yield quiet, ((failed, Fail(False)), (failed + later, Crash()))


def shapes(version: int) -> Iterator[Told]:
    """Empty slots, empty micro-batches, more slots and fewer; the driver dies before any two effects."""
    for shape in SHAPES:
        yield from _crash_twice(Schedule(version=version, shapes=(shape,)))


def many_groups(version: int) -> Iterator[Told]:
    """Decisions that take several groups; the driver dies before any two effects."""
    wide, narrow = (1, 1, 1, 1, 1), (1, 1)
    for shape in ((wide, narrow), (narrow, wide), (wide, wide)):
        yield from _crash_twice(Schedule(version=version, shapes=(shape,), metadata_max=TWO_PINS))


def spent_epochs(version: int) -> Iterator[Told]:
    """Producer ids are spent after few epochs, and replaced; the driver dies before any two effects."""
    for last_epoch in (0, 1, 2):
        yield from _crash_twice(Schedule(version=version, last_epoch=last_epoch))


def by_hand(version: int) -> Iterator[Told]:
    """An operator aborts a slot's transaction at any time; the driver dies before any effect."""
    for same_rows in (ALWAYS, NEVER):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for aborted, crash, slot in product(steps, range(2 * len(steps)), (0, 1)):
            yield quiet, ((aborted, AbortByHand(slot)), (crash, Crash()))


def lost_markers(version: int) -> Iterator[Told]:
    """A leader misses the commit marker of a slot (KAFKA-20734); the driver dies before any effect."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for lost, crash, slot in product(steps, range(2 * len(steps)), (0, 1)):
        yield quiet, ((lost, LoseMarker(slot)), (crash, Crash()))


def zombies_and_lost_markers(version: int) -> Iterator[Told]:
    """An attempt pauses before any of its effects. Another begins and is committed, but a leader misses the marker.
    The old attempt goes on at any later time, also while the driver waits for the marker."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for lost, later, slot, effects in product(steps, range(1, len(steps) + 30), (0, 1), (None, 2)):
        yield quiet, ((lost, LoseMarker(slot)), (lost, Lose()), (lost + later, Resume(effects)))


def lost_aborts(version: int) -> Iterator[Told]:
    """A leader misses the abort marker of a slot, and the next attempt's rows join the transaction open there. The
    abort comes from the run after a driver's death, from the next attempt after a failed one, or from a timeout.
    Then the driver dies before any effect."""
    aborting: tuple[Event, ...] = (Crash(), Fail(True), TimeOut())
    for same_rows, event in product((ALWAYS, NEVER), aborting):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for lost, later, slot in product(steps, steps, (0, 1)):
            marker = (lost, LoseMarker(slot, committed=False))
            yield quiet, (marker, (lost, event), (lost + 1 + later, Crash()))


def lost_aborts_and_commits(version: int) -> Iterator[Told]:
    """As `lost_aborts`, but the driver dies two more times, and the slot's next commit marker is lost too."""
    quiet = Schedule(version=version, shapes=(((1,), (1,)),))
    steps = _steps(quiet)
    for lost, second, third in product(steps, repeat=3):
        marks = (lost, LoseMarker(0, committed=False)), (lost, LoseMarker(0))
        crashes_at = lost, lost + 1 + second, lost + 2 + second + third
        yield quiet, (*marks, *((step, Crash()) for step in crashes_at))


def aborted_and_written_again(version: int) -> Iterator[Told]:
    """An operator aborts a slot while its driver is paused, and a leader misses the marker. Another driver writes the
    slot again, with a new producer id if epochs are used up. Then the first driver goes on."""
    for last_epoch in (0, 1):
        quiet = Schedule(version=version, last_epoch=last_epoch, shapes=(((1, 1),),))
        steps = _steps(quiet)
        for aborted, later, slot in product(steps, range(1, len(steps) + 20), (0, 1)):
            marker = (aborted, LoseMarker(slot, committed=False))
            by_hand = (aborted, AbortByHand(slot)), (aborted, Switch())
            yield quiet, (marker, *by_hand, (aborted + later, Switch()))


def stale_reads(version: int) -> Iterator[Told]:
    """The driver dies before any effect, and at any later time stale group coordinators answer some reads of
    offsets."""
    for shape in (TWO_BY_TWO, ((1,), (1,), (1,))):
        quiet = Schedule(version=version, shapes=(shape,))
        steps = _steps(quiet)
        for crash, later, changes, reads in product(steps, range(len(steps)), (1, 2, 4), (1, 2, 3, 5)):
            yield quiet, ((crash, Crash()), (crash + 1 + later, StandStill(changes, reads)))


def stale_reads_and_attempts(version: int) -> Iterator[Told]:
    """A task's attempt is lost, another begins, and reads are stale; the driver dies in the next run."""
    quiet = Schedule(version=version, cores=2)
    steps = _steps(quiet)
    for lost, stale, crash, changes in product(steps, range(12), range(0, len(steps), 2), (1, 3)):
        still = (lost + stale, StandStill(changes, 2))
        yield quiet, ((lost, Lose()), still, (lost + stale + crash, Crash()), (lost + stale + crash + 1, still[1]))


def stale_reads_of_batches(version: int) -> Iterator[Told]:
    """As `stale_reads`, for batch writes with versions: timeouts of transactions can make them partly visible."""
    quiet = Schedule(version=version, shapes=(BATCHES[:3],), versions=(0, 7, 3))
    steps = _steps(quiet)
    for crash, later, changes, reads in product(steps, range(len(steps)), (1, 3), (1, 3)):
        yield quiet, ((crash, Crash()), (crash + 1 + later, StandStill(changes, reads)))
        yield quiet, ((crash, TimeOut()), (crash, Crash()), (crash + 1 + later, StandStill(changes, reads)))


def stale_reads_of_parts(version: int) -> Iterator[Told]:
    """As `stale_reads`, for decisions in several groups. Reads of these groups may have different ages."""
    quiet = Schedule(version=version, metadata_max=ONE_PIN, shapes=(((1, 1), (1, 1)),))
    steps = _steps(quiet)
    for crash, later, changes, reads in product(steps, range(len(steps)), (1, 3), (1, 2, 4)):
        yield quiet, ((crash, Crash()), (crash + 1 + later, StandStill(changes, reads)))


def stale_coordinators(version: int) -> Iterator[Told]:
    """The driver dies before any effect. At any later time stale transaction coordinators describe old states, and
    refuse an EndTxn because of them."""
    for same_rows in (ALWAYS, NEVER):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for crash, later, changes, requests in product(steps, range(len(steps)), (1, 2, 3, 5), (1, 2, 3, 5)):
            yield quiet, ((crash, Crash()), (crash + 1 + later, CoordinatorsStandStill(changes, requests)))


def stale_leaders(version: int) -> Iterator[Told]:
    """The driver dies before any effect. At any later time stale leaders, which were replaced, report old states of
    producers."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for crash, later, changes, requests in product(steps, range(len(steps)), (1, 2, 3, 5), (1, 2, 4)):
        yield quiet, ((crash, Crash()), (crash + 1 + later, LeadersStandStill(changes, requests)))


def lost_state(version: int) -> Iterator[Told]:
    """The driver dies before any two effects; after the first, groups are gone, or the checkpoint is an older one."""
    events: tuple[Event, ...] = (
        Forget("the decision"),
        Forget("everything"),
        Forget("everything", ALL_EXPIRE_MS),
        Forget("the markers", MARKERS_EXPIRE_MS),
        Forget("the markers", ALL_EXPIRE_MS),
        GoBack(1),
        GoBack(2),
    )
    shape = ((2, 2),) * 3
    for event, same_rows in product(events, (ALWAYS, NEVER)):
        quiet = Schedule(version=version, shapes=(shape,), same_rows=same_rows)
        steps = _steps(quiet)
        for crash, later in product(steps, range(0, len(steps), 3)):
            yield quiet, ((crash, event), (crash, ForgetIds()), (crash + 1 + later, Crash()))


GROUPS_OF_SLOTS = (("sink.0",), ("sink.1",), ("sink.0", "sink.1"))
GROUPS = (*GROUPS_OF_SLOTS, ("sink.decision",), ("sink.decision", "sink.1"), ("sink.decision", "sink.0", "sink.1"))


def lost_groups(version: int) -> Iterator[Told]:
    """The driver dies before any effect, somebody deletes groups of slots, the decision's, or all, at that moment or
    any later, and the driver dies once more."""
    for same_rows, only_offsets in product((ALWAYS, NEVER), (False, True)):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for crash, later, groups in product(steps, range(0, len(steps), 3), GROUPS):
            lost = LoseGroups(groups, only_offsets)
            yield quiet, ((crash, lost), (crash, Crash()), (crash + 1 + later, Crash()))
            yield quiet, ((crash, Crash()), (crash + 1 + later, lost), (crash + 6 + later, Crash()))


def lost_groups_and_timeouts(version: int) -> Iterator[Told]:
    """Transactions time out, groups of slots are deleted before or after, and the driver dies before two effects."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for expired, later, which, groups in product(steps, range(0, len(steps), 3), (None, *IDS[1:]), GROUPS_OF_SLOTS):
        lost = LoseGroups(groups)
        time_out, second = ((expired, TimeOut(which)), (expired, Crash())), expired + 1 + later
        yield quiet, (*time_out, (second, lost), (second, Crash()))
        yield quiet, ((expired, lost), *time_out, (second, Crash()))


def lost_groups_and_attempts(version: int) -> Iterator[Told]:
    """An attempt pauses before any of its effects, groups are deleted, and another attempt begins. The old attempt
    goes on at any later time, and the driver dies."""
    quiet = Schedule(version=version, cores=2)
    steps = _steps(quiet)
    for lost, later, groups, crash in product(steps, range(1, len(steps), 2), GROUPS, (0, 9)):
        events = ((lost, Lose()), (lost + later // 2, LoseGroups(groups)), (lost + later, Resume()))
        yield quiet, (*events, (lost + later + crash, Crash()))


def lost_groups_and_two_drivers(version: int) -> Iterator[Told]:
    """A second driver begins on the checkpoint at any step, groups are deleted, and the first goes on."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for first, later, groups in product(steps, range(1, len(steps), 2), GROUPS):
        for lost in (first, first + later // 2, first + later):
            yield quiet, ((first, Switch()), (lost, LoseGroups(groups)), (first + later, Switch()))


def lost_groups_of_parts(version: int) -> Iterator[Told]:
    """Groups are deleted of decisions that are spread over several; the driver dies before any two effects."""
    parts = ("sink.decision", "sink.decision-1", "sink.decision-2")
    quiet = Schedule(version=version, metadata_max=ONE_PIN)
    steps = _steps(quiet)
    for crash, later, part in product(steps, range(0, len(steps), 2), parts):
        for groups in ((part,), (part, "sink.1")):
            yield quiet, ((crash, Crash()), (crash + 1 + later, LoseGroups(groups)), (crash + 1 + later, Crash()))


def lost_groups_and_stale_answers(version: int) -> Iterator[Told]:
    """And stale coordinators answer with old data."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    stale: tuple[Event, ...] = (
        StandStill(1, 2), StandStill(3, 4), CoordinatorsStandStill(1, 2), CoordinatorsStandStill(3, 4)
    )  # fmt: skip
    for crash, later, groups, event in product(steps, range(0, len(steps), 4), GROUPS, stale):
        yield quiet, ((crash, Crash()), (crash, LoseGroups(groups)), (crash + 1 + later, event))


def lost_groups_of_versions(version: int) -> Iterator[Told]:
    """Groups are deleted of batch writes with versions, which come again; transactions time out and the driver dies."""
    quiet = Schedule(version=version, shapes=(BATCHES[:3],), versions=(0, 7, 7, 3))
    steps = _steps(quiet)
    for crash, later, groups in product(steps, range(0, len(steps), 3), GROUPS):
        lost = LoseGroups(groups)
        yield quiet, ((crash, Crash()), (crash + 1 + later, lost), (crash + 1 + later, Crash()))
        yield quiet, ((crash, TimeOut()), (crash, Crash()), (crash + later, lost), (crash + 1 + later, Crash()))


def expired_groups(version: int) -> Iterator[Told]:
    """No driver lives for a week: groups of slots have expired, with or without the transactional ids; then the driver
    dies before any effect."""
    for forgotten, same_rows in product((True, False), (ALWAYS, NEVER)):
        quiet = Schedule(version=version, same_rows=same_rows)
        steps = _steps(quiet)
        for crash, later in product(steps, range(0, len(steps), 2)):
            ids = ((crash, ForgetIds()),) if forgotten else ()
            expired = Forget("the markers", MARKERS_EXPIRE_MS)
            yield quiet, ((crash, expired), *ids, (crash + 1 + later, Crash()))


def offsets_rolled_back(version: int) -> Iterator[Told]:
    """The driver dies before any effect, and the brokers lose the last changes of offsets, of all groups or of some;
    then the driver dies before any effect."""
    for last_epoch in (32_766, 2):
        quiet = Schedule(version=version, shapes=(((2, 2), (1, 1, 1), (2, 2)),), last_epoch=last_epoch)
        steps = _steps(quiet)
        for crash, changes, groups, later in product(steps, (1, 2, 3, 5, 8), (None, *GROUPS), (1, 9, 40)):
            lost = (crash, RollBack(offsets=changes, groups=groups))
            yield quiet, (lost, (crash, Crash()), (crash + later, Crash()))


def offsets_rolled_back_under_a_driver(version: int) -> Iterator[Told]:
    """The brokers lose the last changes of offsets while the driver lives; then it dies before any effect."""
    quiet = Schedule(version=version)
    steps = _steps(quiet)
    for lost, changes, groups in product(steps, (1, 2, 4), (None, *GROUPS)):
        yield quiet, ((lost, RollBack(offsets=changes, groups=groups)),)
        yield quiet, ((lost, RollBack(offsets=changes, groups=groups)), (lost + 4, Crash()))


def transactions_rolled_back(version: int) -> Iterator[Told]:
    """The same of transactions: coordinators give ids out again that leaders know."""
    quiet = Schedule(version=version, shapes=(((2, 2), (1, 1, 1), (2, 2)),))
    steps = _steps(quiet)
    for crash, changes, later in product(steps, (1, 2, 3, 5, 8, 13), (1, 9, 40)):
        lost = (crash, RollBack(transactions=changes))
        yield quiet, (lost, (crash, Crash()), (crash + later, Crash()))
        yield quiet, (lost, (crash + later, Crash()))


def all_rolled_back(version: int) -> Iterator[Told]:
    """The brokers lose all offsets and transactions since the end of the first micro-batch, or of the second; the
    driver dies at that moment, and before any later effect."""
    shape = ((2, 2), (1, 1, 1), (2, 2))
    quiet = Schedule(version=version, shapes=(shape,))
    for first in (1, 2):
        marked = len(_steps(replace(quiet, shapes=(shape[:first],))))
        steps = _steps(quiet)[marked + 1 :]
        for crash, later in product(steps, range(1, 60, 3)):
            back = ((marked, Mark()), (crash, RollBackToMark()))
            yield quiet, (*back, (crash, Crash()), (crash + later, Crash()))


# Written in this order by a user who leaves numbers out, writes one again, and comes back to one.
VERSIONS_OF_A_BATCH = (0, 7, 7, 3, 9)
BATCHES: Shape = ((2, 2), (1, 1), (2, 2), (2, 0))


def batch_versions(version: int) -> Iterator[Told]:
    """Batch writes with versions that leave numbers out, come again and come too late; the driver dies before any two
    effects."""
    yield from _crash_twice(Schedule(version=version, shapes=(BATCHES,), versions=VERSIONS_OF_A_BATCH))


def batch_versions_and_timeouts(version: int) -> Iterator[Told]:
    """All open transactions, or one, time out at any time; the driver dies before any effect."""
    quiet = Schedule(version=version, shapes=(BATCHES[:3],), versions=(0, 7, 3))
    steps = _steps(quiet)
    for crash, expired, which in product(steps, range(2 * len(steps)), (None, *IDS)):
        yield quiet, ((crash, Crash()), (expired, TimeOut(which)))


def batch_versions_given_up(version: int) -> Iterator[Told]:
    """The driver dies before any effect, transactions time out at any time, and the user goes on with the next version:
    past one that is visible in part, but for an error."""
    quiet = Schedule(version=version, shapes=(BATCHES[:3],), versions=(0, 7, 8))
    steps = _steps(quiet)
    for crash, which in product(steps, (None, *IDS)):
        yield quiet, ((crash, GiveUp()),)
        for expired in steps:
            yield quiet, ((crash, TimeOut(which)), (crash, GiveUp()), (expired, TimeOut(which)), (expired, Crash()))
            yield quiet, ((expired, TimeOut(which)), (crash, GiveUp()))


def batch_versions_with_other_rows(version: int) -> Iterator[Told]:
    """Runs give other rows, other slots, or the same rows and a slot without any; the driver dies before any effect,
    and transactions time out."""
    two, more = ((2, 2), (2, 2)), ((2, 2, 0), (2, 2, 0))
    for same_rows, shapes in product((ALWAYS, FIRST_SLOT, NEVER), ((two,), (two, more), (two, ((2,), (2,))))):
        quiet = Schedule(version=version, same_rows=same_rows, shapes=shapes, versions=(0, 7))
        steps = _steps(quiet)
        for first, later, which in product(steps, range(len(steps)), (None, IDS[1])):
            yield quiet, ((first, Crash()), (first + 1 + later, Crash()))
            yield quiet, ((first, TimeOut(which)), (first, Crash()), (first + 1 + later, Crash()))


def batch_versions_two_drivers(version: int) -> Iterator[Told]:
    """Two writes under one name at once: the second begins at any step, the first goes on at any later one, or
    never."""
    for same_rows in (ALWAYS, NEVER):
        quiet = Schedule(version=version, same_rows=same_rows, shapes=(BATCHES[:3],), versions=(0, 7, 3))
        steps = _steps(quiet)
        for first, later in product(steps, range(1, len(steps) + 20)):
            yield quiet, ((first, Switch()), (first + later, Switch()))


def batch_versions_and_lost_markers(version: int) -> Iterator[Told]:
    """The commit of a slot, or its abort, does not come to a leader (KAFKA-20734); the driver dies before any effect,
    and the user runs the same version again, or goes on with the next."""
    quiet = Schedule(version=version, shapes=(BATCHES[:3],), versions=(0, 7, 3))
    steps = _steps(quiet)
    for lost, crash, slot in product(steps, steps, (0, 1)):
        yield quiet, ((lost, LoseMarker(slot)), (crash, Crash()))
    quiet = replace(quiet, versions=(0, 7, 8))
    steps = _steps(quiet)
    for lost, crash, slot, committed in product(steps, steps, (0, 1), (True, False)):
        yield quiet, ((lost, LoseMarker(slot, committed)), (crash, GiveUp()))


def batch_versions_and_lost_state(version: int) -> Iterator[Told]:
    """The driver dies before any two effects; after the first, groups are gone, or the user begins again at an earlier
    version."""
    events: tuple[Event, ...] = (
        Forget("the decision"),
        Forget("everything", ALL_EXPIRE_MS),
        Forget("the markers", MARKERS_EXPIRE_MS),
        GoBack(1),
        GoBack(2),
    )
    for event in events:
        quiet = Schedule(version=version, shapes=(BATCHES,), versions=VERSIONS_OF_A_BATCH)
        steps = _steps(quiet)
        for crash, later in product(steps, range(0, len(steps), 3)):
            yield quiet, ((crash, event), (crash, ForgetIds()), (crash + 1 + later, Crash()))


FAMILIES: tuple[Family, ...] = (
    crashes, requests_twice, late_duplicates, late_duplicates_after_a_crash, timeouts, other_rows,
    other_rows_and_timeouts, two_drivers, two_drivers_three_switches, zombies, zombies_and_crashes, attempts_again,
    stages_again, unanswered, shapes, many_groups, spent_epochs, by_hand, lost_markers, zombies_and_lost_markers,
    lost_aborts,
    lost_aborts_and_commits, aborted_and_written_again, stale_reads, stale_reads_and_attempts, stale_reads_of_batches,
    stale_reads_of_parts,
    stale_coordinators, stale_leaders, lost_state, lost_groups, lost_groups_and_timeouts, lost_groups_and_attempts,
    lost_groups_and_two_drivers, lost_groups_of_parts, lost_groups_and_stale_answers, lost_groups_of_versions,
    expired_groups, offsets_rolled_back, offsets_rolled_back_under_a_driver, transactions_rolled_back,
    all_rolled_back, batch_versions, batch_versions_and_timeouts, batch_versions_given_up,
    batch_versions_with_other_rows, batch_versions_two_drivers, batch_versions_and_lost_markers,
    batch_versions_and_lost_state,
)  # fmt: skip


# --- of everything ----------------------------------------------------------------------------------------------------


def of_seed(seed: int) -> Schedule:
    """Up to seven events of all kinds, at steps that are often close together, of three micro-batches."""
    chance = random.Random(seed)
    shape = tuple(tuple(chance.choices((0, 1, 2), k=chance.randint(1, 4))) for _ in range(3))
    shapes: tuple[Shape, ...] = (shape,)
    if chance.random() < 0.2:
        shapes = (shape, tuple(tuple(chance.choices((0, 1, 2), k=chance.randint(1, 4))) for _ in range(3)))
    events: list[tuple[int, Event]] = []
    step = 0
    for _ in range(chance.randint(1, 7)):
        step += chance.choice((0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55))
        events.append((step, _any_event(chance, step)))
    schedule = Schedule(
        version=chance.choice(VERSIONS),
        events=tuple(events),
        shapes=shapes,
        same_rows=chance.choice((ALWAYS, ALWAYS, FIRST_SLOT, NEVER)),
        metadata_max=chance.choice((4096, TWO_PINS)),
        last_epoch=chance.choice((32_766, 32_766, 0, 3)),
        cores=chance.choice((1, 1, 2, 4)),
    )
    if chance.random() >= 0.7:
        schedule = _of_batches(schedule, chance, step)
    if chance.random() >= 0.97:
        schedule = _while_rows_hang(schedule, chance)
    if chance.random() < 0.3:
        still = chance.randint(0, step + 40), _still(chance, schedule)
        schedule = replace(schedule, events=(*schedule.events, still))
    if LoseMarker not in schedule.kinds() and chance.random() < 0.15:
        # What a leader hides of a decision that is lost, nobody knows of (docs/design/exactly-once.md).
        groups = chance.choice((*GROUPS, ("sink.decision-1",), ("sink.2",)))
        lost = chance.randint(0, step + 40), LoseGroups(groups, chance.random() < 0.5)
        schedule = replace(schedule, events=(*schedule.events, lost))
    return schedule


def _still(chance: random.Random, schedule: Schedule) -> Event:
    kinds: list[type[StandStill | CoordinatorsStandStill | LeadersStandStill]] = [StandStill, CoordinatorsStandStill]
    if not schedule.kinds() & {LoseMarker, AbortByHand}:
        # No promise: a stale leader while another leader missed an end, or an operator aborted on it
        # (docs/reliability.md, Open).
        kinds.append(LeadersStandStill)
    return chance.choice(kinds)(chance.randint(1, 6), chance.randint(1, 6))


def _of_batches(schedule: Schedule, chance: random.Random, step: int) -> Schedule:
    """Make a schedule of batch writes, in an order that their user chooses. The user may give a version up if its
    visible rows are known."""
    versions = chance.choice(((0, 7, 9), (0, 7, 7, 3), (0, 7, 3, 9, 9)))
    shapes = tuple((*shape, shape[0]) for shape in schedule.shapes)
    # A user who goes back in the middle of a version has given it up too.
    is_known = _is_known(schedule) and GoBack not in schedule.kinds()
    given_up = ((chance.randint(0, step + 30), GiveUp()),) if is_known and chance.random() < 0.5 else ()
    return replace(schedule, versions=versions, shapes=shapes, events=(*schedule.events, *given_up))


def _is_known(schedule: Schedule) -> bool:
    """Return True if the rows that may be visible of a given-up version are known."""
    return schedule.same_rows == ALWAYS and len(schedule.shapes) == 1


def _while_rows_hang(schedule: Schedule, chance: random.Random) -> Schedule:
    """A leader misses the first commit marker, and an event happens just before the marker that ends the transaction
    there. Random steps seldom hit this moment."""
    slots = [slot for slot, rows in enumerate(schedule.shapes[0][0]) if rows]
    if not slots:
        return schedule
    lost = (0, LoseMarker(chance.choice(slots)))
    steps = _Markers.steps_of(replace(schedule, events=(lost,)))
    if not steps:
        return schedule
    step = chance.choice(steps)
    may_give_up = bool(schedule.versions) and _is_known(schedule)
    event = GiveUp() if may_give_up and chance.random() < 0.3 else _any_event(chance, step)
    lost_schedule = replace(schedule, events=(lost,))
    event = _still(chance, lost_schedule) if chance.random() < 0.2 else event
    return replace(lost_schedule, events=(lost, (step, event)))


@dataclass(slots=True)
class _Markers:
    """A Watcher that notes before which steps a marker is about to be written."""

    steps: list[int] = field(default_factory=list)

    @classmethod
    def steps_of(cls, schedule: Schedule) -> list[int]:
        markers = cls()
        run(schedule, markers)
        return markers.steps

    def happens(self, step: int, event: Event, effect: Step) -> None:
        pass

    def carried_out(self, step: int, effect: Step, answer: object) -> None:
        if isinstance(effect, ToLeaders) and isinstance(effect.request, WriteTxnMarkersRequest):
            self.steps.append(step - 1)


def _any_event(chance: random.Random, step: int) -> Event:
    choices: list[Event] = [
        Crash(), Crash(), Twice(), Fail(True), Fail(False), TimeOut(), TimeOut(chance.choice(IDS)), Lose(), Lose(),
        Resume(), Resume(chance.randint(1, 4)), Switch(), Switch(), AbortByHand(chance.randint(0, 3)),
        LoseMarker(chance.randint(0, 3)), LoseMarker(chance.randint(0, 3), committed=False),
        Forget("the markers", MARKERS_EXPIRE_MS), GoBack(chance.randint(1, 2)),
    ]  # fmt: skip
    if step:
        choices += [Late(chance.randrange(step)), Late(max(0, step - chance.randint(1, 8)))]
    return chance.choice(choices)


# --- taking some, or all ----------------------------------------------------------------------------------------------


def some(family: Family, version: int, worlds: int) -> Iterator[Schedule]:
    """Return this number of the family's schedules, evenly spread, or all if there are fewer."""
    every = sum(1 for _ in family(version)) / worlds
    taken = 0
    for number, (quiet, events) in enumerate(family(version)):
        if number >= taken * every:
            taken += 1
            yield replace(quiet, events=events)


def all_of(family: Family, version: int) -> Iterator[Schedule]:
    return (replace(quiet, events=events) for quiet, events in family(version))


@dataclass(frozen=True, slots=True)
class Explored:
    """One family and version: how many schedules it had, with how many steps, how they ended, and those that failed."""

    name: str
    schedules: int
    steps: int
    ends: Counter[str]
    failures: list[str]
    took_s: float

    def __str__(self) -> str:
        told = ", ".join(f"{end} {times}" for end, times in self.ends.most_common())
        return (
            f"{self.name}: {self.schedules} schedules, {self.steps} steps, {self.took_s:.0f} s; {told}; "
            f"{len(self.failures)} FAILED"
        )


def explored(name: str, schedules: Iterable[Schedule]) -> Explored:
    started_s = time.monotonic()
    seen, steps = 0, 0
    ends: Counter[str] = Counter()
    failures: list[str] = []
    for schedule in schedules:
        seen += 1
        try:
            world = run(schedule)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}\n    {schedule}")
            continue
        steps += world.step
        ends["whole" if world.stopped_by is None else world.stopped_by.__name__] += 1
        ends.update({f"({error.__name__})" for error in world.errors})
    return Explored(name, seen, steps, ends, failures, time.monotonic() - started_s)


def campaign(families: Sequence[Explored], command: str) -> Campaign:
    failed = sum(len(each.failures) for each in families)
    of_family: Counter[str] = Counter()
    for each in families:
        of_family[each.name.partition(",")[0]] += each.schedules
    return Campaign(
        name="explorations",
        title="Exploration of the two-phase commit",
        command=command,
        about=(
            "The shipped two-phase commit runs on a model of Kafka's transactions, with both versions of the "
            "transaction protocol. A family has all schedules of a few kinds of events over the steps of a quiet run. "
            "With `--worlds N`, N schedules of each family and version are run, evenly spread. The family "
            "`everything` is random, by seed. After each schedule, the rows that Spark logged are visible exactly "
            "once, and no others are."
        ),
        figures={
            "schedules": sum(each.schedules for each in families),
            "schedules that failed": failed,
            "steps": sum(each.steps for each in families),
            "minutes": round(sum(each.took_s for each in families) / 60, 1),
            **{name.replace("_", " "): schedules for name, schedules in of_family.items()},
        },
        passed=not failed,
    )


def main() -> int:
    arguments = _arguments()
    families: list[tuple[str, Iterator[Schedule]]] = [
        (f"{family.__name__}, version {version}",
         some(family, version, arguments.worlds) if arguments.worlds else all_of(family, version))
        for family, version in product(FAMILIES, VERSIONS)
        if arguments.only in family.__name__
    ]  # fmt: skip
    if arguments.only in "everything":
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        families.append((f"everything, seeds {seeds.start} to {seeds.stop - 1}", map(of_seed, seeds)))
    done: list[Explored] = []
    for name, schedules in families:
        done.append(explored(name, schedules))
        print("\n  ".join([str(done[-1]), *done[-1].failures[:3]]), flush=True)
    if arguments.results is not None:
        campaign(done, _command(arguments)).write(arguments.results)
    return 1 if any(each.failures for each in done) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="explorations", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="families with these words in their name")
    parser.add_argument("--worlds", type=int, default=0, help="of each family and version; 0: all of them")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of everything together")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args()


def _command(arguments: argparse.Namespace) -> str:
    """Return the command with the options that differ from a full run."""
    options = [f"--only {arguments.only}"] if arguments.only else []
    options += [f"--worlds {arguments.worlds}"] if arguments.worlds else []
    options += [f"--seeds {arguments.seeds}"] if arguments.seeds != SEEDS else []
    return f"make explore ARGS='{' '.join(options)}'" if options else "make explore"


if __name__ == "__main__":
    sys.exit(main())
