from __future__ import annotations

import pytest

from kafka_sink.doctor.report import Status, Verdict, failed, ok, skipped, warning
from kafka_sink.doctor.steps import HOST_STEPS, STEPS, because_of


def test_every_need_is_a_step_before_it() -> None:
    before: set[str] = set()
    for step in STEPS.values():
        assert set(step.needs) <= before
        before.add(step.name)
    assert before >= set(HOST_STEPS)


def test_nothing_is_in_the_way_of_a_step_whose_needs_are_well() -> None:
    verdicts = [Verdict("cluster", "c", ok("")), Verdict("topic", "t", warning("", ""))]
    verdicts.append(Verdict("acks", "t", failed("", "")))
    assert because_of(STEPS["write acl"], verdicts) is None
    assert because_of(STEPS["cluster"], verdicts) is None


@pytest.mark.parametrize("finding", [failed("", "r"), skipped("")])
@pytest.mark.parametrize("step", ["topic", "write acl", "in-sync replicas", "producer id", "group acl"])
def test_all_that_follows_names_the_first_cause(step: str, finding: object) -> None:
    cause = Verdict("cluster", "c", finding)  # type: ignore[arg-type]
    verdicts = [cause, Verdict("topic", "t", skipped("because of cluster"))]
    assert because_of(STEPS[step], verdicts) is cause


def test_a_cause_is_failed_or_skipped() -> None:
    blocking = [
        status
        for status in Status
        if because_of(STEPS["topic"], [Verdict("cluster", "c", type(ok(""))(status, ""))]) is not None
    ]
    assert blocking == [Status.FAILED, Status.SKIPPED]


def test_a_partition_without_a_leader_is_one_failure() -> None:
    """Nothing is in sync then, which says nothing new."""
    cause = Verdict("leaders", "t", failed("", "r"))
    assert because_of(STEPS["in-sync replicas"], [Verdict("settings", "t", ok("")), cause]) is cause
