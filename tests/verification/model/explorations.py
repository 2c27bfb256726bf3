"""`make explore`: runs the two-phase commit through families of schedules, and counts them.

    PYTHONPATH=tests/verification python -m model.explorations [--only words] [--worlds 1000] [--seeds 10000]
        [--first 0] [--results FILE]

Each family is a set of schedules, for both versions of the transaction protocol: all placements of its events at the
steps of a quiet run. `test_exactly_once.py` runs some of each, evenly spread. This program runs all, or `--worlds` of
each. The last family is endless: it mixes all events by seed, as `make simulate` does. A failing schedule is printed as
a Python value, which `model.worlds.run` accepts. Exit status 1 if any schedule fails.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, permutations, product
from pathlib import Path
from typing import Any

from kafka_sink.commit.requests import ToLeaders
from kafka_sink.kafka.protocol.apis.transactions import WriteTxnMarkersRequest
from model import worlds as w
from model.spark_driver import Step
from model.worlds import ALWAYS, FIRST_SLOT, NEVER, TWO_BY_TWO, Event, Schedule, Shape, run, steps_of_a_quiet_run
from reliability.campaign import Campaign

# A quiet schedule, and what is to happen in it: together they are a schedule.
Events = tuple[tuple[int, Event], ...]
Told = tuple[Schedule, Events]
VERSIONS = (1, 2)
# Of everything together, in a full run.
SEEDS = 10_000
IDS = ("sink.driver", "sink.0", "sink.1")
# After a decision's head, two pins like "1003:1" have room, or one.
TWO_PINS, ONE_PIN = 48, 40
SHAPES = ((0, 2), (2, 0)), ((0, 0), (0, 0)), ((2,), (1, 1, 1), (2,)), ((1, 1, 1), (2,), (0, 1))
WIDE, NARROW = (1, 1, 1, 1, 1), (1, 1)
# A slot rests, goes on, and rests again; slot 0 never does.
RESTS: Shape = ((1, 1, 1), (1, 0, 0), (0, 1, 0))


# --- the families -----------------------------------------------------------------------------------------------------


GROUPS_OF_SLOTS = (("sink.0",), ("sink.1",), ("sink.0", "sink.1"))
GROUPS = (*GROUPS_OF_SLOTS, ("sink.decision",), ("sink.decision", "sink.1"), ("sink.decision", "sink.0", "sink.1"))
EVERY_ROW, SOME_ROWS = ({"same_rows": ALWAYS}, {"same_rows": NEVER}), ({"same_rows": FIRST_SLOT}, {"same_rows": NEVER})
THREE: Shape = ((2, 2), (1, 1, 1), (2, 2))
PARTS = {"metadata_max": ONE_PIN, "shapes": (((1, 1), (1, 1)),)}
# Batch writes in this order, by a user who leaves numbers out, writes one again, and comes back to one.
BATCHES: Shape = ((2, 2), (1, 1), (2, 2), (2, 0))
ALL_BATCHES = {"shapes": (BATCHES,), "versions": (0, 7, 7, 3, 9)}
THREE_BATCHES = {"shapes": (BATCHES[:3],), "versions": (0, 7, 3)}
GIVEN_UP = {"shapes": (BATCHES[:3],), "versions": (0, 7, 8)}


@dataclass(frozen=True, slots=True)
class Family:
    """`says`: what may happen. `settings`: fields of its quiet schedules. `places`: the events of each schedule, by how
    many steps the quiet one has. `share`: how much of it the gate takes, compared with others."""

    name: str
    says: str
    settings: tuple[Mapping[str, Any], ...]
    places: Callable[[int], Iterable[Events]]
    share: int

    def __call__(self, version: int) -> Iterator[Told]:
        for fields in self.settings:
            quiet = Schedule(version=version, **fields)
            for events in self.places(steps_of_a_quiet_run(quiet)):
                yield quiet, events


FAMILIES: list[Family] = []


def family(
    says: str, *settings: Mapping[str, Any], share: int = 2, name: str = ""
) -> Callable[[Callable[[int], Iterable[Events]]], Family]:
    """`name`: another than that of the function, which several families share."""

    def made(places: Callable[[int], Iterable[Events]]) -> Family:
        FAMILIES.append(Family(name or places.__name__, says, settings or ({},), places, share))
        return FAMILIES[-1]

    return made


def crash_twice(steps: int) -> Iterator[Events]:
    """The second time in the run that follows."""
    for first, later in product(range(steps), repeat=2):
        yield (first, w.Crash()), (first + 1 + later, w.Crash())


def crash_and_time_out(steps: int) -> Iterator[Events]:
    for crash, expired, which in product(range(steps), range(2 * steps), (None, *IDS)):
        yield (crash, w.Crash()), (expired, w.TimeOut(which))


def stale(
    kind: Callable[[int, int], Event], changes: Sequence[int], requests: Sequence[int]
) -> Callable[[int], Iterator[Events]]:
    """In the run after the driver's death, such answers lack so many changes, for so many requests."""

    def places(steps: int) -> Iterator[Events]:
        for crash, later, age, times in product(range(steps), range(steps), changes, requests):
            yield (crash, w.Crash()), (crash + 1 + later, kind(age, times))

    return places


