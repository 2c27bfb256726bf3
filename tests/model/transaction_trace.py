"""Transactions of every kind that brokers judge, scenario by scenario: for the model and for real brokers alike.

What brokers make up (producer ids) is told by the order in which it was seen: 0 is the first, 1 the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model.transaction_client import COMES_TO_PASS, NOBODY, VERSION_2, Ended, Producer, TransactionClient

TIMEOUT_MS = 1_000


@dataclass
class Trace:
    """One scenario: `x` is its transactional id, `topic` has two partitions. `steps` collects what was answered.
    `time_out` waits until a transaction that was begun TIMEOUT_MS ago is surely gone."""

    client: TransactionClient
    x: str
    topic: str
    time_out: Callable[[], None]
    steps: list[tuple[str, Any]] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)

    def told(self, name: str, answer: Any) -> None:
        self.steps.append((name, self._renamed(answer)))

    def _renamed(self, answer: Any) -> Any:
        if isinstance(answer, Producer):
            known = self._seen.setdefault(answer.producer_id, len(self._seen)) if answer != NOBODY else -1
            return (known, answer.producer_epoch)
        return tuple(map(self._renamed, answer)) if isinstance(answer, tuple) else answer

    @property
    def is_version_2(self) -> bool:
        return self.client.versions.end_txn >= VERSION_2.end_txn

    def init(self, **fields: Any) -> Producer:
        producer = self.client.init(self.x, **fields)
        self.told("init", producer)
        return producer

    def try_init(self, name: str, **fields: Any) -> None:
        """Whatever comes of it, once the coordinator is there and the id is not busy."""
        while (answer := self.client.try_init(self.x, **fields))[0] in COMES_TO_PASS:
            self.client.pause()
        self.told(name, answer)

    def write(self, producer: Producer, partition: int = 0, **fields: Any) -> None:
        self.told("write", self.client.write(self.x, producer, self.topic, partition, **fields))

    def produce(self, producer: Producer, partition: int = 0, **fields: Any) -> None:
        self.told("produce", self.client.produce(self.x, producer, self.topic, partition, **fields))

    def end(self, producer: Producer, is_commit: bool) -> Producer:
        """What the producer goes on with."""
        ended = self.client.end_surely(self.x, producer, is_commit)
        self.told("commit" if is_commit else "abort", ended)
        return following(ended, producer)

    def commit(self, producer: Producer) -> Producer:
        return self.end(producer, True)

    def abort(self, producer: Producer) -> Producer:
        return self.end(producer, False)


def following(ended: Ended, producer: Producer) -> Producer:
    return ended.producer if ended.producer is not None else producer


def begun(trace: Trace, **fields: Any) -> Producer:
    producer = trace.init(**fields)
    trace.write(producer)
    return producer


# --- the table of EndTxn ----------------------------------------------------------------------------------------------


def commit_commit(trace: Trace) -> None:
    producer = begun(trace)
    trace.commit(producer)
    trace.commit(producer)


def commit_abort(trace: Trace) -> None:
    producer = begun(trace)
    trace.commit(producer)
    trace.abort(producer)


def abort_abort(trace: Trace) -> None:
    producer = begun(trace)
    trace.abort(producer)
    trace.abort(producer)


def abort_commit(trace: Trace) -> None:
    producer = begun(trace)
    trace.abort(producer)
    trace.commit(producer)


def commit_of_nothing(trace: Trace) -> None:
    trace.commit(trace.init())


def abort_of_nothing(trace: Trace) -> None:
    producer = trace.abort(trace.init())
    trace.abort(producer)
    trace.write(producer)
    trace.commit(producer)


def commit_and_abort_of_nothing_after_a_transaction(trace: Trace) -> None:
    producer = trace.commit(begun(trace))
    if trace.is_version_2:
        trace.commit(producer)
        producer = trace.abort(producer)
        trace.commit(producer)


def commit_init_and_the_old_commit(trace: Trace) -> None:
    producer = begun(trace)
    trace.commit(producer)
    trace.init()
    trace.commit(producer)
    trace.abort(producer)


def late_commit_in_the_next_transaction(trace: Trace) -> None:
    producer = begun(trace)
    second = trace.commit(producer)
    trace.write(second, base_sequence=0 if trace.is_version_2 else 1)
    trace.commit(producer)
    trace.commit(second)
    trace.abort(second)


def late_abort_in_the_next_transaction(trace: Trace) -> None:
    producer = begun(trace)
    second = trace.abort(producer)
    trace.write(second, base_sequence=0 if trace.is_version_2 else 1)
    trace.abort(producer)
    trace.commit(second)


def commit_after_the_timeout(trace: Trace) -> None:
    producer = begun(trace, timeout_ms=TIMEOUT_MS)
    trace.time_out()
    trace.commit(producer)
    trace.abort(producer)
    trace.produce(producer, base_sequence=1)
    trace.try_init("known", expected=producer)
    trace.init()


def end_of_somebody_else(trace: Trace) -> None:
    producer = begun(trace)
    trace.commit(Producer(producer.producer_id + 10**6, 0))
    trace.commit(Producer(producer.producer_id, 7))
    trace.abort(Producer(producer.producer_id, 1))
    trace.told("another id", trace.client.end(trace.x + "-unknown", producer, True))
    trace.commit(producer)


# --- producers --------------------------------------------------------------------------------------------------------


def zombie(trace: Trace) -> None:
    old = begun(trace)
    new = trace.init()
    trace.produce(old, base_sequence=1)
    trace.produce(old, 1)
    trace.commit(old)
    trace.abort(old)
    trace.write(new)
    trace.produce(old, base_sequence=1)
    trace.commit(new)


def producer_that_says_who_it_is(trace: Trace) -> None:
    first = trace.init()
    second = trace.init(expected=first)
    trace.try_init("again", expected=first)
    third = trace.init(expected=second)
    trace.try_init("late", expected=first)
    trace.try_init("other", expected=Producer(first.producer_id + 10**6, 0))
    trace.write(third)
    trace.init(expected=third)
    trace.init()


def producer_that_says_who_it_is_after_an_end(trace: Trace) -> None:
    producer = begun(trace)
    second = trace.commit(producer)
    trace.init(expected=second)
    third = trace.init()
    trace.write(third)
    trace.abort(third)
    trace.try_init("before the end", expected=third)


def bad_inits(trace: Trace) -> None:
    for timeout_ms in (0, 1, 900_000, 900_001):
        trace.try_init(f"timeout {timeout_ms}", timeout_ms=timeout_ms)
    trace.told("no name", trace.client.try_init(""))


# --- what may be written ----------------------------------------------------------------------------------------------


def partition_not_added(trace: Trace) -> None:
    producer = trace.init()
    for version in (10, 11):
        trace.produce(producer, version=version)
    trace.told("add", trace.client.add_partitions(trace.x, producer, {trace.topic: [0]}).popitem()[1])
    for version in (10, 11):
        trace.produce(producer, base_sequence=version - 10, version=version)
        trace.produce(producer, 1, version=version)
    trace.abort(producer)


def bad_partitions(trace: Trace) -> None:
    producer = trace.init()
    codes = trace.client.add_partitions(trace.x, producer, {trace.topic: [0, 9], trace.topic + "-unknown": [0]})
    trace.told("add", tuple(sorted(codes.values())))
    trace.told("add none", tuple(trace.client.add_partitions(trace.x, producer, {}).values()))
    for ids in (Producer(producer.producer_id, 1), Producer(producer.producer_id + 10**6, 0)):
        for version in (1, 3):
            added = trace.client.add_partitions(trace.x, ids, {trace.topic: [0]}, version)
            trace.told(f"add as another, version {version}", added.popitem()[1])
        trace.produce(ids)
    trace.commit(producer)


def outside_of_the_transaction(trace: Trace) -> None:
    producer = trace.init()
    trace.produce(producer, is_transactional=False)
    trace.told("no transactional id", trace.client.produce(None, producer, trace.topic))
    trace.told("nobody's", trace.client.produce(None, NOBODY, trace.topic, base_sequence=-1))
    trace.write(producer, base_sequence=1, acks=1)
    trace.produce(producer, base_sequence=2, is_transactional=False)
    trace.commit(producer)


def sequences(trace: Trace) -> None:
    producer = trace.init()
    trace.write(producer, base_sequence=3)
    trace.write(producer, 1)
    trace.write(producer, 1)
    trace.write(producer, 1, base_sequence=2)
    trace.write(producer, 1, base_sequence=1)
    second = trace.commit(producer)
    trace.write(second, 1, base_sequence=0)
    trace.write(second, 1, base_sequence=2)
    trace.write(second, 1, base_sequence=1)
    trace.commit(second)


SCENARIOS: Mapping[str, Callable[[Trace], None]] = {
    scenario.__name__: scenario
    for scenario in (
        commit_commit, commit_abort, abort_abort, abort_commit, commit_of_nothing, abort_of_nothing,
        commit_and_abort_of_nothing_after_a_transaction, commit_init_and_the_old_commit,
        late_commit_in_the_next_transaction, late_abort_in_the_next_transaction, commit_after_the_timeout,
        end_of_somebody_else, zombie, producer_that_says_who_it_is, producer_that_says_who_it_is_after_an_end, bad_inits,
        partition_not_added, bad_partitions, outside_of_the_transaction, sequences,
    )
}  # fmt: skip
