"""Spark runs a stage again after a FetchFailed: a slot gets a second attempt, and Spark keeps the first's result."""

from __future__ import annotations

import pytest

from kafka_sink.errors import AttemptReplaced
from model import explorations
from model.explorations import some
from model.schedules import RunStageAgain, Schedule
from model.worlds import run, steps_of_a_quiet_run

VERSIONS = pytest.mark.parametrize("version", explorations.VERSIONS)


@VERSIONS
def test_a_stage_may_run_again_at_any_time(version: int) -> None:
    for schedule in some(explorations.stages_again, version, 400):
        run(schedule)


@VERSIONS
def test_the_error_says_that_a_later_attempt_took_over_and_the_next_run_is_whole(version: int) -> None:
    ends = set()
    for step in range(steps_of_a_quiet_run(Schedule(version=version))):
        world = run(Schedule(version=version, events=((step, RunStageAgain()),)))
        assert world.stopped_by is None
        ends.update(world.errors)
    assert ends == {AttemptReplaced}
