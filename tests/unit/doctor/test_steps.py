from __future__ import annotations

import pytest

from kafka_sink.doctor.report import Finding, Status, Verdict, failed, ok, skipped
from kafka_sink.doctor.steps import HOST_STEPS, STEPS, because_of


def test_every_need_is_a_step_before_it() -> None:
    before: set[str] = set()
    for step in STEPS.values():
        assert set(step.needs) <= before
        before.add(step.name)
    assert before >= set(HOST_STEPS)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("step", ["topic", "write acl", "in-sync replicas", "producer id", "group acl"])
def test_all_that_follows_names_the_first_cause(step: str, status: Status) -> None:
    cause = Verdict("cluster", "c", Finding(status, ""))
    verdicts = [cause, Verdict("acks", "t", failed("", ""))]
    if status in (Status.FAILED, Status.SKIPPED):
        verdicts.insert(1, Verdict("topic", "t", skipped("because of cluster")))
        assert because_of(STEPS[step], verdicts) is cause
    else:
        assert because_of(STEPS[step], verdicts) is None


def test_a_partition_without_a_leader_is_one_failure() -> None:
    """Nothing is in sync then, which says nothing new."""
    cause = Verdict("leaders", "t", failed("", "r"))
    assert because_of(STEPS["in-sync replicas"], [Verdict("settings", "t", ok("")), cause]) is cause