crashes = family(
    "a driver may die before any two effects", {"cores": 1}, {"cores": 2}, share=3, name="crashes"
)(crash_twice)  # fmt: skip


@family("any request may be carried out twice and the driver die")
def requests_twice(steps: int) -> Iterable[Events]:
    for twice, crash in product(range(2 * steps), range(steps)):
        yield (twice, w.Twice()), (crash, w.Crash())


@family("a duplicate of any request may arrive at any later time")
def late_duplicates(steps: int) -> Iterable[Events]:
    for sent, arrives in combinations(range(steps), 2):
        yield ((arrives, w.Late(sent)),)


@family("a duplicate of any request may arrive in the next run", share=1)
def late_duplicates_after_a_crash(steps: int) -> Iterable[Events]:
    for crash, later in product(range(steps), repeat=2):
        for sent in range(max(0, crash - 12), crash):
            yield (crash, w.Crash()), (crash + 1 + later, w.Late(sent))


timeouts = family("transactions may time out at any time", name="timeouts")(crash_and_time_out)


# Or other slots.
family(
    "a replay with other rows replaces what is not visible and stops at what is", *SOME_ROWS,
    *({"shapes": shapes} for shapes in permutations((((2, 2), (2, 2)), ((2,), (2,)), ((2, 2, 2), (2, 2, 2))), 2)),
    name="other_rows",
)(crash_twice)  # fmt: skip


@family(
    "a replay with other rows never fills in what timed out",
    *({**rows, "shapes": (shape, TWO_BY_TWO)} for rows in SOME_ROWS for shape in (TWO_BY_TWO, ((2, 2, 2), (2, 2)))),
)
def other_rows_and_timeouts(steps: int) -> Iterable[Events]:
    for expired, crash, which in product(range(steps), range(2 * steps), (None, *IDS[1:])):
        yield (expired, w.TimeOut(which)), (crash, w.Crash())


def two_switches(steps: int) -> Iterator[Events]:
    """A second driver begins on the checkpoint at any step, and the first goes on at any later one, or never."""
    for first, later in product(range(steps), range(1, steps + 20)):
        yield (first, w.Switch()), (first + later, w.Switch())


# The one may be two micro-batches ahead, or the other has a slot more and equal ones.
two_drivers = family(
    "of two drivers on a checkpoint one is fenced", {}, {"same_rows": NEVER}, {"metadata_max": ONE_PIN},
    {"shapes": (((1,), (1,), (1,)),)}, {"cores": 2}, {"shapes": (((0,), (0,)), ((0, 2), (0, 2)))}, name="two_drivers",
)(two_switches)  # fmt: skip


@family("two drivers may take turns", share=1)
def two_drivers_three_switches(steps: int) -> Iterable[Events]:
    for first, second, third in product(range(steps), range(1, steps + 20), range(1, steps)):
        yield (first, w.Switch()), (first + second, w.Switch()), (first + second + third, w.Switch())


