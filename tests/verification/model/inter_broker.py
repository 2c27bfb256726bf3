"""Requests of one broker to another, or to itself, about transactions: they take time, and are always answered.

Scope: requests between coordinators and leaders. `replication` has followers' fetches, `cluster` has the controller's
decisions. Nobody looks at transactions of a cluster whose brokers die: `logical_kafka` is taken through that.

Source: InterBrokerSendThread in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from model.timeline import Timeline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InterBroker:
    """`latency_ms`: the range for one way."""

    _timeline: Timeline
    _rng: random.Random
    _latency_ms: tuple[int, int]

    def ask(self, request: Callable[[Callable[[T], None]], None], on_answer: Callable[[T], None]) -> None:
        """`request` is run at the receiver and given what takes its answer."""
        self._later(lambda: request(lambda answer: self._later(lambda: on_answer(answer))))

    def _later(self, action: Callable[[], None]) -> None:
        self._timeline.call_in(self._rng.randint(*self._latency_ms), action)
