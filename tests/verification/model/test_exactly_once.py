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
VERSIONS = pytest.mark.parametrize("version", explorations.VERSIONS)


def explore(family: Family, version: int, worlds: int = WORLDS) -> None:
    for schedule in some(family, version, worlds):
        run(schedule)


@VERSIONS
def test_a_driver_may_die_before_any_two_effects(version: int) -> None:
    explore(explorations.crashes, version, 3 * WORLDS)


@VERSIONS
def test_any_request_may_be_carried_out_twice_and_the_driver_die(version: int) -> None:
    explore(explorations.requests_twice, version, 2 * WORLDS)


@VERSIONS
def test_a_duplicate_of_any_request_may_arrive_at_any_later_time(version: int) -> None:
    explore(explorations.late_duplicates, version, 2 * WORLDS)


@VERSIONS
def test_a_duplicate_of_any_request_may_arrive_in_the_next_run(version: int) -> None:
    explore(explorations.late_duplicates_after_a_crash, version)


@VERSIONS
def test_transactions_may_time_out_at_any_time(version: int) -> None:
    explore(explorations.timeouts, version, 2 * WORLDS)


@VERSIONS
def test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is(version: int) -> None:
    explore(explorations.other_rows, version, 2 * WORLDS)


@VERSIONS
def test_a_replay_with_other_rows_never_fills_in_what_timed_out(version: int) -> None:
    explore(explorations.other_rows_and_timeouts, version, 2 * WORLDS)


@VERSIONS
def test_of_two_drivers_on_a_checkpoint_one_is_fenced(version: int) -> None:
    explore(explorations.two_drivers, version, 2 * WORLDS)


@VERSIONS
def test_two_drivers_may_take_turns(version: int) -> None:
    explore(explorations.two_drivers_three_switches, version)


@VERSIONS
def test_an_attempt_that_was_given_up_may_go_on_at_any_later_time(version: int) -> None:
    explore(explorations.zombies, version, 2 * WORLDS)


@VERSIONS
def test_an_attempt_that_was_given_up_may_go_on_in_the_next_run(version: int) -> None:
    explore(explorations.zombies_and_crashes, version)


@VERSIONS
def test_attempts_may_be_lost_or_fail_at_any_effect(version: int) -> None:
    explore(explorations.attempts_again, version)


@VERSIONS
def test_abort_may_follow_upon_a_commit_that_does_not_know_that_it_decided(version: int) -> None:
    explore(explorations.unanswered, version, 2 * WORLDS)


@VERSIONS
def test_slots_may_be_empty_and_their_number_change(version: int) -> None:
    explore(explorations.shapes, version)


@VERSIONS
def test_a_decision_may_take_several_groups(version: int) -> None:
    explore(explorations.many_groups, version)


@VERSIONS
def test_producer_ids_may_be_spent(version: int) -> None:
    explore(explorations.spent_epochs, version)


@VERSIONS
def test_an_operator_may_abort_what_is_prepared(version: int) -> None:
    explore(explorations.by_hand, version)


@VERSIONS
def test_a_leader_may_not_hear_of_a_commit(version: int) -> None:
    explore(explorations.lost_markers, version, 2 * WORLDS)


@VERSIONS
def test_an_attempt_may_go_on_behind_a_commit_that_a_leader_did_not_hear_of(version: int) -> None:
    explore(explorations.zombies_and_lost_markers, version, 2 * WORLDS)


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


@VERSIONS
def test_a_leader_may_not_hear_of_an_abort(version: int) -> None:
    explore(explorations.lost_aborts, version, 2 * WORLDS)


@VERSIONS
def test_a_leader_may_hear_neither_of_an_abort_nor_of_the_next_commit(version: int) -> None:
    explore(explorations.lost_aborts_and_commits, version)


@VERSIONS
def test_group_coordinators_that_stood_still_may_answer_for_a_moment(version: int) -> None:
    explore(explorations.stale_reads, version, 4 * WORLDS)


