"""The two-phase commit through crashes, requests that come twice, late or never, timeouts, zombies, second drivers and
lost state. `explorations.py` says what each family is and can take all of it; here it is some of each.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from effort import examples
from kafka_sink.errors import AttemptReplaced, NonDeterministicReplay, StateWentBack
from model import explorations
from model import worlds as w
from model.explorations import FAMILIES, VERSIONS, Events, Family, all_of, of_seed, some
from model.worlds import Event, Schedule, World, run, steps_of_a_quiet_run
from reliability.campaign import Campaign


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.says)
def test_rows_are_visible_once_whatever_happens(family: Family) -> None:
    for version in VERSIONS:
        for schedule in some(family, version, examples(100 * family.share)):
            run(schedule)


def test_everything_together() -> None:
    for seed in range(examples(800)):
        try:
            run(of_seed(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_an_attempt_of_a_run_before_stands_still_before_its_init_until_rows_hang() -> None:
    """The attempt saw that nothing was visible. Its rows joined the leader's hidden rows; its abort removed both."""
    events = ((1, w.LoseMarker(0)), (13, w.Lose()), (14, w.Switch()), (64, w.Resume()))
    run(Schedule(version=2, events=events, shapes=(((1, 1, 0, 0), (2,), (0,), (1, 1, 0, 0)),), versions=(0, 7, 7, 3)))


def test_a_driver_overtaken_while_it_waited_for_what_hangs_raises_nothing() -> None:
    """The other driver ended the transaction and went on writing. The leader then refuses the first one's markers."""
    events = (
        (2, w.LoseMarker(2)), (4, w.Twice()), (59, w.Crash()), (93, w.Twice()), (96, w.Switch()),
        (130, w.TimeOut("sink.0")),
    )  # fmt: skip
    run(Schedule(version=1, events=events, shapes=(((1, 1, 1, 0), (2, 0, 2, 2), (0, 2)),)))


def test_a_version_that_a_leader_hides_is_shown_before_other_rows_are_refused() -> None:
    events = ((1, w.LoseMarker(0)), (6, w.Crash()), (30, w.Twice()), (37, w.Fail(carried_out=False)))
    shapes = (((2,), (2, 2), (2,), (2,)),)
    world = run(Schedule(version=1, events=events, shapes=shapes, same_rows=w.NEVER, versions=(0, 7, 9)))
    assert world.stopped_by is NonDeterministicReplay
    assert world.kafka.hidden() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_error_says_that_a_later_attempt_took_over_and_the_next_run_is_whole(version: int) -> None:
    """Spark runs a stage again after a FetchFailed: a slot has a second attempt, and Spark keeps the first's result."""
    ends = set()
    for step in range(steps_of_a_quiet_run(Schedule(version=version))):
        world = run(Schedule(version=version, events=((step, w.RunStageAgain()),)))
        assert world.stopped_by is None
        ends.update(world.errors)
    assert ends == {AttemptReplaced}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("micro_batch", [0, 1, 2])
def test_a_visible_micro_batch_that_the_offsets_have_lost_stops_the_query(version: int, micro_batch: int) -> None:
    """The driver dies between the sink's commit and Spark's."""
    shape = ((2, 2),) * 3
    ends = [0, *(steps_of_a_quiet_run(Schedule(version=version, shapes=(shape[: n + 1],))) for n in range(3))]
    begins, logs = ends[micro_batch] + 7, ends[micro_batch + 1] - 1
    lost: tuple[tuple[int, Event], ...] = ((begins, w.Mark()), (logs, w.RollBackToMark()))
    # Of the first micro-batch, both logs together may show nothing: see docs/guarantees.md.
    if micro_batch == 0:
        lost = ((logs, w.RollBack(offsets=3)),)
    world = run(Schedule(version=version, shapes=(shape,), events=(*lost, (logs, w.Crash()))))
    assert world.stopped_by is StateWentBack


def test_coordinators_that_went_back_give_out_ids_that_a_decision_names() -> None:
    """An attempt got the ids of the decision; the next plan committed it for the decision, without a row."""
    events = ((39, w.RollBack(transactions=8)), (40, w.Crash()))
    world = run(Schedule(version=2, events=events, shapes=(((2, 2), (1, 1, 1), (2, 2)),)))
    assert world.stopped_by is None


def test_a_first_micro_batch_of_a_lost_decision_does_not_come_again_in_fewer_slots() -> None:
    """One slot timed out behind the decision, and the run that follows has a slot less than what is visible."""
    events = (
        (21, w.Switch()), (32, w.GoBack(1)), (87, w.TimeOut("sink.1")),
        (121, w.LoseGroups(("sink.decision", "sink.1"))),
    )  # fmt: skip
    shapes = ((1, 1, 1), (0, 0)), ((1, 1), (0, 0))
    world = run(Schedule(version=1, events=events, shapes=shapes, metadata_max=48, last_epoch=3))
    assert NonDeterministicReplay in world.errors


def test_some_are_spread_over_all() -> None:
    all_of_them = list(all_of(explorations.crashes, 2))
    chosen = list(some(explorations.crashes, 2, 100))
    assert len(chosen) == 100
    assert chosen[0] == all_of_them[0]
    assert all_of_them.index(chosen[50]) == pytest.approx(len(all_of_them) / 2, abs=1)
    assert list(some(explorations.crashes, 2, 1_000_000)) == all_of_them


def test_what_was_explored_is_a_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = Family("one_that_fails", "", ({},), one_that_fails, 1)
    monkeypatch.setattr(explorations, "FAMILIES", (explorations.crashes, failing))
    options = ["--worlds", "3", "--seeds", "5", "--results", str(tmp_path / "explorations.json")]
    monkeypatch.setattr(sys, "argv", ["explorations", *options])
    assert explorations.main() == 1
    campaign = Campaign.read(tmp_path / "explorations.json")
    assert (campaign.command, campaign.passed) == ("make explore ARGS='--worlds 3 --seeds 5'", False)
    counted = {name: campaign.figures[name] for name in ("crashes", "one that fails", "everything")}
    assert counted == {"crashes": 6, "one that fails": 2, "everything": 5}
    assert (campaign.figures["schedules"], campaign.figures["schedules that failed"]) == (13, 2)


def one_that_fails(steps: int) -> Iterator[Events]:
    yield (5, w.Crash()), (9, w.Late(10))


def test_what_fails_is_told_with_its_schedule() -> None:
    schedule = Schedule(version=2, events=((5, w.Crash()), (9, w.Late(10))))
    with pytest.raises(IndexError) as raised:
        run(schedule)
    assert raised.value.__notes__ == [repr(schedule)]


@pytest.mark.parametrize(("rows", "fault"), [
    ((), "is logged"), (("0/0//0/2",), "is logged"), (("9/0//0/2",), "of no run"), (("0/1//0/2",), "is logged"),
])  # fmt: skip
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
