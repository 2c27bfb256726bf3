"""Requests of one broker to another: they take time, and a broker that dies answers none.

Scope: requests about transactions between coordinators and leaders. `replication` has followers' fetches, `cluster`
has the controller's decisions.

Source: InterBrokerSendThread in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from model.replica_manager import ReplicaManager
from model.timeline import Timeline

T = TypeVar("T")


@dataclass(slots=True)
class InterBroker:
    """`latency_ms`: the range for one way."""

    _timeline: Timeline
    _rng: random.Random
    _latency_ms: tuple[int, int]
    _brokers: Mapping[int, ReplicaManager]
    _unanswered: dict[int, list[Callable[[], None]]] = field(default_factory=dict)

    def ask(
        self, sender: int, receiver: int, request: Callable[[Callable[[T], None]], None],
        on_answer: Callable[[T | None], None],
    ) -> None:  # fmt: skip
        """`request` is run at the receiver and given what takes its answer. `on_answer` gets that, None if the receiver
        died first, and is not run in another life of the sender."""
        life = self._brokers[sender].lives
        is_settled = False

        def settle(answer: T | None) -> None:
            nonlocal is_settled
            if is_settled:
                return
            is_settled = True
            self._unanswered[receiver].remove(lose)
            self._later(lambda: on_answer(answer) if self._lives(sender, life) else None)

        def lose() -> None:
            settle(None)

        def arrive() -> None:
            if self._brokers[receiver].is_alive:
                request(settle)
            else:
                settle(None)

        self._unanswered.setdefault(receiver, []).append(lose)
        self._later(arrive)

    def broker_died(self, node_id: int) -> None:
        """Drop the answers of a dead broker: their receivers get None."""
        for lose in list(self._unanswered.get(node_id, ())):
            lose()

    def _lives(self, node_id: int, life: int) -> bool:
        return self._brokers[node_id].is_alive and self._brokers[node_id].lives == life

    def _later(self, action: Callable[[], None]) -> None:
        self._timeline.call_in(self._rng.randint(*self._latency_ms), action)
