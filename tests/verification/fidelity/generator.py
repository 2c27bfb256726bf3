"""Chooses the next step of a trace at random: mostly valid steps of a producer, often invalid ones.

    Notebook: what has been answered so far ──> choose ──> a Step ──> its answer ──> Notebook

Weights are such that the codes that producers live by (sequences, epochs, states of transactions) come often, and that
transactions get somewhere nevertheless. What would be a race on a real broker is kept out: where a transaction may run
out of time, the next step waits for that. And no log is given an epoch that the producer's coordinator has not handed
out: the markers of its transaction would be refused there, for ever, and nobody could wait for its end.

Pure: the same seed and answers give the same steps.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fidelity import steps as s
from fidelity.player import EMPTY, NO_ONE, NOBODY, NOBODY_ELSE, UNKNOWN, Who
from model.clients import PLENTY
from model.read_apis import EARLIEST, LARGEST_TIMESTAMP, LATEST, NO_EPOCH
from model.read_journal import Isolation
from model.settings import API_NAMES, Generation

# Partitions of each slot's first topic.
TOPICS = {0: 2, 1: 1}
TRANSACTIONAL_IDS = GROUPS = (0, 1)
SHORT_TIMEOUT_MS = 1_000
_SEQUENCES = 2**31
_LAST_EPOCH = 2**15 - 1
_KEYS = {name: api_key for api_key, name in API_NAMES.items()}
# From these on, requests are those of transaction version 2.
_VERSION_2: dict[type, int] = {s.Produce: 12, s.EndTxn: 5, s.TxnOffsetCommit: 5}
_REQUIRES_STABLE = _LARGEST_TIMESTAMP = 7
_FIRST_BY_ID = {s.Produce: 13, s.Metadata: 12}
# Older ones know no record batches of version 2, or none of what the steps have.
_LOWEST: dict[type, int] = {s.Produce: 3, s.Metadata: 1, s.OffsetCommit: 5, s.OffsetFetch: 2, s.FindCoordinator: 1}

Place = tuple[int, int, int]
"""Of a partition: slot and generation of its topic, and number."""


class Written(NamedTuple):
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.record_count) % _SEQUENCES


@dataclass
class Notebook:
    """What a client could know. `producers`: by slot of the transactional id all that were handed out, the current one
    last. `added`, `groups`: of the open transaction, as far as its client has reason to believe it is open.
    `generations`: of the topics that are there. `marked`: offsets that went into transactions. `ends`: of the logs,
    as far as they were told. `batches_sent`: taken or not. `is_short`: the
    transaction of that id runs out of time."""

    producers: dict[int, list[Who]] = field(default_factory=lambda: {slot: [] for slot in TRANSACTIONAL_IDS})
    idempotent: list[Who] = field(default_factory=list)
    written: dict[tuple[int, Place], list[Written]] = field(default_factory=dict)
    added: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: {slot: set() for slot in TRANSACTIONAL_IDS})
    groups: dict[int, set[int]] = field(default_factory=lambda: {slot: set() for slot in TRANSACTIONAL_IDS})
    is_open: dict[int, bool] = field(default_factory=lambda: dict.fromkeys(TRANSACTIONAL_IDS, False))
    is_short: dict[int, bool] = field(default_factory=lambda: dict.fromkeys(TRANSACTIONAL_IDS, False))
    partitions: dict[int, int] = field(default_factory=lambda: dict(TOPICS))
    generations: dict[int, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    marked: list[s.TxnOffsetCommit] = field(default_factory=list)
    ends: dict[Place, int] = field(default_factory=dict)
    batches_sent: int = 0
    last: s.Step | None = None

    def note(self, step: s.Step, answer: s.Answer) -> None:
        self.last = step
        self.batches_sent += isinstance(step, s.Produce)
        is_done = answer.codes[:1] == (0,)
        match step:
            case s.InitProducerId(slot=None) if is_done:
                self.idempotent.append(answer.told[0])
            case s.InitProducerId(slot=slot) if slot in self.producers:
                if is_done:
                    self.producers[slot].append(answer.told[0])
                    self.is_short[slot] = step.timeout_ms == SHORT_TIMEOUT_MS
                if answer.codes in {(0,), (51,)}:
                    self._ended(slot)
            case s.EndTxn(slot=slot) if slot in self.producers and is_done:
                self._ended(slot)
                if answer.told[0] not in (None, self.producers[slot][-1]):
                    self.producers[slot].append(answer.told[0])
            case s.TimedOut(slot=slot):
                self._ended(slot)
                self.is_short[slot] = False
            case s.AddPartitionsToTxn(slot=slot) if slot in self.producers and is_done:
                self.is_open[slot] = True
                self.added[slot].update(step.partitions)
            case s.AddOffsetsToTxn(slot=slot) | s.TxnOffsetCommit(slot=slot) if slot in self.producers and is_done:
                self.is_open[slot] = True
                self.groups[slot].add(step.group)
                if isinstance(step, s.TxnOffsetCommit):
                    self.marked.append(step)
            case s.Produce() if is_done:
                self._produced(step)
                self._reached(step.topic, step.partition, answer.told[0] + step.count)
            case s.Fetch():
                for told in answer.told:
                    fetched = step.partitions[told[0]]
                    self._reached(fetched.topic, told[1], told[3])
            case s.TopicDeleted(topic=topic):
                self.partitions[topic] = 0
            case s.TopicMade():
                self.partitions[step.topic] = step.partitions
                self.generations[step.topic] = step.generation

    def _ended(self, slot: int) -> None:
        self.is_open[slot] = False
        self.added[slot].clear()
        self.groups[slot].clear()

    def _produced(self, step: s.Produce) -> None:
        if step.slot in self.producers and step.is_transactional:
            self.is_open[step.slot] = True
            self.added[step.slot].add((step.topic, step.partition))
        written = self.batches(step.who, (step.topic, self.generations[step.topic], step.partition))
        batch = Written(step.who.producer_epoch, step.base_sequence, step.count)
        if step.who.place != NO_ONE and batch not in written:
            written.append(batch)

    def _reached(self, topic: int, partition: int, offset: int) -> None:
        place = (topic, self.generations.get(topic, 0), partition)
        self.ends[place] = max(self.ends.get(place, 1), offset)

    def batches(self, who: Who, place: Place) -> list[Written]:
        return self.written.setdefault((who.place, place), [])

    def next_sequence(self, who: Who, place: Place) -> int:
        written = self.batches(who, place)
        if not written or written[-1].producer_epoch != who.producer_epoch:
            return 0
        return written[-1].next_sequence


@dataclass
class Generator:
    """`protocol`: the transaction version by which most requests are chosen, None for either."""

    rng: random.Random
    broker: Generation
    protocol: int | None
    notebook: Notebook = field(default_factory=Notebook)

    def next_step(self) -> s.Step:
        forced = self._due()
        if forced is not None:
            return forced
        # 0 or 1, as a factor of weights.
        in_txn, of_producers = self._has_transactions, self._range(s.DescribeProducers)[1] >= 0
        choices: list[tuple[Callable[[], s.Step], float]] = [
            (self._produce_in_transaction, 34 * in_txn), (self._produce, 20), (self._init, 6 * in_txn),
            (self._init_anybody, 2), (self._add_partitions, 6 * in_txn),
            (self._add_offsets, 4 * in_txn), (self._commit_in_transaction, 11 * in_txn),
            (self._end, 14 * in_txn), (self._commit_offset, 3), (self._fetch_offsets, 7),
            (self._find_coordinator, 2), (self._metadata, 3), (self._describe, 3 * in_txn),
            (self._describe_producers, 4 * of_producers), (self._change_topic, 1.5),
            (self._fetch, 18), (self._list_offsets, 6), (self._offset_for_leader_epoch, 3),
            (self._delete_records, 2.5 * self.broker.takes_unknown_producers),
        ]  # fmt: skip
        methods, weights = zip(*choices, strict=True)
        chosen: Callable[[], s.Step] = self.rng.choices(methods, weights)[0]
        return chosen()

    @property
    def _has_transactions(self) -> bool:
        """Only where a trace can wait for the end of one. Writes need the same for exactly-once."""
        return self.broker.describes_transactions

    def _due(self) -> s.Step | None:
        """What comes before anything else: the end of what is about to run out of time, topics that were deleted, and
        producers."""
        for slot, is_short in self.notebook.is_short.items():
            if is_short and self.notebook.is_open[slot]:
                return s.TimedOut(slot)
        for topic, partitions in self.notebook.partitions.items():
            if not partitions and self._chance(0.2):
                return s.TopicMade(topic, TOPICS[topic], self.notebook.generations[topic] + 1)
        for slot, producers in self.notebook.producers.items():
            if not producers and self._has_transactions:
                return s.InitProducerId(slot, self._version(s.InitProducerId))
        return None

    # --- chance -------------------------------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _range(self, request: type) -> tuple[int, int]:
        return self.broker.api_versions.get(_KEYS[request.__name__], (0, -1))

    def _version(self, request: type) -> int:
        lowest, highest = self._range(request)
        lowest = max(lowest, _LOWEST.get(request, 0))
        first_of_2 = _VERSION_2.get(request)
        if first_of_2 is not None and first_of_2 <= highest and self.protocol is not None:
            if (self.protocol == 2) != self._chance(0.05):
                lowest = first_of_2
            else:
                highest = first_of_2 - 1
        # The newest is what producers send.
        return highest if self._chance(0.4) else self.rng.randint(lowest, highest)

    def _slot(self) -> int:
        return self.rng.choices([0, 1, UNKNOWN, EMPTY], [60, 36, 2, 2])[0]

    def _group(self) -> int:
        return self.rng.choices([0, 1, EMPTY], [65, 33, 2])[0]

    def _partition(self) -> tuple[int, int]:
        topic = self.rng.choices([0, 1, UNKNOWN], [72, 25, 3])[0]
        if topic == UNKNOWN:
            return topic, 0
        if self._chance(0.03):
            return topic, 9
        return topic, self.rng.randrange(TOPICS[topic])

    def _who(self, slot: int, *, is_written: bool = False) -> Who:
        """Whom a request of a transactional id is said to come from. `is_written`: if taken, it gets into a log."""
        history = self.notebook.producers.get(slot) or [NOBODY]
        current = history[-1]
        kind = self.rng.choices(
            ["current", "before", "earlier", "later", "other id", "nobody else", "idempotent", "nobody"],
            [72, 9, 5, 4, 4, 2, 2, 2],
        )[0]
        others = [producers[-1] for other, producers in self.notebook.producers.items() if other != slot and producers]
        if kind == "before" and len(history) > 1:
            return history[-2]
        if kind == "earlier":
            return self.rng.choice(history)
        # Before Kafka 4.0 leaders did not ask about epochs where the producer had a transaction open.
        is_later_refused = not is_written or self.broker.transaction_version is not None
        if kind == "later" and is_later_refused and current.producer_epoch < _LAST_EPOCH:
            return current._replace(producer_epoch=current.producer_epoch + 1)
        if kind == "other id" and others:
            return self.rng.choice(others)
        if kind == "nobody else":
            return Who(NOBODY_ELSE, 0)
        if kind == "idempotent" and self.notebook.idempotent:
            return self.rng.choice(self.notebook.idempotent)
        return NOBODY if kind == "nobody" else current

    def _sequence(self, who: Who, place: Place) -> tuple[int, int]:
        following = self.notebook.next_sequence(who, place)
        count = self.rng.choice([1, 1, 1, 2, 3])
        if who.place == NO_ONE:
            return -1, count
        kind = self.rng.choices(
            ["next", "last again", "one of five again", "older", "gap", "overlap", "other count", "zero", "wrap"],
            [56, 12, 8, 6, 6, 3, 4, 3, 2],
        )[0]
        written = self.notebook.batches(who, place)
        if kind in ("last again", "one of five again", "older", "overlap", "other count") and written:
            older = written[:-5] or written
            batch = self.rng.choice({"one of five again": written[-5:], "older": older}.get(kind, written[-1:]))
            if kind == "overlap":
                return (batch.next_sequence - 1) % _SEQUENCES, count
            return batch.base_sequence, batch.record_count + (1 if kind == "other count" else 0)
        if kind == "gap":
            return (following + self.rng.randint(1, 3)) % _SEQUENCES, count
        if kind == "wrap":
            return _SEQUENCES - 2, count
        return 0 if kind == "zero" else following, count

    # --- producers ----------------------------------------------------------------------------------------------------

    def _produce_in_transaction(self) -> s.Step:
        slot = self._slot()
        who = self._who(slot, is_written=True)
        version = self._version(s.Produce)
        topic, partition = self._partition()
        added = self.notebook.added.get(slot, set())
        if version < _VERSION_2[s.Produce] and (topic, partition) not in added and self._chance(0.75):
            if added and self._chance(0.5):
                topic, partition = self.rng.choice(sorted(added))
            else:
                version_of_add = self._version(s.AddPartitionsToTxn)
                return s.AddPartitionsToTxn(slot, who, ((topic, partition),), version_of_add)
        without_id = None if self._chance(0.03) else slot
        is_handed_out = who in self.notebook.producers.get(slot, ())
        is_transactional = not (is_handed_out and self._chance(0.07))
        return self._batch(without_id, who, topic, partition, version, is_transactional)

    def _produce(self) -> s.Step:
        """Without a transaction."""
        if not self.notebook.idempotent:
            return s.InitProducerId(None, self._version(s.InitProducerId))
        who = self.rng.choice(self.notebook.idempotent)
        if self._chance(0.08):
            who = who._replace(producer_epoch=who.producer_epoch + 1)
        elif self._chance(0.08):
            who = self.rng.choice([NOBODY, Who(NOBODY_ELSE, 0), *self.notebook.producers[0][-1:]])
        else:
            # The epoch that the partition has seen last is the one that goes on.
            seen = [batches for (place, _), batches in self.notebook.written.items() if place == who.place and batches]
            if seen and self._chance(0.7):
                who = who._replace(producer_epoch=max(batches[-1].producer_epoch for batches in seen))
        topic, partition = self._partition()
        slot = self._slot() if self._chance(0.04) else None
        is_transactional = self._has_transactions and self._chance(0.03)
        return self._batch(slot, who, topic, partition, self._version(s.Produce), is_transactional)

    def _batch(
        self, slot: int | None, who: Who, topic: int, partition: int, version: int, is_transactional: bool
    ) -> s.Produce:
        generation = self.notebook.generations.get(topic, 0)
        base_sequence, count = self._sequence(who, (topic, generation, partition))
        flaw = self.rng.choices(["none", "too large", "damaged", "control", "acks"], [92, 3, 2, 1, 2])[0]
        return s.Produce(
            slot, who, topic, max(0, generation - self._chance(0.1)), partition, base_sequence, version, count,
            is_transactional, acks=self.rng.choice([2, -2]) if flaw == "acks" else 1 if self._chance(0.1) else -1,
            is_too_large=flaw == "too large", is_damaged=flaw == "damaged", is_control=flaw == "control",
            value_bytes=self.rng.choice([1, 1, 60, 120]),
        )  # fmt: skip

    def _init(self) -> s.Step:
        slot = self._slot()
        version = self._version(s.InitProducerId)
        timeout_ms = self.rng.choices([60_000, SHORT_TIMEOUT_MS, 0, -1, 900_001], [88, 3, 3, 2, 4])[0]
        expected = NOBODY
        if version >= 3 and self._chance(0.45):
            expected = self._who(slot)
            if self._chance(0.1):
                expected = self.rng.choice([expected._replace(producer_epoch=-1), Who(NO_ONE, 0)])
        return s.InitProducerId(slot, version, timeout_ms, expected)

    def _init_anybody(self) -> s.Step:
        version = self._version(s.InitProducerId)
        expected = self._who(0) if version >= 3 and self._chance(0.2) else NOBODY
        return s.InitProducerId(None, version, expected=expected)

    # --- transactions -------------------------------------------------------------------------------------------------

    def _add_partitions(self) -> s.Step:
        slot = self._slot()
        partitions = tuple(sorted({self._partition() for _ in range(self.rng.choice([1, 1, 2, 3]))}))
        return s.AddPartitionsToTxn(slot, self._who(slot), partitions, self._version(s.AddPartitionsToTxn))

    def _add_offsets(self) -> s.Step:
        slot = self._slot()
        return s.AddOffsetsToTxn(slot, self._who(slot), self._group(), self._version(s.AddOffsetsToTxn))

    def _commit_in_transaction(self) -> s.Step:
        slot, version = self._slot(), self._version(s.TxnOffsetCommit)
        who, group = self._who(slot, is_written=True), self._group()
        added = sorted(self.notebook.groups.get(slot, ()))
        if version < _VERSION_2[s.TxnOffsetCommit] and not added and self._chance(0.6):
            return s.AddOffsetsToTxn(slot, who, group, self._version(s.AddOffsetsToTxn))
        if added and self._chance(0.8):
            group = self.rng.choice(added)
        generation_id, member_id = self._member(version >= 3)
        topic, partition = self._partition()
        return s.TxnOffsetCommit(
            slot, who, group, topic, partition, self.rng.randrange(100), version,
            self._metadata_length(), generation_id, member_id,
        )  # fmt: skip

    def _member(self, is_told: bool) -> tuple[int, str]:
        # The model has the rules for members as of Kafka 3.9. No write names a member.
        if not is_told or not self.broker.verifies_transactions or self._chance(0.88):
            return -1, ""
        return self.rng.choice([(3, "m"), (-1, "m"), (0, ""), (3, "")])

    def _metadata_length(self) -> int | None:
        return self.rng.choices([0, None, 10, 4_096, 4_097], [60, 15, 15, 4, 6])[0]

    def _end(self) -> s.Step:
        slot = self._slot()
        last = self.notebook.last
        if isinstance(last, s.EndTxn) and last.slot in self.notebook.producers and self._chance(0.6):
            # The same again, or the opposite, by the ids of then.
            return s.EndTxn(last.slot, last.who, last.is_commit != self._chance(0.3), self._version(s.EndTxn))
        return s.EndTxn(slot, self._who(slot), self._chance(0.6), self._version(s.EndTxn))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _commit_offset(self) -> s.Step:
        generation_id, member_id = self._member(True)
        topic, partition = self._partition()
        # The group without a name may have offsets as well, but is one for all traces.
        return s.OffsetCommit(
            self.rng.choice(GROUPS), topic, partition, self.rng.randrange(100), self._version(s.OffsetCommit),
            self._metadata_length(), generation_id, member_id,
        )  # fmt: skip

    def _fetch_offsets(self) -> s.Step:
        topic, partition = self._partition()
        group = self._group()
        if self.notebook.marked and self._chance(0.6):
            marked = self.notebook.marked[-1]
            group, topic, partition = marked.group, marked.topic, marked.partition
        asked = None if self._chance(0.2) else topic
        require_stable, version = self._chance(0.7), self._version(s.OffsetFetch)
        if require_stable and self._range(s.OffsetFetch)[1] >= _REQUIRES_STABLE:
            version = max(version, _REQUIRES_STABLE)
        return s.OffsetFetch(group, asked, partition, require_stable, version)

    def _find_coordinator(self) -> s.Step:
        # Kafka 2.1 closes the connection of a client that asks for another kind. No write does.
        unknown = 10 if self.broker.names_its_versions else 0
        key_type = self.rng.choices([0, 1, 7], [45, 45, unknown])[0]
        return s.FindCoordinator(key_type, self._slot(), self._version(s.FindCoordinator))

    def _metadata(self) -> s.Step:
        topic = self.rng.choice([*TOPICS, UNKNOWN])
        version = self._version(s.Metadata)
        by_id = version >= _FIRST_BY_ID[s.Metadata] and self._chance(0.5)
        generation = max(0, self.notebook.generations.get(topic, 0) - self._chance(0.3)) if by_id else None
        return s.Metadata(topic, generation, version)

    def _describe(self) -> s.Step:
        return s.DescribeTransactions(self._slot())

    def _describe_producers(self) -> s.Step:
        return s.DescribeProducers(*self._partition())

    # --- readers ------------------------------------------------------------------------------------------------------

    def _fetch(self) -> s.Step:
        version = self._version(s.Fetch)
        count = self.rng.choice([1, 1, 1, 2, 3])
        chosen = {self._partition() for _ in range(count)}
        partitions = tuple(
            self._fetched(topic, partition) for topic, partition in self.rng.sample(sorted(chosen), len(chosen))
        )
        return s.Fetch(partitions, self._isolation(), version, self._limit())

    def _fetched(self, topic: int, partition: int) -> s.FetchedPartition:
        generation = self.notebook.generations.get(topic, 0)
        return s.FetchedPartition(
            topic, max(0, generation - self._chance(0.05)), partition, self._offset(topic, partition), self._limit(),
            self._current_leader_epoch(), self.rng.choices([NO_EPOCH, 0, 1], [80, 17, 3])[0],
        )  # fmt: skip

    def _limit(self) -> int:
        return self.rng.choices([PLENTY, 0, self.rng.randrange(1_000)], [60, 3, 37])[0]

    def _offset(self, topic: int, partition: int) -> int:
        end = self.notebook.ends.get((topic, self.notebook.generations.get(topic, 0), partition), 1)
        kind = self.rng.choices(["inside", "begin", "end", "beyond", "before"], [60, 10, 17, 10, 3])[0]
        if kind == "beyond":
            return end + self.rng.randint(1, 3)
        return {"inside": self.rng.randrange(end), "begin": 0, "end": end, "before": -1}[kind]

    def _isolation(self) -> Isolation:
        return self.rng.choices([Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED], [65, 35])[0]

    def _current_leader_epoch(self) -> int:
        """No leader of a trace ever changes."""
        return self.rng.choices([NO_EPOCH, 0, 1], [60, 31, 9])[0]

    def _list_offsets(self) -> s.Step:
        topic, partition = self._partition()
        version = self._version(s.ListOffsets)
        kind = self.rng.choices(["latest", "earliest", "largest", "1970", "of a batch"], [30, 20, 12, 5, 33])[0]
        timestamp = {"latest": LATEST, "earliest": EARLIEST, "largest": LARGEST_TIMESTAMP}.get(kind, 0)
        if kind == "largest" and version < _LARGEST_TIMESTAMP:
            timestamp = LATEST
        number = None
        if kind == "of a batch" and self.notebook.batches_sent:
            number, timestamp = self.rng.randrange(self.notebook.batches_sent), self.rng.choice([-1, 0, 0, 1])
        return s.ListOffsets(
            topic, partition, timestamp, number, self._isolation(), version, self._current_leader_epoch()
        )  # fmt: skip

    def _offset_for_leader_epoch(self) -> s.Step:
        leader_epoch = self.rng.choices([0, 1, NO_EPOCH], [75, 20, 5])[0]
        version = self._version(s.OffsetForLeaderEpoch)
        return s.OffsetForLeaderEpoch(*self._partition(), leader_epoch, version, self._current_leader_epoch())

    def _delete_records(self) -> s.Step:
        topic, partition = self._partition()
        offset = self._offset(topic, partition)
        return s.DeleteRecords(topic, partition, offset, self._version(s.DeleteRecords))

    def _change_topic(self) -> s.Step:
        there = [topic for topic, partitions in self.notebook.partitions.items() if partitions]
        return s.TopicDeleted(self.rng.choice(there)) if there else self._metadata()
