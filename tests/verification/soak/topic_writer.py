"""Writes transactions into a topic until it is stopped, by a client that is not ours. Some are aborted."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from itertools import count

from confluent_kafka import KafkaException, Producer

TRANSACTIONAL_ID = "topic-writer"
KEYS = 40
MOST_RECORDS = 60
ABORTED_OF_A_HUNDRED = 20
PAUSE_S = 0.25
CALL_TIMEOUT_S = 20


@dataclass(slots=True)
class TopicWriter:
    """Each key counts its records: 0, 1, 2, ... A transaction that is aborted or fails leaves a gap.

    What is in the topic is told by who reads it: the outcome of a commit that fails is open.
    """

    bootstrap_servers: str
    topic: str
    seed: int
    committed: int = 0
    aborted: int = 0
    failed: int = 0
    _is_stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="topic writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when no transaction is open. Brokers must be up."""
        self._is_stopped.set()
        self._thread.join()
        self._producer()

    def _run(self) -> None:
        rng = random.Random(self.seed)
        numbers = {f"key-{key}": count() for key in range(KEYS)}
        producer = self._producer()
        while not self._is_stopped.wait(rng.uniform(0, 2 * PAUSE_S)):
            records = [(key, next(numbers[key])) for key in rng.choices(list(numbers), k=rng.randint(1, MOST_RECORDS))]
            is_aborted = rng.randrange(100) < ABORTED_OF_A_HUNDRED
            try:
                self._transaction(producer, records, is_aborted=is_aborted)
            except KafkaException:
                self.failed += 1
                producer = self._producer()

    def _transaction(self, producer: Producer, records: list[tuple[str, int]], *, is_aborted: bool) -> None:
        producer.begin_transaction()
        for key, number in records:
            producer.produce(self.topic, key=key, value=f"{key}:{number}")
        # The records of a transaction that is aborted are in the log, too.
        producer.flush(CALL_TIMEOUT_S)
        if is_aborted:
            producer.abort_transaction(CALL_TIMEOUT_S)
            self.aborted += 1
        else:
            producer.commit_transaction(CALL_TIMEOUT_S)
            self.committed += 1

    def _producer(self) -> Producer:
        """Return a new producer. It aborts what the one before has left open."""
        while True:
            producer = Producer({
                "bootstrap.servers": self.bootstrap_servers, "transactional.id": TRANSACTIONAL_ID,
                # It notices partitions that are added.
                "topic.metadata.refresh.interval.ms": 5_000,
                "log_level": 0,
            })  # fmt: skip
            try:
                producer.init_transactions(CALL_TIMEOUT_S)
            except KafkaException:
                continue
            return producer