@family(
    "an attempt that was given up may go on at any later time", {}, {"same_rows": NEVER},
    {"same_rows": NEVER, "cores": 2},
)  # fmt: skip
def zombies(steps: int) -> Iterable[Events]:
    for lost, later, effects in product(range(steps), range(1, steps + 10), (None, 1, 2)):
        yield (lost, w.Lose()), (lost + later, w.Resume(effects))


@family("an attempt that was given up may go on in the next run", share=1)
def zombies_and_crashes(steps: int) -> Iterable[Events]:
    for lost, crash, later in product(range(steps), range(1, 30), range(1, steps)):
        yield (lost, w.Lose()), (lost + crash, w.Crash()), (lost + crash + later, w.Resume())


@family("attempts may be lost or fail at any effect", share=1)
def attempts_again(steps: int) -> Iterable[Events]:
    lost_or_failed: tuple[Event, ...] = (w.Lose(), w.Fail(True))
    for lost, crash, event in product(range(steps), range(2 * steps), lost_or_failed):
        yield (lost, event), (crash, w.Crash())


@family("a stage may run again at any time", {}, {"same_rows": NEVER}, {"cores": 2})
def stages_again(steps: int) -> Iterable[Events]:
    """Spark keeps the result of the attempt that goes on."""
    for again, crash in product(range(steps), range(1, 2 * steps)):
        yield (again, w.RunStageAgain()), (again + crash, w.Crash())


@family("abort may follow upon a commit that does not know that it decided", *EVERY_ROW)
def unanswered(steps: int) -> Iterable[Events]:
    """A request gets no answer in time. It is carried out, or not, or arrives at any later time."""
    for failed, later in product(range(steps), range(1, steps)):
        yield (failed, w.Fail(True)), (failed + later, w.Crash())
        yield (failed, w.Fail(False)), (failed + later, w.Late(failed))
        yield (failed, w.Fail(False)), (failed + later, w.Crash())


family(
    "slots may be empty and their number change", *({"shapes": (shape,)} for shape in SHAPES), share=1, name="shapes"
)(crash_twice)  # fmt: skip
family(
    "a decision may take several groups",
    *({"shapes": (shape,), "metadata_max": TWO_PINS} for shape in product((WIDE, NARROW), repeat=2) if WIDE in shape),
    share=1, name="many_groups",
)(crash_twice)  # fmt: skip
family(
    "producer ids may be spent", *({"last_epoch": each} for each in (0, 1, 2)), share=1, name="spent_epochs"
)(crash_twice)  # fmt: skip


@family("an operator may abort what is prepared", *EVERY_ROW, share=1)
def manual_requests(steps: int) -> Iterable[Events]:
    for aborted, crash, slot in product(range(steps), range(2 * steps), (0, 1)):
        yield (aborted, w.AbortByHand(slot)), (crash, w.Crash())


# --- markers that a leader misses (KAFKA-20734) -----------------------------------------------------------------------


@family("a leader may not hear of a commit")
def lost_markers(steps: int) -> Iterable[Events]:
    for lost, crash, slot in product(range(steps), range(2 * steps), (0, 1)):
        yield (lost, w.LoseMarker(slot)), (crash, w.Crash())


@family("an attempt may go on behind a commit that a leader did not hear of")
def zombies_and_lost_markers(steps: int) -> Iterable[Events]:
    """Also while the driver waits for the marker."""
    for lost, later, slot, effects in product(range(steps), range(1, steps + 30), (0, 1), (None, 2)):
        yield (lost, w.LoseMarker(slot)), (lost, w.Lose()), (lost + later, w.Resume(effects))


@family("a leader may not hear of an abort", *EVERY_ROW)
def lost_aborts(steps: int) -> Iterable[Events]:
    """The next attempt's rows join the transaction that is open there. The abort comes from the run after a driver's
    death, from the next attempt after a failed one, or from a timeout."""
    aborting: tuple[Event, ...] = (w.Crash(), w.Fail(True), w.TimeOut())
    for event, lost, later, slot in product(aborting, range(steps), range(steps), (0, 1)):
        yield (lost, w.LoseMarker(slot, committed=False)), (lost, event), (lost + 1 + later, w.Crash())


