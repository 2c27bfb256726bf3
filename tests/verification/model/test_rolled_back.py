"""The brokers' internal topics lose their last records (an unclean election, a replica without its page cache): offsets
of groups, transactions, or both. No row is written twice, and an error says what happened where nothing can be proved.
"""

from __future__ import annotations

import pytest

from kafka_sink.errors import StateWentBack
from model import explorations
from model.explorations import Family, some
from model.schedules import Crash, Event, Mark, RollBack, RollBackToMark, Schedule
from model.worlds import run, steps_of_a_quiet_run

WORLDS = 300
VERSIONS = pytest.mark.parametrize("version", explorations.VERSIONS)


def explore(family: Family, version: int) -> None:
    for schedule in some(family, version, WORLDS):
        run(schedule)


@VERSIONS
def test_offsets_may_go_back_when_a_driver_dies(version: int) -> None:
    explore(explorations.offsets_rolled_back, version)


@VERSIONS
def test_offsets_may_go_back_while_a_driver_lives(version: int) -> None:
    explore(explorations.offsets_rolled_back_under_a_driver, version)


@VERSIONS
def test_transactions_may_go_back(version: int) -> None:
    explore(explorations.transactions_rolled_back, version)


@VERSIONS
def test_both_may_go_back(version: int) -> None:
    explore(explorations.all_rolled_back, version)


@VERSIONS
@pytest.mark.parametrize("micro_batch", [0, 1, 2])
def test_a_visible_micro_batch_that_the_offsets_have_lost_stops_the_query(version: int, micro_batch: int) -> None:
    """The driver dies between the sink's commit and Spark's."""
    shape = ((2, 2),) * 3
    quiet = Schedule(version=version, shapes=(shape,))
    ends = [0, *(steps_of_a_quiet_run(Schedule(version=version, shapes=(shape[: n + 1],))) for n in range(3))]
    begins, logs = ends[micro_batch] + 7, ends[micro_batch + 1] - 1
    lost: tuple[tuple[int, Event], ...] = ((begins, Mark()), (logs, RollBackToMark()))
    # Of the first micro-batch, both logs together may show nothing: see docs/guarantees.md.
    if micro_batch == 0:
        lost = ((logs, RollBack(offsets=3)),)
    world = run(Schedule(version=version, shapes=quiet.shapes, events=(*lost, (logs, Crash()))))
    assert world.stopped_by is StateWentBack


def test_coordinators_that_went_back_give_out_ids_that_a_decision_names() -> None:
    """An attempt got the ids of the decision; the next plan committed it for the decision, without a row."""
    events = ((39, RollBack(transactions=8)), (40, Crash()))
    world = run(Schedule(version=2, events=events, shapes=(((2, 2), (1, 1, 1), (2, 2)),)))
    assert world.stopped_by is None
