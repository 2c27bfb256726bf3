"""The steps of the examination, in their order, and which earlier ones each needs.

A step whose need failed, or was skipped itself, is skipped and says because of which: one cause, one failure. Steps of
a host need each other at the same host; those of the cluster need each other, and one bootstrap server that answers.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_sink.doctor.report import Status, Verdict


@dataclass(frozen=True, slots=True)
class Step:
    """`needs`: the steps without which there is nothing to ask."""

    name: str
    needs: tuple[str, ...] = ()


# What connects to one host, as far as a first request. ApiVersions comes before SASL, as brokers have it (KIP-43).
HOST_STEPS: tuple[str, ...] = ("dns", "tcp", "tls", "api versions", "sasl")

_TABLE: tuple[Step, ...] = (
    Step("options"),
    Step("columns"),
    *(Step(name, HOST_STEPS[max(0, place - 1) : place]) for place, name in enumerate(HOST_STEPS)),
    Step("cluster"),
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
    # Only where bad rows go to one.
    Step("dead letter topic", ("cluster",)),
    Step("producer id", ("write acl",)),
    # Exactly-once only.
    Step("read acl", ("topic",)),
    Step("commit topic", ("cluster",)),
    Step("transactional id acl", ("cluster",)),
    Step("group acl", ("cluster",)),
    Step("transaction timeout", ("cluster",)),
    Step("retention of state", ("cluster",)),
)
STEPS: Mapping[str, Step] = {step.name: step for step in _TABLE}


def because_of(step: Step, verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict on account of which `step` cannot be taken: the earliest, so that all name the same cause."""
    needs = _all_needs(step)
    blocking = (Status.FAILED, Status.SKIPPED)
    return next((each for each in verdicts if each.step in needs and each.status in blocking), None)


def _all_needs(step: Step) -> frozenset[str]:
    """With those of its needs."""
    return frozenset(step.needs).union(*(_all_needs(STEPS[name]) for name in step.needs))