@family("a leader may hear neither of an abort nor of the next commit", {"shapes": (((1,), (1,)),)}, share=1)
def lost_aborts_and_commits(steps: int) -> Iterable[Events]:
    for lost, second, third in product(range(steps), repeat=3):
        markers = (lost, w.LoseMarker(0, committed=False)), (lost, w.LoseMarker(0)), (lost, w.Crash())
        yield *markers, (lost + 1 + second, w.Crash()), (lost + 2 + second + third, w.Crash())


@family(
    "what an operator aborted may be written again, while its driver is paused",
    *({"last_epoch": last_epoch, "shapes": (((1, 1),),)} for last_epoch in (0, 1)),
)
def aborted_and_written_again(steps: int) -> Iterable[Events]:
    """A leader misses the marker. Another driver writes the slot, with a new producer id if epochs are used up."""
    for aborted, later, slot in product(range(steps), range(1, steps + 20), (0, 1)):
        marker = (aborted, w.LoseMarker(slot, committed=False))
        yield marker, (aborted, w.AbortByHand(slot)), (aborted, w.Switch()), (aborted + later, w.Switch())


# --- stale answers ----------------------------------------------------------------------------------------------------


stale_reads = family(
    "stale group coordinators may answer for a moment", {}, {"shapes": (((1,), (1,), (1,)),)}, share=8,
    name="stale_reads",
)(stale(w.StandStill, (1, 2, 4), (1, 2, 3, 5)))  # fmt: skip


@family("they may answer an attempt and the run after it", {"cores": 2})
def stale_reads_and_attempts(steps: int) -> Iterable[Events]:
    for lost, stale, crash, changes in product(range(steps), range(12), range(0, steps, 2), (1, 3)):
        still, dies = w.StandStill(changes, 2), lost + stale + crash
        yield (lost, w.Lose()), (lost + stale, still), (dies, w.Crash()), (dies + 1, still)


@family("they may answer of versions that timed out", THREE_BATCHES)
def stale_reads_of_batches(steps: int) -> Iterable[Events]:
    for crash, later, changes, reads in product(range(steps), range(steps), (1, 3), (1, 3)):
        still = (crash + 1 + later, w.StandStill(changes, reads))
        yield (crash, w.Crash()), still
        yield (crash, w.TimeOut()), (crash, w.Crash()), still


# Reads of these groups may have different ages.
family(
    "they may answer of parts of a decision", PARTS, share=4, name="stale_reads_of_parts"
)(stale(w.StandStill, (1, 3), (1, 2, 4)))  # fmt: skip
stale_coordinators = family(
    "stale transaction coordinators may answer for a moment", *EVERY_ROW, share=3, name="stale_coordinators"
)(stale(w.CoordinatorsStandStill, (1, 2, 3, 5), (1, 2, 3, 5)))  # fmt: skip
stale_leaders = family(
    "stale leaders may answer for a moment", share=3, name="stale_leaders"
)(stale(w.LeadersStandStill, (1, 2, 3, 5), (1, 2, 4)))  # fmt: skip


# --- state that is gone -----------------------------------------------------------------------------------------------


def lost_with(events: Sequence[Event], steps: int) -> Iterator[Events]:
    """The driver dies before any two effects; after the first, one of `events` happens."""
    for event, crash, later in product(events, range(steps), range(0, steps, 3)):
        yield (crash, event), (crash, w.ForgetIds()), (crash + 1 + later, w.Crash())


@family("groups may be gone and checkpoints be old", *({**rows, "shapes": (((2, 2),) * 3,)} for rows in EVERY_ROW))
def lost_state(steps: int) -> Iterable[Events]:
    forgotten = [w.Forget("the decision"), w.Forget("everything"), w.Forget("the markers", w.MARKERS_EXPIRE_MS)]
    forgotten += [w.Forget(what, w.ALL_EXPIRE_MS) for what in ("everything", "the markers")]
    return lost_with([*forgotten, w.GoBack(1), w.GoBack(2)], steps)


