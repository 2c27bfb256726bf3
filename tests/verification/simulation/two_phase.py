"""The two-phase commit of a seed: all events that can happen to its drivers, watched step by step.

    Schedule ─> World ─> two_phase (as it ships) ─> LogicalKafka
                  └─ Watcher: digest, trace, what happened before which effect

Kafka is a value here and answers at once: there is no clock, time is counted in steps. The schedules of the seeds are
those of `make explore`'s last family.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import get_args

from kafka_sink.commit.effects import ToCoordinator, ToEveryBroker, ToLeaders
from model.spark_driver import Step
from model.worlds import Event, Schedule, run

# Names of the next effect of a driver or a task: its requests and its other effects.
STEPS = (
    "InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "OffsetFetch", "DescribeTransactions",
    "ListTransactions", "DescribeProducers", "WriteTxnMarkers", "Produce", "Message", "Log", "Pause",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Commit:
    """`problem`: empty for a run as it should be. `digest`: of all events and effects, with their answers."""

    problem: str
    digest: str
    counts: Counter[str]


@dataclass(slots=True)
class _Witness:
    trace: Callable[[str], None] | None
    counts: Counter[str] = field(default_factory=Counter)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def happens(self, step: int, event: Event, effect: Step) -> None:
        self.counts[_pair(_name(effect), type(event))] += 1
        self._note(f"{step:>5}  BEFORE {_name(effect)}: {event!r}")

    def carried_out(self, step: int, effect: Step, answer: object) -> None:
        self.counts["commit effects carried out"] += 1
        self._note(f"{step:>5}  {effect!r} -> {answer!r}")

    def _note(self, line: str) -> None:
        self._digest.update(line.encode())
        if self.trace:
            self.trace(line)

    def digest(self) -> str:
        return self._digest.hexdigest()


def run_commit(schedule: Schedule, trace: Callable[[str], None] | None = None) -> Commit:
    witness = _Witness(trace)
    problem = ""
    try:
        world = run(schedule, witness)
    except Exception as error:
        problem = f"two-phase commit: {type(error).__name__}: {error}"
    else:
        witness.counts[f"commit {world.stopped_by.__name__ if world.stopped_by else 'whole'}"] += 1
    return Commit(problem, witness.digest(), witness.counts)


def all_pairs() -> frozenset[str]:
    """Each event before each step, by the names under which they are counted."""
    return frozenset(_pair(step, event) for step, event in product(STEPS, get_args(Event)))


def _pair(step: str, event: type) -> str:
    return f"commit {step} x {event.__name__}"


def _name(effect: Step) -> str:
    if isinstance(effect, ToCoordinator | ToEveryBroker | ToLeaders):
        return type(effect.request).__name__.removesuffix("Request")
    return type(effect).__name__
