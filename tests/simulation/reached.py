"""Which transitions of the shipped state machines a run goes through: their tables, replaced by ones that count.

The code under test is what ships; only the mapping that it looks its next state up in is another object with the same
content.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka_sink.producer import producer_batch
from kafka_sink.protocol import connection


class _Counting(Mapping[Any, Any]):
    def __init__(self, table: Mapping[Any, Any], counts: Counter[str], prefix: str) -> None:
        self._table = table
        self._counts = counts
        self._prefix = prefix

    def __getitem__(self, key: Any) -> Any:
        value = self._table[key]
        self._counts[f"{self._prefix} {_name(key)}"] += 1
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self._table else default

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _name(key: Any) -> str:
    if isinstance(key, tuple):
        return " x ".join(map(_name, key))
    return key.name if isinstance(key, enum.Enum) else str(key)


def all_transitions() -> frozenset[str]:
    """Every (state, event) pair that the tables have, by the names under which they are counted."""
    batch = {f"batch {_name(key)}" for key in producer_batch.TRANSITIONS}
    wire = {
        f"connection {state.name} x {_name(happened)}"
        for state, row in connection.TRANSITIONS.items()
        for happened in row
    }
    return frozenset(batch | wire)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts the transitions of all producers while it lasts."""
    counts: Counter[str] = Counter()
    batches, connections = producer_batch.TRANSITIONS, connection.TRANSITIONS
    producer_batch.TRANSITIONS = _Counting(batches, counts, "batch")  # type: ignore[assignment]
    connection.TRANSITIONS = MappingProxyType(
        {state: _Counting(row, counts, f"connection {state.name} x") for state, row in connections.items()}
    )
    try:
        yield counts
    finally:
        producer_batch.TRANSITIONS, connection.TRANSITIONS = batches, connections
