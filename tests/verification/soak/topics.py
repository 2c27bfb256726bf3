"""From topic to topic: who writes the topic that is read, and what must be in the topic that is written.

A record of the written topic names where it comes from: its value is `<partition>:<offset>:<VALUE>`. The transformation
leaves out records whose value ends with DROPPED. Each record must be there once, and in order.
"""

import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from confluent_kafka import KafkaException, Producer

from read_back import Placed

VALUE = "concat(partition, ':', offset, ':', upper(CAST(value AS STRING)))"
DROPPED = "7"
WHERE = f"NOT endswith(CAST(value AS STRING), '{DROPPED}')"

# Partition and offset in the topic that is read.
Origin = tuple[int, int]
# Key and value of the record in the topic that is written.
Transformed = tuple[bytes | None, bytes]
TRANSACTIONAL_ID = "topic-writer"
KEYS = 40
MOST_RECORDS = 60
ABORTED_OF_A_HUNDRED = 20
PAUSE_S = 0.25
CALL_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Differences:
    expected: int
    found: int
    lost: int
    doubled: int
    # Never in the topic that is read, aborted there, or another function of it.
    wrong: int
    # Pairs of neighbours: behind a record that comes from a later offset of the same partition.
    out_of_order: int

    @property
    def none(self) -> bool:
        return self.expected == self.found and not (self.lost or self.doubled or self.wrong or self.out_of_order)


def transformed(read: Iterable[Placed]) -> dict[Origin, Transformed]:
    return {
        (partition, offset): (record.key, b"%d:%d:%s" % (partition, offset, (record.value or b"").upper()))
        for partition, offset, record in read
        if not (record.value or b"").endswith(DROPPED.encode())
    }


def compared(expected: dict[Origin, Transformed], written: Iterable[Placed]) -> Differences:
    """`written`: the records of each partition in their order.

    Records that come from one partition and are in one partition keep their order: a task reads a partition of Kafka,
    and micro-batches become visible one after another."""
    seen: set[Origin] = set()
    last: dict[tuple[int, int], int] = {}
    found = doubled = wrong = out_of_order = 0
    for partition, _, record in written:
        found += 1
        origin = origin_of(record.value or b"")
        if origin is None or expected.get(origin) != (record.key, record.value):
            wrong += 1
        elif origin in seen:
            doubled += 1
        else:
            seen.add(origin)
            source, offset = origin
            out_of_order += offset < last.get((source, partition), -1)
            last[source, partition] = offset
    lost = len(expected.keys() - seen)
    return Differences(len(expected), found, lost, doubled, wrong, out_of_order)


def origin_of(value: bytes) -> Origin | None:
    partition, _, rest = value.partition(b":")
    offset, _, _ = rest.partition(b":")
    return (int(partition), int(offset)) if partition.isdigit() and offset.isdigit() else None


@dataclass(slots=True)
class TopicWriter:
    """Writes transactions into a topic until it is stopped, by a client that is not ours, and aborts some. Each key
    counts its records: 0, 1, 2, ... What is in the topic is told by who reads it: the outcome of a commit that fails is
    open."""

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
