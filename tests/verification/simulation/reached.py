"""Count which pairs of state and event the seeds reach, and say why the other pairs are never reached.

The shipped state machines are tables. While a seed runs, tables with the same content that count replace them; the rest
of the code under test is as shipped. The two-phase commit has no table, because its steps are generators. Its pairs are
a step and an event that happens before the step.

Over enough seeds, a pair that is missing without a reason fails the run. A pair that has a reason and was reached fails
the run too (`wrong`).
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
    "a transport reports a connection before its bytes, and the client starts at once; "
    "tests/unit/kafka/protocol/test_connection.py calls these events directly"
)
_NO_SASL = (
    "the model's brokers do not authenticate clients; tests/unit/kafka/protocol tests authenticated connections, and "
    "so does tests/integration with real brokers"
)
_NO_TRANSACTION = (
    "simulated writes are at-least-once, and the simulated two-phase commit has plain values for rows; "
    "tests/unit/kafka/producer/test_transaction_manager.py tests its producer"
)
_IDS_EXPIRE_IDLE = (
    "transactional ids expire while no driver runs, so no seed expires the ids of a running driver; `make explore` "
    "expires ids after each of its crashes (lost_state)"
)

_STALE_AND_HANGING = (
    "markers are written where a leader missed a commit; a stale leader at the same time is not explored (Open, below)"
)

_LOST_AND_HANGING = (
    "markers are written where a leader missed a commit; if the groups of the decision are deleted, no ids are left to "
    "look for the hidden rows (docs/design/exactly-once.md)"
)

_ALWAYS_IDENTIFIED = (
    "every connection of a NetworkClient asks for the cluster's id; the connections of `pykafka check` do not "
    "(tests/unit/kafka/protocol/test_connection.py)"
)

UNREACHED: dict[str, str] = {
    "connection IDLE x RECEIVE": _CONNECTED_FIRST, "connection IDLE x ERROR": _CONNECTED_FIRST,
    "connection NEGOTIATING x SECURED": _NO_SASL, "connection AUTHENTICATING x SENT": _NO_SASL,
    "connection AUTHENTICATING x RECEIVE": _NO_SASL, "connection AUTHENTICATING x AUTHENTICATED": _NO_SASL,
    "connection AUTHENTICATING x IDENTIFY": _NO_SASL, "connection NEGOTIATING x VERSIONS": _ALWAYS_IDENTIFIED,
    "connection AUTHENTICATING x ERROR": _NO_SASL, "connection AUTHENTICATING x CLOSE": _NO_SASL,
    "connection OPEN x REAUTHENTICATE": _NO_SASL, "transaction IDLE x begin": _NO_TRANSACTION,
    "transaction OPEN x end": _NO_TRANSACTION,
    **{f"commit {step} x ForgetIds": _IDS_EXPIRE_IDLE for step in two_phase.STEPS},
    "commit WriteTxnMarkers x LeadersStandStill": _STALE_AND_HANGING,
    "commit WriteTxnMarkers x LoseGroups": _LOST_AND_HANGING,
}  # fmt: skip


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
    """What `counts`, of ENOUGH_SEEDS, has against UNREACHED."""
    missing = all_pairs() - counts.keys()
    return [
        *(f"{pair} was never reached, and nothing says why" for pair in sorted(missing - UNREACHED.keys())),
        *(f"{pair} was reached, and cannot be: {UNREACHED[pair]}" for pair in sorted(UNREACHED.keys() - missing)),
    ]


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts the transitions of all producers while it lasts."""
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
