"""The steps of the examination, in their order, and the earlier steps that each step needs.

If a needed step failed or was skipped, the step is skipped and names that cause. So one cause gives one failure. Steps
of a host need earlier steps at the same host. Steps of the cluster need each other, and one bootstrap server that
answers.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_sink.doctor.report import Status, Verdict


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `needs` are the steps that must succeed before it."""

    name: str
    needs: tuple[str, ...] = ()


# The steps of a connection to one host, up to a first request. ApiVersions comes before SASL (KIP-43).
HOST_STEPS: tuple[str, ...] = ("dns", "tcp", "tls", "api versions", "sasl")

_TABLE: tuple[Step, ...] = (
    Step("options"),
    Step("columns"),
    *(Step(name, HOST_STEPS[max(0, place - 1) : place]) for place, name in enumerate(HOST_STEPS)),
    Step("cluster"),
    Step("service", ("cluster",)),
    # Only where a broker throttles.
    Step("throttle", ("cluster",)),
    Step("at-least-once", ("cluster",)),
    Step("exactly-once", ("cluster",)),
    Step("reading", ("cluster",)),
    Step("topic", ("cluster",)),
    Step("write acl", ("topic",)),
    Step("leaders", ("topic",)),
    Step("replication", ("topic",)),
    Step("settings", ("topic",)),
    Step("in-sync replicas", ("leaders", "settings")),
    Step("unclean election", ("settings",)),
    Step("message size", ("settings",)),
    Step("timestamps", ("settings",)),
    Step("acks"),
    # Only with badRows=deadLetter.
    Step("dead letter topic", ("cluster",)),
    Step("producer id", ("write acl", "at-least-once")),
    # Reads, and exactly-once writes. A read has a group with groupId.
    Step("read acl", ("topic",)),
    Step("group acl", ("exactly-once",)),
    Step("commit topic", ("exactly-once",)),
    Step("transactional id acl", ("exactly-once",)),
    Step("transaction timeout", ("exactly-once",)),
    Step("retention of state", ("exactly-once",)),
    Step("topics of state", ("exactly-once",)),
)
STEPS: Mapping[str, Step] = {step.name: step for step in _TABLE}


def because_of(step: Step, verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the verdict that blocks `step`, or None. The earliest one, so that all steps name the same cause."""
    needs = _all_needs(step)
    blocking = (Status.FAILED, Status.SKIPPED)
    return next((each for each in verdicts if each.step in needs and each.status in blocking), None)


def _all_needs(step: Step) -> frozenset[str]:
    """Return the needs of `step`, and the needs of these."""
    return frozenset(step.needs).union(*(_all_needs(STEPS[name]) for name in step.needs))
