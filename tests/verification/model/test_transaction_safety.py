"""What Kafka promises of transactions, over random faults: a transaction is visible whole or not at all, an answer that
was given holds, and nothing stays open once the faults are over."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from model.byte_client import ByteClient, client_of_topic, values_of
from model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from model.settings import KAFKA_3_9, KAFKA_4, TransactionSettings
from model.transaction_client import (
    COMES_TO_PASS,
    GROUP,
    VERSION_1,
    VERSION_2,
    Producer,
    TransactionClient,
    Versions,
    transaction_client,
)

TRANSACTIONS = 10
PARTITIONS = (0, 1)
# Of a leader that moves or lacks replicas; the request goes out again, as it was.
RETRIABLE = COMES_TO_PASS | {3, 5, 6, 7, 19, 20}
DEFINITE = frozenset({0, 48, 49, 90})


class GaveUp(Exception):
    """A request was refused for good; the producer begins anew."""


class Lost(Exception):
    """A request's answer will not come."""


@dataclass
class Run:
    """One producer after another under one id, while brokers die and leaders move. `told`: by the row of a transaction
    whether it was said to be committed (True) or aborted (False); None: it was asked for and never answered."""

    seed: int
    versions: Versions
    told: dict[bytes, bool | None] = field(default_factory=dict)
    rng: random.Random = field(init=False)
    client: ByteClient = field(init=False)
    transactions: TransactionClient = field(init=False)
    broken: list[str] = field(default_factory=list)
    _dead: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.client = client_of_topic(
            3, 2, partitions=2, seed=self.seed, generation=KAFKA_4 if self.versions == VERSION_2 else KAFKA_3_9,
            replica_lag_time_max_ms=200, failure_detection_ms=(10, 100), replica_fetch_ms=(1, 10),
            transactions=TransactionSettings(internal_topic_partitions=1, inter_broker_ms=(0, 10)),
        )  # fmt: skip
        self.transactions = transaction_client(self.client, self.versions)
        self.transactions.init("x")
        self.transactions.coordinator("x", GROUP)
        self.transactions.call = self.call

    def disturb(self) -> None:
        cluster = self.client.cluster
        what = self.rng.choices(["nothing", "crash", "restart", "elect"], [200, 2, 4, 4])[0]
        if what == "crash" and not self._dead:
            self._dead.append(self.rng.randrange(3))
            cluster.crash(self._dead[0])
        elif what == "restart" and self._dead:
            cluster.restart(self._dead.pop())
        elif what == "elect":
            topic, partition = self.rng.choice([("t", 0), ("t", 1), (TRANSACTION_STATE, 0), (CONSUMER_OFFSETS, 0)])
            live = [node for node in cluster.state(topic, partition).isr if node in cluster.controller.image.alive]
            if live:
                cluster.elect(topic, partition, self.rng.choice(live))

    def call(self, node_id: int, api_key: int, version: int, message: Any) -> Any:
        """Raises Lost when the connection ends first, or when nothing comes for long."""
        sent = self.client.send(node_id, api_key, version, message)
        if self.rng.random() < 0.05:
            raise Lost
        for _ in range(1_000):
            if sent in self.client.answers:
                return self.client.answers[sent]
            if self.client.closed:
                self.client.closed.clear()
                break
            self.disturb()
            self.client.run(1)
            self.check()
        raise Lost

    def until(self, answers: frozenset[int], request: Any) -> Any:
        """Repeats `request`, which gives a code, until that is one of `answers`. Raises GaveUp."""
        for _ in range(2_000):
            try:
                code = request()
            except Lost:
                code = 15
            if code in answers:
                return code
            if code not in RETRIABLE:
                raise GaveUp(code)
            self.transactions.forget_coordinators()
            self.client.run(5)
            self.disturb()
        raise AssertionError("no progress")

    def init(self) -> Producer:
        producers: list[Producer] = []

        def request() -> int:
            code, producer = self.transactions.try_init("x")
            producers.append(producer)
            return code

        self.until(frozenset({0}), request)
        return producers[-1]

    def transact(self, number: int) -> None:
        row, transactions = b"%d" % number, self.transactions
        producer = self.init()
        self.told[row] = False
        none = frozenset({0})
        if self.versions == VERSION_1:
            topics = {"t": PARTITIONS}
            self.until(none, lambda: max(transactions.add_partitions("x", producer, topics).values()))
            self.until(none, lambda: transactions.add_offsets("x", producer, "g"))
        for partition in PARTITIONS:
            self.until(none, partial(transactions.produce, "x", producer, "t", partition, values=[row]))
        self.until(none, lambda: transactions.commit_offset("x", producer, "g", "t", number))
        is_commit = self.rng.random() < 0.7
        if is_commit:
            self.told[row] = None
        code = self.until(DEFINITE, lambda: transactions.end("x", producer, is_commit).code)
        if is_commit and code == 0:
            self.told[row] = True

    def visible(self, partition: int) -> list[bytes | None]:
        return values_of(self.client.cluster.read_committed("t", partition))

    def check(self) -> None:
        for partition in PARTITIONS:
            for row in self.visible(partition):
                if row is None or self.told.get(row) is False:
                    self.broken.append(f"{row!r} is visible on {partition}")

    def heal(self) -> None:
        for node_id in self._dead:
            self.client.cluster.restart(node_id)
        self.client.run(200_000)
        self.transactions = transaction_client(self.client, self.versions)

    def judge(self) -> None:
        cluster = self.client.cluster
        self.check()
        rows = [self.visible(partition) for partition in PARTITIONS]
        if rows[0] != rows[1]:
            self.broken.append(f"torn: {rows[0]} and {rows[1]}")
        lost = [row for row, told in self.told.items() if told and row not in rows[0]]
        if lost or len(set(rows[0])) < len(rows[0]):
            self.broken.append(f"{lost} lost of {rows[0]}")
        for partition in PARTITIONS:
            leader = cluster.leader("t", partition)
            assert leader is not None
            if cluster.last_stable_offset("t", partition) != cluster.log_end_offset("t", partition, leader):
                self.broken.append(f"{partition} is open")
        offset = self.transactions.fetch_offsets(["g"], "t")["g"][1]
        if offset != (int(rows[0][-1] or b"") if rows[0] else -1):
            self.broken.append(f"the offset is {offset}, the rows are {rows[0]}")


@pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
@pytest.mark.parametrize("seed", range(5))
def test_transactions_are_visible_whole_or_not_at_all(seed: int, versions: Versions) -> None:
    run = Run(seed, versions)
    gave_up = 0
    for number in range(TRANSACTIONS):
        try:
            run.transact(number)
        except GaveUp:
            gave_up += 1
    run.heal()
    run.judge()
    assert run.broken == []
    assert gave_up < TRANSACTIONS / 2
    # Some were committed: what never was is visible whole by being nowhere.
    assert True in run.told.values()
