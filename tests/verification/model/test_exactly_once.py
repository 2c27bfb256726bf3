"""The two-phase commit through crashes, requests that come twice, late or never, timeouts, zombies, second drivers and
lost state. `explorations.py` says what each family is and can take all of it; here it is some of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink.errors import NonDeterministicReplay
from model import explorations
from model.explorations import Family, Told, all_of, of_seed, some
from model.schedules import NEVER, Crash, Fail, Late, Lose, LoseMarker, Resume, Schedule, Switch, TimeOut, Twice
from model.worlds import World, run
from reliability.campaign import Campaign

# Of each family and version; `make explore` takes all.
WORLDS = 200
SEEDS = 4 * WORLDS


# What may happen, its family, and how many times WORLDS are taken.
FAMILIES = {
    "a driver may die before any two effects": (explorations.crashes, 3),
    "any request may be carried out twice and the driver die": (explorations.requests_twice, 2),
    "a duplicate of any request may arrive at any later time": (explorations.late_duplicates, 2),
    "a duplicate of any request may arrive in the next run": (explorations.late_duplicates_after_a_crash, 1),
    "transactions may time out at any time": (explorations.timeouts, 2),
    "a replay with other rows replaces what is not visible and stops at what is": (explorations.other_rows, 2),
    "a replay with other rows never fills in what timed out": (explorations.other_rows_and_timeouts, 2),
    "of two drivers on a checkpoint one is fenced": (explorations.two_drivers, 2),
    "two drivers may take turns": (explorations.two_drivers_three_switches, 1),
    "an attempt that was given up may go on at any later time": (explorations.zombies, 2),
    "an attempt that was given up may go on in the next run": (explorations.zombies_and_crashes, 1),
    "attempts may be lost or fail at any effect": (explorations.attempts_again, 1),
    "abort may follow upon a commit that does not know that it decided": (explorations.unanswered, 2),
    "slots may be empty and their number change": (explorations.shapes, 1),
    "a decision may take several groups": (explorations.many_groups, 1),
    "producer ids may be spent": (explorations.spent_epochs, 1),
    "an operator may abort what is prepared": (explorations.by_hand, 1),
    "a leader may not hear of a commit": (explorations.lost_markers, 2),
    "an attempt may go on behind a commit that a leader did not hear of": (explorations.zombies_and_lost_markers, 2),
    "a leader may not hear of an abort": (explorations.lost_aborts, 2),
    "a leader may hear neither of an abort nor of the next commit": (explorations.lost_aborts_and_commits, 1),
    "group coordinators that stood still may answer for a moment": (explorations.stale_reads, 4),
    "transaction coordinators that stood still may answer for a moment": (explorations.stale_coordinators, 3),
    "leaders that stood still may answer for a moment": (explorations.stale_leaders, 3),
    "they may answer of parts of a decision": (explorations.stale_reads_of_parts, 4),
    "they may answer an attempt and the run after it": (explorations.stale_reads_and_attempts, 2),
    "they may answer of versions that timed out": (explorations.stale_reads_of_batches, 2),
    "groups may be gone and checkpoints be old": (explorations.lost_state, 2),
    "groups may be deleted at any time": (explorations.lost_groups, 4),
    "groups may be deleted of slots that timed out": (explorations.lost_groups_and_timeouts, 2),
    "groups may be deleted before an attempt goes on": (explorations.lost_groups_and_attempts, 2),
    "groups may be deleted between two drivers": (explorations.lost_groups_and_two_drivers, 2),
    "parts of a decision may be deleted": (explorations.lost_groups_of_parts, 2),
    "groups may be deleted while coordinators are stale": (explorations.lost_groups_and_stale_answers, 2),
    "groups of versions may be deleted": (explorations.lost_groups_of_versions, 2),
    "groups of slots may expire": (explorations.expired_groups, 2),
    "versions of batch writes come once in whatever order": (explorations.batch_versions, 3),
    "versions of batch writes may time out at any time": (explorations.batch_versions_and_timeouts, 2),
    "no version that is visible in part is passed over": (explorations.batch_versions_given_up, 2),
    "a version again with other rows stops at what is visible": (explorations.batch_versions_with_other_rows, 2),
    "of two writes under one name one is fenced": (explorations.batch_versions_two_drivers, 1),
    "a version that a leader hides is not passed over as written": (explorations.batch_versions_and_lost_markers, 2),
    "of versions groups may be gone and users go back": (explorations.batch_versions_and_lost_state, 1),
}


@pytest.mark.parametrize(("family", "times"), FAMILIES.values(), ids=FAMILIES)
def test_rows_are_visible_once_whatever_happens(family: Family, times: int) -> None:
    for version in explorations.VERSIONS:
        for schedule in some(family, version, times * WORLDS):
            run(schedule)


def test_an_attempt_of_a_run_before_stands_still_before_its_init_until_rows_hang() -> None:
    """The attempt saw that nothing was visible. Its rows joined the leader's hidden rows; its abort removed both."""
    events = ((1, LoseMarker(0)), (13, Lose()), (14, Switch()), (64, Resume()))
    run(Schedule(version=2, events=events, shapes=(((1, 1, 0, 0), (2,), (0,), (1, 1, 0, 0)),), versions=(0, 7, 7, 3)))


