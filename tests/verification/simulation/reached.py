"""Counts the pairs of state and event that the seeds reach, and has the reasons why other pairs are never reached.

The shipped state machines are tables. While a seed runs, tables that count replace them, with the same content; the
code under test is the shipped code. The two-phase commit has no table: its steps are generators, and a pair consists of
its next effect and the event before that effect.

With enough seeds the run fails for a missing pair without a reason, and for a reached pair that has a reason (`wrong`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka_sink.kafka.producer import producer_batch, transaction_manager
from kafka_sink.kafka.protocol import connection
from simulation import two_phase

# With fewer, chance decides about the rarest pairs.
ENOUGH_SEEDS = 10_000

_CONNECTED_FIRST = (
    "a transport tells of a connection before its bytes, and the client starts at once; called by hand in "
    "tests/unit/kafka/protocol/test_connection.py"
)
_NO_SASL = (
    "the model's brokers ask nobody who they are; authenticated connections are in tests/unit/kafka/protocol and, with "
    "real brokers, in tests/integration"
)
_NO_TRANSACTION = (
    "simulated writes are at-least-once; the two-phase commit's rows are values, and its producer is in "
    "tests/unit/kafka/producer/test_transaction_manager.py"
)
_IDS_EXPIRE_IDLE = (
    "transactional ids expire while no driver is there: no seed takes them from one at work, `make explore` does after "
    "each of its crashes (lost_state)"
)

_STALE_AND_HANGING = (
    "markers are written where a leader did not hear of a commit; one that stands still beside that is not explored "
    "(what is open, below)"
)

_LOST_AND_HANGING = (
    "markers are written where a leader did not hear of a commit; what it hides of a decision whose groups are "
    "deleted, nobody knows of (docs/design/exactly-once.md)"
)

_ALWAYS_IDENTIFIED = (
    "every connection of a NetworkClient asks for the cluster's id; those of the check do not "
    "(tests/unit/kafka/protocol/test_connection.py)"
)

UNREACHED: dict[str, str] = {
    "connection IDLE x RECEIVE": _CONNECTED_FIRST,
    "connection IDLE x ERROR": _CONNECTED_FIRST,
    "connection NEGOTIATING x SECURED": _NO_SASL,
    "connection AUTHENTICATING x SENT": _NO_SASL,
    "connection AUTHENTICATING x RECEIVE": _NO_SASL,
    "connection AUTHENTICATING x AUTHENTICATED": _NO_SASL,
    "connection AUTHENTICATING x IDENTIFY": _NO_SASL,
    "connection NEGOTIATING x VERSIONS": _ALWAYS_IDENTIFIED,
    "connection AUTHENTICATING x ERROR": _NO_SASL,
    "connection AUTHENTICATING x CLOSE": _NO_SASL,
    "connection OPEN x REAUTHENTICATE": _NO_SASL,
    "transaction IDLE x begin": _NO_TRANSACTION,
    "transaction OPEN x end": _NO_TRANSACTION,
    **{f"commit {step} x ForgetIds": _IDS_EXPIRE_IDLE for step in two_phase.STEPS},
    "commit WriteTxnMarkers x LeadersStandStill": _STALE_AND_HANGING,
    "commit WriteTxnMarkers x LoseGroups": _LOST_AND_HANGING,
}


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


def all_pairs() -> frozenset[str]:
    """Every (state, event) pair that the tables have, and every (step, event) pair of the two-phase commit, by the
    names under which they are counted."""
    batch = {f"batch {_name(key)}" for key in producer_batch.TRANSITIONS}
    transaction = {f"transaction {_name(key)}" for key in transaction_manager.TRANSITIONS}
    wire = {
        f"connection {state.name} x {_name(happened)}"
        for state, row in connection.TRANSITIONS.items()
        for happened in row
    }
    return frozenset(batch | transaction | wire | two_phase.all_pairs())


def wrong(counts: Counter[str]) -> list[str]:
    """Return the contradictions between `counts`, of ENOUGH_SEEDS, and UNREACHED."""
    missing = all_pairs() - counts.keys()
    return [
        *(f"{pair} was never reached, and nothing says why" for pair in sorted(missing - UNREACHED.keys())),
        *(f"{pair} was reached, and cannot be: {UNREACHED[pair]}" for pair in sorted(UNREACHED.keys() - missing)),
    ]


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the transitions of all producers inside the block."""
    counts: Counter[str] = Counter()
    batches, connections = producer_batch.TRANSITIONS, connection.TRANSITIONS
    transactions = transaction_manager.TRANSITIONS
    producer_batch.TRANSITIONS = _Counting(batches, counts, "batch")  # type: ignore[assignment]
    transaction_manager.TRANSITIONS = _Counting(transactions, counts, "transaction")  # type: ignore[assignment]
    connection.TRANSITIONS = MappingProxyType(
        {state: _Counting(row, counts, f"connection {state.name} x") for state, row in connections.items()}
    )
    try:
        yield counts
    finally:
        producer_batch.TRANSITIONS, connection.TRANSITIONS = batches, connections
        transaction_manager.TRANSITIONS = transactions
