"""The two-phase commit of a seed, watched step by step; and which pairs of state and event the seeds reach.

    Schedule ─> World ─> commit (as it ships) ─> LogicalKafka
                  └─ Watcher: digest, trace, what happened before which effect

Kafka is a value here and answers at once: there is no clock, time is counted in steps. The schedules of the seeds are
those of `make explore`'s last family.

The shipped state machines are tables. While a seed runs, tables with the same content that count replace them; the rest
of the code under test is as shipped. The two-phase commit has no table, because its steps are generators. Its pairs are
a step and an event that happens before the step. Over enough seeds, a pair that is missing without a reason fails the
run. A pair that has a reason and was reached fails the run too (`wrong`).
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any

from kafka_sink.commit.requests import ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.kafka.producer import producer_batch, transaction_manager
from kafka_sink.kafka.protocol import connection
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
        self.counts[_pair(_step_name(effect), type(event))] += 1
        self._note(f"{step:>5}  BEFORE {_step_name(effect)}: {event!r}")

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


def commit_pairs() -> frozenset[str]:
    """Each event before each step, by the names under which they are counted."""
    return frozenset(_pair(step, event) for step, event in product(STEPS, Event.__subclasses__()))


def _pair(step: str, event: type) -> str:
    return f"commit {step} x {event.__name__}"


def _step_name(effect: Step) -> str:
    if isinstance(effect, ToCoordinator | ToEveryBroker | ToLeaders):
        return type(effect.request).__name__.removesuffix("Request")
    return type(effect).__name__


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

UNREACHED: dict[str, str] = {
    "connection IDLE x RECEIVE": _CONNECTED_FIRST, "connection IDLE x ERROR": _CONNECTED_FIRST,
    "connection NEGOTIATING x SECURED": _NO_SASL, "connection AUTHENTICATING x SENT": _NO_SASL,
    "connection AUTHENTICATING x RECEIVE": _NO_SASL, "connection AUTHENTICATING x AUTHENTICATED": _NO_SASL,
    "connection AUTHENTICATING x IDENTIFY": _NO_SASL,
    "connection AUTHENTICATING x ERROR": _NO_SASL, "connection AUTHENTICATING x CLOSE": _NO_SASL,
    "connection OPEN x REAUTHENTICATE": _NO_SASL, "transaction IDLE x begin": _NO_TRANSACTION,
    "transaction OPEN x end": _NO_TRANSACTION,
    **{f"commit {step} x ForgetIds": _IDS_EXPIRE_IDLE for step in STEPS},
    "commit WriteTxnMarkers x LeadersStandStill": _STALE_AND_HANGING,
    "commit WriteTxnMarkers x LoseGroups": _LOST_AND_HANGING,
}  # fmt: skip


class _Counting(dict[Any, Any]):
    def __init__(self, table: Mapping[Any, Any], counts: Counter[str], prefix: str) -> None:
        super().__init__(table)
        self._counts = counts
        self._prefix = prefix

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        self._counts[f"{self._prefix} {_name(key)}"] += 1
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


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
    return frozenset(batch | transaction | wire | commit_pairs())


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
    producer_batch.TRANSITIONS = _Counting(batches, counts, "batch")
    transaction_manager.TRANSITIONS = _Counting(transactions, counts, "transaction")
    connection.TRANSITIONS = MappingProxyType(
        {state: _Counting(row, counts, f"connection {state.name} x") for state, row in connections.items()}
    )
    try:
        yield counts
    finally:
        producer_batch.TRANSITIONS, connection.TRANSITIONS = batches, connections
        transaction_manager.TRANSITIONS = transactions