@family("groups may be deleted at any time", *EVERY_ROW, share=4)
def lost_groups(steps: int) -> Iterable[Events]:
    """As the driver dies or later, and it dies once more."""
    for only_offsets, crash, later, groups in product((False, True), range(steps), range(0, steps, 3), GROUPS):
        lost = w.LoseGroups(groups, only_offsets)
        yield (crash, lost), (crash, w.Crash()), (crash + 1 + later, w.Crash())
        yield (crash, w.Crash()), (crash + 1 + later, lost), (crash + 6 + later, w.Crash())


@family("groups may be deleted of slots that timed out")
def lost_groups_and_timeouts(steps: int) -> Iterable[Events]:
    """Before or after."""
    for expired, later, which, groups in product(range(steps), range(0, steps, 3), (None, *IDS[1:]), GROUPS_OF_SLOTS):
        time_out, second = ((expired, w.TimeOut(which)), (expired, w.Crash())), expired + 1 + later
        yield *time_out, (second, w.LoseGroups(groups)), (second, w.Crash())
        yield (expired, w.LoseGroups(groups)), *time_out, (second, w.Crash())


@family("groups may be deleted before an attempt goes on", {"cores": 2})
def lost_groups_and_attempts(steps: int) -> Iterable[Events]:
    for lost, later, groups, crash in product(range(steps), range(1, steps, 2), GROUPS, (0, 9)):
        events = (lost, w.Lose()), (lost + later // 2, w.LoseGroups(groups)), (lost + later, w.Resume())
        yield *events, (lost + later + crash, w.Crash())


@family("groups may be deleted between two drivers")
def lost_groups_and_two_drivers(steps: int) -> Iterable[Events]:
    for first, later, groups in product(range(steps), range(1, steps, 2), GROUPS):
        for lost in (first, first + later // 2, first + later):
            yield (first, w.Switch()), (lost, w.LoseGroups(groups)), (first + later, w.Switch())


@family("parts of a decision may be deleted", {"metadata_max": ONE_PIN})
def lost_groups_of_parts(steps: int) -> Iterable[Events]:
    parts = ("sink.decision", "sink.decision-1", "sink.decision-2")
    for crash, later, part in product(range(steps), range(0, steps, 2), parts):
        for groups in ((part,), (part, "sink.1")):
            yield (crash, w.Crash()), (crash + 1 + later, w.LoseGroups(groups)), (crash + 1 + later, w.Crash())


@family("groups may be deleted while coordinators are stale")
def lost_groups_and_stale_answers(steps: int) -> Iterable[Events]:
    ages = ((1, 2), (3, 4))
    stale: list[Event] = [w.StandStill(*age) for age in ages]
    stale += [w.CoordinatorsStandStill(*age) for age in ages]
    for crash, later, groups, event in product(range(steps), range(0, steps, 4), GROUPS, stale):
        yield (crash, w.Crash()), (crash, w.LoseGroups(groups)), (crash + 1 + later, event)


@family("groups of versions may be deleted", {"shapes": (BATCHES[:3],), "versions": (0, 7, 7, 3)})
def lost_groups_of_versions(steps: int) -> Iterable[Events]:
    """The versions come again; transactions time out, and the driver dies."""
    for crash, later, groups in product(range(steps), range(0, steps, 3), GROUPS):
        lost = w.LoseGroups(groups)
        yield (crash, w.Crash()), (crash + 1 + later, lost), (crash + 1 + later, w.Crash())
        yield (crash, w.TimeOut()), (crash, w.Crash()), (crash + later, lost), (crash + 1 + later, w.Crash())


@family("groups of slots may expire", *EVERY_ROW)
def expired_groups(steps: int) -> Iterable[Events]:
    """No driver lives for a week. The transactional ids may expire as well."""
    for forgotten, crash, later in product((True, False), range(steps), range(0, steps, 2)):
        ids = ((crash, w.ForgetIds()),) if forgotten else ()
        yield (crash, w.Forget("the markers", w.MARKERS_EXPIRE_MS)), *ids, (crash + 1 + later, w.Crash())


# --- brokers that lose their last records -----------------------------------------------------------------------------


@family(
    "offsets may go back when a driver dies",
    *({"shapes": (THREE,), "last_epoch": last_epoch} for last_epoch in (32_766, 2)),
)
def offsets_rolled_back(steps: int) -> Iterable[Events]:
    """Of all groups or of some."""
    for crash, changes, groups, later in product(range(steps), (1, 2, 3, 5, 8), (None, *GROUPS), (1, 9, 40)):
        yield (crash, w.RollBack(offsets=changes, groups=groups)), (crash, w.Crash()), (crash + later, w.Crash())


@family("offsets may go back while a driver lives")
def offsets_rolled_back_under_a_driver(steps: int) -> Iterable[Events]:
    for lost, changes, groups in product(range(steps), (1, 2, 4), (None, *GROUPS)):
        yield ((lost, w.RollBack(offsets=changes, groups=groups)),)
        yield (lost, w.RollBack(offsets=changes, groups=groups)), (lost + 4, w.Crash())


@family("transactions may go back", {"shapes": (THREE,)})
def transactions_rolled_back(steps: int) -> Iterable[Events]:
    """Coordinators give ids out again that leaders know."""
    for crash, changes, later in product(range(steps), (1, 2, 3, 5, 8, 13), (1, 9, 40)):
        lost = (crash, w.RollBack(transactions=changes))
        yield lost, (crash, w.Crash()), (crash + later, w.Crash())
        yield lost, (crash + later, w.Crash())


@family("offsets and transactions may go back together", {"shapes": (THREE,)})
def all_rolled_back(steps: int) -> Iterable[Events]:
    """To the end of the first micro-batch, or of the second."""

    def steps_of(version: int, count: int) -> int:
        return steps_of_a_quiet_run(Schedule(version=version, shapes=(THREE[:count],)))

    (version,) = (version for version in VERSIONS if steps_of(version, 3) == steps)
    for marked in (steps_of(version, 1), steps_of(version, 2)):
        for crash, later in product(range(marked + 1, steps), range(1, 60, 3)):
            yield (marked, w.Mark()), (crash, w.RollBackToMark()), (crash, w.Crash()), (crash + later, w.Crash())


# --- batch writes with versions ---------------------------------------------------------------------------------------


family(
    "versions of batch writes come once in whatever order", ALL_BATCHES, share=3, name="batch_versions"
)(crash_twice)  # fmt: skip


family(
    "versions of batch writes may time out at any time", THREE_BATCHES, name="batch_versions_and_timeouts"
)(crash_and_time_out)  # fmt: skip


@family("no version that is visible in part is passed over", GIVEN_UP)
def batch_versions_given_up(steps: int) -> Iterable[Events]:
    """The user goes on with the next version."""
    for crash, which in product(range(steps), (None, *IDS)):
        yield ((crash, w.GiveUp()),)
        for expired in range(steps):
            time_out = w.TimeOut(which)
            yield (crash, time_out), (crash, w.GiveUp()), (expired, time_out), (expired, w.Crash())
            yield (expired, time_out), (crash, w.GiveUp())


@family(
    "a version again with other rows stops at what is visible",
    *(
        {"same_rows": same_rows, "shapes": (TWO_BY_TWO, *more), "versions": (0, 7)}
        for same_rows in (ALWAYS, FIRST_SLOT, NEVER)
        for more in ((), (((2, 2, 0), (2, 2, 0)),), (((2,), (2,)),))
    ),
)
def batch_versions_with_other_rows(steps: int) -> Iterable[Events]:
    """Or other slots, or a slot more without rows."""
    for first, later, which in product(range(steps), range(steps), (None, IDS[1])):
        yield (first, w.Crash()), (first + 1 + later, w.Crash())
        yield (first, w.TimeOut(which)), (first, w.Crash()), (first + 1 + later, w.Crash())


family(
    "of two writes under one name one is fenced", *({**rows, **THREE_BATCHES} for rows in EVERY_ROW), share=1,
    name="batch_versions_two_drivers",
)(two_switches)  # fmt: skip


@family("a version that a leader hides is not passed over as written", THREE_BATCHES)
def batch_versions_and_lost_markers(steps: int) -> Iterable[Events]:
    for lost, crash, slot in product(range(steps), range(steps), (0, 1)):
        yield (lost, w.LoseMarker(slot)), (crash, w.Crash())


@family("a version that a leader hides may be given up", GIVEN_UP)
def batch_versions_given_up_and_lost_markers(steps: int) -> Iterable[Events]:
    for lost, crash, slot, committed in product(range(steps), range(steps), (0, 1), (True, False)):
        yield (lost, w.LoseMarker(slot, committed)), (crash, w.GiveUp())


@family("of versions groups may be gone and users go back", ALL_BATCHES, share=1)
def batch_versions_and_lost_state(steps: int) -> Iterable[Events]:
    everything, markers = w.Forget("everything", w.ALL_EXPIRE_MS), w.Forget("the markers", w.MARKERS_EXPIRE_MS)
    return lost_with([w.Forget("the decision"), everything, markers, w.GoBack(1), w.GoBack(2)], steps)


# --- slots that rest ------------------------------------------------------------------------------------------------


def each_of(*families: Family) -> Callable[[int], Iterator[Events]]:
    return lambda steps: chain.from_iterable(each.places(steps) for each in families)


family(
    "slots without rows may rest", {"shapes": (RESTS,)}, {"shapes": (RESTS,), "last_epoch": 1},
    {"shapes": (RESTS,), "versions": (0, 7, 9)}, share=2, name="resting",
)(each_of(crashes, requests_twice, late_duplicates, timeouts, two_drivers, unanswered))  # fmt: skip
family(
    "a slot may rest while another of its attempts finds rows",
    *({"shapes": (RESTS,), "same_rows": w.COME_AND_GO, "cores": cores} for cores in (1, 2)), share=2,
    name="resting_attempts",
)(each_of(zombies, zombies_and_crashes, attempts_again, stages_again))  # fmt: skip
family(
    "slots may rest when state is lost or stale", {"shapes": (RESTS,)}, {"shapes": (RESTS,), "same_rows": NEVER},
    share=2, name="resting_state",
)(each_of(
    lost_state, lost_groups, expired_groups, stale_reads, stale_coordinators, stale_leaders, lost_markers, lost_aborts
))  # fmt: skip
# A slot rests, is not there for a micro-batch, and comes again; the later run has fewer slots, or more.
FEWER: Shape = ((1, 1, 1), (1, 0), (0, 1, 1))
MORE: Shape = ((1, 1), (0, 0, 1), (1, 0, 0))
family(
    "slots may rest while their number changes",
    *({"shapes": shapes} for shapes in ((FEWER,), (MORE,), (RESTS, FEWER), (MORE, FEWER))),
    {"shapes": (RESTS, MORE), "same_rows": NEVER}, share=2, name="resting_shapes",
)(each_of(crashes, timeouts, two_drivers, unanswered))  # fmt: skip
# Of the second micro-batch, no slot that the first had has rows.
family(
    "slots may rest when state goes back", {"shapes": (RESTS,)}, {"shapes": (((1, 1), (0, 0, 1)),)},
    share=2, name="resting_rolled_back",
)(each_of(offsets_rolled_back, offsets_rolled_back_under_a_driver, transactions_rolled_back))  # fmt: skip


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
        version=chance.choice(VERSIONS), events=tuple(events), shapes=shapes,
        same_rows=chance.choice((ALWAYS, ALWAYS, FIRST_SLOT, NEVER)), metadata_max=chance.choice((4096, TWO_PINS)),
        last_epoch=chance.choice((32_766, 32_766, 0, 3)), cores=chance.choice((1, 1, 2, 4)),
    )  # fmt: skip
    if chance.random() >= 0.7:
        schedule = _of_batches(schedule, chance, step)
    if chance.random() >= 0.97:
        schedule = _while_rows_hang(schedule, chance)
    if chance.random() < 0.3:
        still = chance.randint(0, step + 40), _still(chance, schedule)
        schedule = replace(schedule, events=(*schedule.events, still))
    if w.LoseMarker not in schedule.kinds() and chance.random() < 0.15:
        # What a leader hides of a decision that is lost, nobody knows of (docs/design/exactly-once.md).
        groups = chance.choice((*GROUPS, ("sink.decision-1",), ("sink.2",)))
        lost = chance.randint(0, step + 40), w.LoseGroups(groups, chance.random() < 0.5)
        schedule = replace(schedule, events=(*schedule.events, lost))
    return schedule


def _still(chance: random.Random, schedule: Schedule) -> Event:
    kinds: list[type[w.StandStill | w.CoordinatorsStandStill | w.LeadersStandStill]]
    kinds = [w.StandStill, w.CoordinatorsStandStill]
    if not schedule.kinds() & {w.LoseMarker, w.AbortByHand}:
        # No promise: a stale leader while another leader missed an end, or an operator aborted on it
        # (docs/reliability.md, Open).
        kinds.append(w.LeadersStandStill)
    return chance.choice(kinds)(chance.randint(1, 6), chance.randint(1, 6))


def _of_batches(schedule: Schedule, chance: random.Random, step: int) -> Schedule:
    """Make a schedule of batch writes, in an order that their user chooses. The user may give a version up if its
    visible rows are known."""
    versions = chance.choice(((0, 7, 9), (0, 7, 7, 3), (0, 7, 3, 9, 9)))
    shapes = tuple((*shape, shape[0]) for shape in schedule.shapes)
    # A user who goes back in the middle of a version has given it up too.
    is_known = _is_known(schedule) and w.GoBack not in schedule.kinds()
    given_up = ((chance.randint(0, step + 30), w.GiveUp()),) if is_known and chance.random() < 0.5 else ()
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
    lost = (0, w.LoseMarker(chance.choice(slots)))
    steps = _Markers.steps_of(replace(schedule, events=(lost,)))
    if not steps:
        return schedule
    step = chance.choice(steps)
    may_give_up = bool(schedule.versions) and _is_known(schedule)
    event = w.GiveUp() if may_give_up and chance.random() < 0.3 else _any_event(chance, step)
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
        w.Crash(), w.Crash(), w.Twice(), w.Fail(True), w.Fail(False), w.TimeOut(), w.TimeOut(chance.choice(IDS)),
        w.Lose(), w.Lose(), w.Resume(), w.Resume(chance.randint(1, 4)), w.Switch(), w.Switch(),
        w.AbortByHand(chance.randint(0, 3)),
        w.LoseMarker(chance.randint(0, 3)), w.LoseMarker(chance.randint(0, 3), committed=False),
        w.Forget("the markers", w.MARKERS_EXPIRE_MS), w.GoBack(chance.randint(1, 2)),
    ]  # fmt: skip
    if step:
        choices += [w.Late(chance.randrange(step)), w.Late(max(0, step - chance.randint(1, 8)))]
    return chance.choice(choices)