def test_a_driver_overtaken_while_it_waited_for_what_hangs_raises_nothing() -> None:
    """The other driver ended the transaction and went on writing. The leader then refuses the first one's markers."""
    events = ((2, LoseMarker(2)), (4, Twice()), (59, Crash()), (93, Twice()), (96, Switch()), (130, TimeOut("sink.0")))
    run(Schedule(version=1, events=events, shapes=(((1, 1, 1, 0), (2, 0, 2, 2), (0, 2)),)))


def test_a_version_that_a_leader_hides_is_shown_before_other_rows_are_refused() -> None:
    events = ((1, LoseMarker(0)), (6, Crash()), (30, Twice()), (37, Fail(carried_out=False)))
    world = run(Schedule(
        version=1, events=events, shapes=(((2,), (2, 2), (2,), (2,)),), same_rows=NEVER, versions=(0, 7, 9)
    ))  # fmt: skip
    assert world.stopped_by is NonDeterministicReplay
    assert world.kafka.hidden() == []


def test_everything_together() -> None:
    for seed in range(SEEDS):
        try:
            run(of_seed(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_some_are_spread_over_all() -> None:
    all_of_them = list(all_of(explorations.crashes, 2))
    chosen = list(some(explorations.crashes, 2, 100))
    assert len(chosen) == 100
    assert chosen[0] == all_of_them[0]
    assert all_of_them.index(chosen[50]) == pytest.approx(len(all_of_them) / 2, abs=1)
    assert list(some(explorations.crashes, 2, 1_000_000)) == all_of_them


def test_a_schedule_is_a_world_to_the_step() -> None:
    schedule = of_seed(7)
    worlds = [run(schedule), run(schedule)]
    assert worlds[0].step == worlds[1].step
    assert worlds[0].kafka.visible == worlds[1].kafka.visible


def test_what_was_explored_is_a_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(explorations, "FAMILIES", (explorations.crashes, one_that_fails))
    options = ["--worlds", "3", "--seeds", "5", "--results", str(tmp_path / "explorations.json")]
    monkeypatch.setattr(sys, "argv", ["explorations", *options])
    assert explorations.main() == 1
    campaign = Campaign.read(tmp_path / "explorations.json")
    assert (campaign.command, campaign.passed) == ("make explore ARGS='--worlds 3 --seeds 5'", False)
    counted = {name: campaign.figures[name] for name in ("crashes", "one that fails", "everything")}
    assert counted == {"crashes": 6, "one that fails": 2, "everything": 5}
    assert (campaign.figures["schedules"], campaign.figures["schedules that failed"]) == (13, 2)


def one_that_fails(version: int) -> Iterator[Told]:
    yield Schedule(version=version), ((5, Crash()), (9, Late(10)))


def test_what_fails_is_told_with_its_schedule() -> None:
    schedule = Schedule(version=2, events=((5, Crash()), (9, Late(10))))
    with pytest.raises(IndexError) as raised:
        run(schedule)
    assert raised.value.__notes__ == [repr(schedule)]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [((), "is logged"), (("0/0//0/2",), "is logged"), (("9/0//0/2",), "of no run"), (("0/1//0/2",), "is logged")],
)
def test_rows_lost_doubled_and_extra_are_found(rows: tuple[str, ...], fault: str) -> None:
    world = World(Schedule(version=2))
    world.run()
    world.check()
    if rows:
        world.kafka.visible += rows
    else:
        world.kafka.visible.pop()
    with pytest.raises(AssertionError, match=fault):
        world.check()
