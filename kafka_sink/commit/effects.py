"""The effects that the steps of the two-phase commit yield: requests that may go out together, and their receivers.

Steps are generators without I/O. A step yields effects and receives the answers in the same order. `runner` carries
effects out with a client, and a simulation does it with a model.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """`request` goes to the coordinator of `key`."""

    kind: CoordinatorKind
    key: str
    request: Any


@dataclass(frozen=True, slots=True)
class ToEveryBroker:
    """`request` goes to each broker. The answer is the list of the brokers' answers."""

    request: Any


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """`request` goes to the leaders of its partitions. Each leader gets its own partitions. The answers are merged."""

    request: Any


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """Answered with the text of a broker's setting, or None if the principal may not read it."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """No request: time for the brokers to finish work that they have confirmed. Answered with None."""

    milliseconds: int


# Brokers write the markers 1 to 4 ms after a commit's answer, at most 150 ms (measured). The pauses double from 2 ms to
# 16,384 ms, 33 s in total: about the time until a dead broker is replaced.
PAUSES_MS = tuple(2**n for n in range(1, 15))

Effect = ToCoordinator | ToEveryBroker | ToLeaders | BrokerSetting | Pause
Result = TypeVar("Result")
Steps = Generator[Sequence[Effect], Sequence[Any], Result]


def at_once(*several: Steps[Any]) -> Steps[list[Any]]:
    """Run several steps side by side: their next effects go out together. Return their results in order.

    Raises the first error of a step, and then closes the other steps.
    """
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