# --- taking some, or all ----------------------------------------------------------------------------------------------


def some(family: Callable[[int], Iterator[Told]], version: int, worlds: int) -> Iterator[Schedule]:
    """Return this number of the family's schedules, evenly spread, or all if there are fewer."""
    every = sum(1 for _ in family(version)) / worlds
    taken = 0
    for number, (quiet, events) in enumerate(family(version)):
        if number >= taken * every:
            taken += 1
            yield replace(quiet, events=events)


def all_of(family: Callable[[int], Iterator[Told]], version: int) -> Iterator[Schedule]:
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
        name="explorations", title="Exploration of the two-phase commit", command=command,
        about=(
            "The shipped two-phase commit runs on a model of Kafka's transactions, with both versions of the "
            "transaction protocol. A family has all schedules of a few kinds of events over the steps of a quiet run. "
            "With `--worlds N`, N schedules of each family and version are run, evenly spread. The family "
            "`everything` is random, by seed. After each schedule, the rows that Spark logged are visible exactly "
            "once, and no others are."
        ),
        figures={
            "schedules": sum(each.schedules for each in families), "schedules that failed": failed,
            "steps": sum(each.steps for each in families),
            "minutes": round(sum(each.took_s for each in families) / 60, 1),
            **{name.replace("_", " "): schedules for name, schedules in of_family.items()},
        },
        passed=not failed,
    )  # fmt: skip


def main() -> int:
    arguments = _arguments()
    families: list[tuple[str, Iterator[Schedule]]] = [
        (f"{each.name}, version {version}",
         some(each, version, arguments.worlds) if arguments.worlds else all_of(each, version))
        for each, version in product(FAMILIES, VERSIONS)
        if arguments.only in each.name
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
