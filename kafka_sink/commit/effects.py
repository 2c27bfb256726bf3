"""What the steps of the two-phase commit yield: requests that may go out at the same time, and who they go to.

Steps are generators without any I/O. They yield effects and are sent their answers in the same order; `runner` carries
effects out over a client, a simulation over its model.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
)


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """`request` goes to the coordinator of `key`."""

    kind: CoordinatorKind
    key: str
    request: Any


@dataclass(frozen=True, slots=True)
class ToEveryBroker:
    """`request` goes to each broker; the answer is the list of their answers."""

    request: Any


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """`request` goes to the leaders of its partitions, to each with its own; the answer is one for all of them."""

    request: Any


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """No request of ours: a broker's setting, as text, or None where the principal may not know."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """No request: time for brokers to do what they have promised; answered with None."""

    milliseconds: int


# For what brokers do soon. After a commit's answer its markers are written within 1 to 4 ms, 150 at most (measured);
# twice as long each time, 2 + 4 + ... + 16384 ms, is half a minute, about what a broker that dies takes to be replaced.
PAUSES_MS = tuple(2**n for n in range(1, 15))

Effect = ToCoordinator | ToEveryBroker | ToLeaders | BrokerSetting | Pause
Result = TypeVar("Result")
Steps = Generator[Sequence[Effect], Sequence[Any], Result]


def at_once(*several: Steps[Any]) -> Steps[list[Any]]:
    """Runs steps side by side: what they ask next goes out together. Their results; raises what the first one does
    that raises, which ends the others."""
    results: list[Any] = [None] * len(several)
    waiting: dict[int, Sequence[Effect]] = {}
    answers: dict[int, Sequence[Any] | None] = dict.fromkeys(range(len(several)))
    try:
        while answers:
            waiting.clear()
            for place, of_steps in answers.items():
                try:
                    steps = several[place]
                    waiting[place] = next(steps) if of_steps is None else steps.send(of_steps)
                except StopIteration as ended:
                    results[place] = ended.value
            if not waiting:
                break
            found = iter((yield [effect for effects in waiting.values() for effect in effects]))
            answers = {place: [next(found) for _ in effects] for place, effects in waiting.items()}
    finally:
        for steps in several:
            steps.close()
    return results