@VERSIONS
def test_transaction_coordinators_that_stood_still_may_answer_for_a_moment(version: int) -> None:
    explore(explorations.stale_coordinators, version, 3 * WORLDS)


@VERSIONS
def test_leaders_that_stood_still_may_answer_for_a_moment(version: int) -> None:
    explore(explorations.stale_leaders, version, 3 * WORLDS)


@VERSIONS
def test_they_may_answer_of_parts_of_a_decision(version: int) -> None:
    explore(explorations.stale_reads_of_parts, version, 4 * WORLDS)


@VERSIONS
def test_they_may_answer_an_attempt_and_the_run_after_it(version: int) -> None:
    explore(explorations.stale_reads_and_attempts, version, 2 * WORLDS)


@VERSIONS
def test_they_may_answer_of_versions_that_timed_out(version: int) -> None:
    explore(explorations.stale_reads_of_batches, version, 2 * WORLDS)


@VERSIONS
def test_groups_may_be_gone_and_checkpoints_be_old(version: int) -> None:
    explore(explorations.lost_state, version, 2 * WORLDS)


@VERSIONS
def test_groups_may_be_deleted_at_any_time(version: int) -> None:
    explore(explorations.lost_groups, version, 4 * WORLDS)


@VERSIONS
def test_groups_may_be_deleted_of_slots_that_timed_out(version: int) -> None:
    explore(explorations.lost_groups_and_timeouts, version, 2 * WORLDS)


@VERSIONS
def test_groups_may_be_deleted_before_an_attempt_goes_on(version: int) -> None:
    explore(explorations.lost_groups_and_attempts, version, 2 * WORLDS)


@VERSIONS
def test_groups_may_be_deleted_between_two_drivers(version: int) -> None:
    explore(explorations.lost_groups_and_two_drivers, version, 2 * WORLDS)


@VERSIONS
def test_parts_of_a_decision_may_be_deleted(version: int) -> None:
    explore(explorations.lost_groups_of_parts, version, 2 * WORLDS)


@VERSIONS
def test_groups_may_be_deleted_while_coordinators_are_stale(version: int) -> None:
    explore(explorations.lost_groups_and_stale_answers, version, 2 * WORLDS)


@VERSIONS
def test_groups_of_versions_may_be_deleted(version: int) -> None:
    explore(explorations.lost_groups_of_versions, version, 2 * WORLDS)


@VERSIONS
def test_groups_of_slots_may_expire(version: int) -> None:
    explore(explorations.expired_groups, version, 2 * WORLDS)


@VERSIONS
def test_versions_of_batch_writes_come_once_in_whatever_order(version: int) -> None:
    explore(explorations.batch_versions, version, 3 * WORLDS)


@VERSIONS
def test_versions_of_batch_writes_may_time_out_at_any_time(version: int) -> None:
    explore(explorations.batch_versions_and_timeouts, version, 2 * WORLDS)


@VERSIONS
def test_no_version_that_is_visible_in_part_is_passed_over(version: int) -> None:
    explore(explorations.batch_versions_given_up, version, 2 * WORLDS)


@VERSIONS
def test_a_version_again_with_other_rows_stops_at_what_is_visible(version: int) -> None:
    explore(explorations.batch_versions_with_other_rows, version, 2 * WORLDS)


@VERSIONS
def test_of_two_writes_under_one_name_one_is_fenced(version: int) -> None:
    explore(explorations.batch_versions_two_drivers, version)


@VERSIONS
def test_a_version_that_a_leader_hides_is_not_passed_over_as_written(version: int) -> None:
    explore(explorations.batch_versions_and_lost_markers, version, 2 * WORLDS)


@VERSIONS
def test_of_versions_groups_may_be_gone_and_users_go_back(version: int) -> None:
    explore(explorations.batch_versions_and_lost_state, version)


def test_everything_together() -> None:
    for seed in range(SEEDS):
        try:
            run(of_seed(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


# --- the exploration itself -------------------------------------------------------------------------------------------


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
