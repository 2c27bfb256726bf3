"""Scenarios with transactions of every kind, for the model and for real brokers.

What brokers make up (producer ids) is told by the order in which it was seen: 0 is the first, 1 the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model.internal_topics import java_hash
from model.transaction_client import COMES_TO_PASS, GROUP, NOBODY, VERSION_2, Ended, Producer, TransactionClient

TIMEOUT_MS = 1_000


@dataclass
class Trace:
    """One scenario: `x` is its transactional id, `topic` has two partitions. `steps` collects what was answered.
    `time_out` waits until a transaction that was begun TIMEOUT_MS ago is surely gone; `spend_epochs` initialises the
    producer until one epoch is left."""

    client: TransactionClient
    x: str
    topic: str
    time_out: Callable[[], None]
    spend_epochs: Callable[[], None]
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
        ended = self.client.end_surely(self.x, producer, is_commit)
        self.told("commit" if is_commit else "abort", ended)
        return following(ended, producer)

    def mark(self, producer: Producer, offset: int, **fields: Any) -> None:
        """An offset of the group that has the id's name."""
        self.told("mark", self.client.mark(self.x, producer, self.x, self.topic, offset, **fields))

    def fetch(self, topic: str | None = "", **fields: Any) -> None:
        self.settle()
        wanted = self.topic if topic == "" else topic
        self.told("fetch", self.client.fetch_offsets([self.x], wanted, **fields)[self.x])

    def settle(self) -> None:
        """Until the coordinator has completed what was ended."""
        while self.client.describe(self.x).state.startswith("Prepare"):
            self.client.pause()

    def describe(self) -> None:
        """Without the time."""
        self.settle()
        described = self.client.describe(self.x)
        self.told("describe", (*described[:-1], described.start_ms >= 0))

    def open_producers(self, partition: int = 0) -> None:
        code, producers = self.client.open_producers(self.topic, partition)
        self.told("open", (code, *producers.items()))

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


def ends(*commits: bool) -> Callable[[Trace], None]:
    """Of one transaction, one after the other."""

    def scenario(trace: Trace) -> None:
        producer = begun(trace)
        for is_commit in commits:
            trace.end(producer, is_commit)

    return scenario


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
    trace.told("another id", trace.client.end_surely(trace.x + "-unknown", producer, True))
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
    trace.try_init("in a transaction", expected=third)
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


# --- offsets ----------------------------------------------------------------------------------------------------------


def offset_of_a_commit(trace: Trace) -> None:
    producer = trace.init()
    trace.mark(producer, 5, metadata="five")
    trace.fetch()
    trace.fetch(require_stable=False)
    trace.fetch(None)
    producer = trace.commit(producer)
    trace.fetch()
    trace.mark(producer, 6, metadata=None)
    trace.fetch()
    trace.fetch(require_stable=False)
    trace.fetch(None, require_stable=False)
    trace.commit(producer)
    trace.fetch()
    trace.fetch(None)
    trace.fetch(partition=1)
    trace.fetch(trace.topic + "-unknown")


def offset_of_an_abort(trace: Trace) -> None:
    producer = trace.init()
    trace.mark(producer, 5)
    trace.write(producer)
    trace.abort(producer)
    trace.fetch()


def offsets_of_two_transactions(trace: Trace) -> None:
    """The offset written last wins, in whichever order the transactions are committed."""
    for number, is_reversed in enumerate((False, True)):
        group = f"{trace.x}-{number}"
        ids = [f"{trace.x}-{number}-{place}" for place in range(2)]
        producers = [trace.client.init(each) for each in ids]
        for place, (each, producer) in enumerate(zip(ids, producers, strict=True)):
            trace.told("mark", trace.client.mark(each, producer, group, trace.topic, 10 + place))
        for place in reversed(range(2)) if is_reversed else range(2):
            trace.told("commit", trace.client.end_surely(ids[place], producers[place], True).code)
            while trace.client.describe(ids[place]).state.startswith("Prepare"):
                trace.client.pause()
            trace.told("fetch", trace.client.fetch_offsets([group], trace.topic)[group])


def offsets_that_are_refused(trace: Trace) -> None:
    producer = trace.init()
    trace.told("unknown topic", trace.client.mark(trace.x, producer, trace.x, trace.topic + "-unknown", 1))
    trace.mark(producer, 1, generation=3, member_id="m")
    trace.mark(producer, 1, metadata="x" * 4_097)
    trace.mark(producer, 1, member_id="m")
    trace.fetch()
    following = trace.commit(producer)
    trace.fetch()
    trace.mark(following, 2, metadata="x" * 4_096)
    trace.mark(following, 3, generation=3, member_id="m")
    trace.mark(following, 3, member_id="m")
    trace.told("no group", trace.client.commit_offset(trace.x, following, "", trace.topic, 1))
    trace.commit(following)
    trace.fetch()


def offset_of_a_zombie(trace: Trace) -> None:
    old = trace.init()
    trace.mark(old, 1)
    new = trace.init()
    for ids in (old, Producer(old.producer_id + 10**6, 0)):
        trace.told("late mark", trace.client.commit_offset(trace.x, ids, trace.x, trace.topic, 2))
        trace.told("late add", trace.client.add_offsets(trace.x, ids, trace.x))
    trace.fetch()
    trace.mark(new, 3)
    trace.commit(new)
    trace.fetch()


def offset_without_its_group_in_the_transaction(trace: Trace) -> None:
    producer = trace.init()
    trace.client.coordinator(trace.x, GROUP)
    # Of a group whose coordinator is surely there.
    trace.mark(producer, 1)
    producer = trace.abort(producer)
    trace.settle()
    for version in (3, 4):
        code = trace.client.commit_offset(trace.x, producer, trace.x, trace.topic, 1, version=version)
        trace.told(f"version {version}", code)
    trace.abort(producer)


def offsets_outside_of_transactions(trace: Trace) -> None:
    commit = trace.client.commit_offset_outside
    trace.told("commit", commit(trace.x, trace.topic, 7, metadata="seven"))
    trace.fetch()
    trace.told("too large", commit(trace.x, trace.topic, 8, metadata="x" * 4_097))
    trace.told("unknown topic", commit(trace.x, trace.topic + "-unknown", 8))
    trace.told("member", commit(trace.x, trace.topic, 8, generation=3, member_id="m"))
    trace.told("member of nothing", commit(trace.x + "-unknown", trace.topic, 8, generation=3, member_id="m"))
    trace.told("and in version 9", commit(trace.x + "-unknown", trace.topic, 8, generation=3, member_id="m", version=9))
    trace.told("no group", commit("", trace.topic, 8))
    trace.fetch()
    producer = trace.init()
    trace.mark(producer, 9)
    trace.told("commit", commit(trace.x, trace.topic, 10))
    trace.fetch()
    trace.fetch(require_stable=False)
    trace.commit(producer)
    trace.fetch()


def offsets_of_several_groups(trace: Trace) -> None:
    # Names that one partition of four keeps together.
    groups = sorted((f"{trace.x}-{number}" for number in range(40)), key=lambda group: java_hash(group) % 4)[:3]
    for number, group in enumerate(groups[:2]):
        trace.told("commit", trace.client.commit_offset_outside(group, trace.topic, number))
    for version in (8, 9):
        for topic in (trace.topic, None):
            fetched = trace.client.fetch_offsets(groups, topic, version=version)
            trace.told("fetch", tuple(fetched.items()))


def groups_that_are_deleted(trace: Trace) -> None:
    delete, commit = trace.client.delete_groups, trace.client.commit_offset_outside
    trace.told("unknown", delete([trace.x]))
    for version in (0, 1, 2):
        trace.told("commit", commit(trace.x, trace.topic, 7, metadata="seven"))
        trace.told("commit beside", commit(trace.x, trace.topic, 8, partition=1))
        trace.told("delete", delete([trace.x], version=version))
        trace.told("again", delete([trace.x], version=version))
        trace.fetch()
        trace.fetch(topic=None)
    trace.told("member of nothing", commit(trace.x, trace.topic, 8, generation=3, member_id="m", version=9))


def group_of_a_transaction_that_is_deleted(trace: Trace) -> None:
    for is_commit in (True, False):
        producer = trace.init()
        trace.mark(producer, 5, metadata="five")
        trace.told("delete", trace.client.delete_groups([trace.x]))
        trace.fetch()
        trace.fetch(require_stable=False)
        trace.end(producer, is_commit)
        trace.fetch()
        trace.told("delete", trace.client.delete_groups([trace.x]))
    producer = trace.init()
    trace.mark(producer, 6)
    trace.commit(producer)
    trace.settle()
    producer = trace.init()
    trace.mark(producer, 7, partition=1)
    trace.told("with one pending beside", trace.client.delete_groups([trace.x]))
    trace.commit(producer)
    trace.fetch(topic=None)


# --- operators --------------------------------------------------------------------------------------------------------


def described(trace: Trace) -> None:
    trace.told("unknown", trace.client.describe(trace.x)[:-1])
    producer = trace.init(timeout_ms=4_711)
    trace.describe()
    trace.write(producer, 1)
    trace.mark(producer, 1)
    trace.describe()
    producer = trace.commit(producer)
    trace.describe()
    trace.write(producer, 0, base_sequence=0)
    trace.abort(producer)
    trace.describe()


def listed(trace: Trace) -> None:
    ids = [f"{trace.x}-{number}" for number in range(3)]
    version = 2 if trace.is_version_2 else 1
    producers = [trace.client.init(each) for each in ids]
    for number in (0, 1):
        trace.told("write", trace.client.write(ids[number], producers[number], trace.topic))
    trace.told("commit", trace.client.end_surely(ids[1], producers[1], True).code)
    while trace.client.describe(ids[1]).state.startswith("Prepare"):
        trace.client.pause()
    filters: list[dict[str, Any]] = [
        {}, {"state_filters": ("Ongoing",)}, {"state_filters": ("Ongoing", "Empty", "Nonsense")},
        {"state_filters": ("Nonsense",)}, {"producer_id_filters": (producers[2].producer_id,)},
        {"duration_filter": 10**6}, {"duration_filter": -1},
    ]  # fmt: skip
    if version == 2:
        patterns = ("", trace.x + ".*", trace.x + "-[01]", trace.x, ".*", "(")
        filters += [{"transactional_id_pattern": pattern} for pattern in patterns]
    node_id = trace.client.coordinator(ids[0])
    for fields in filters:
        code, states, unknown = trace.client.list(node_id, version=version, **fields)
        ours = tuple((name, state) for name, state in sorted(states.items()) if name in ids)
        trace.told("list", (code, ours, unknown))


def open_and_ended_by_an_operator(trace: Trace) -> None:
    older = trace.init()
    producer = trace.init()
    trace.open_producers()
    trace.write(producer)
    trace.open_producers()
    trace.told("unknown", trace.client.open_producers(trace.topic + "-unknown")[0])
    trace.told("older epoch", trace.client.write_marker(older, True, trace.topic))
    trace.told("unknown", trace.client.write_marker(producer, True, trace.topic + "-unknown"))
    trace.told("marker", trace.client.write_marker(producer, True, trace.topic))
    trace.open_producers()
    trace.told("again", trace.client.write_marker(producer, False, trace.topic))
    trace.told("older coordinator", trace.client.write_marker(producer, False, trace.topic, coordinator_epoch=-1))
    trace.describe()
    trace.write(producer, base_sequence=1)
    trace.open_producers()
    if trace.is_version_2:
        later = Producer(producer.producer_id, 2)
        trace.told("same epoch", trace.client.write_marker(producer, True, trace.topic, version=2))
        trace.told("next epoch", trace.client.write_marker(later, True, trace.topic, version=2))
        trace.open_producers()
    trace.commit(producer)
    trace.settle()
    trace.open_producers()


def spent_epoch(trace: Trace) -> None:
    trace.init()
    trace.spend_epochs()
    last = trace.init()
    trace.write(last)
    following = trace.commit(last)
    trace.describe()
    trace.commit(last)
    trace.abort(last)
    if not trace.is_version_2:
        following = trace.init()
    trace.try_init("known", expected=last)
    trace.write(following)
    trace.commit(following)
    trace.try_init("known, later", expected=last)
    trace.init()


def spent_epoch_of_a_zombie(trace: Trace) -> None:
    trace.init()
    trace.spend_epochs()
    last = begun(trace)
    following = trace.init()
    trace.produce(last, base_sequence=1)
    trace.commit(last)
    trace.write(following)
    trace.commit(following)
    trace.describe()


# Those that initialise 32,765 producers.
LONG_SCENARIOS: Mapping[str, Callable[[Trace], None]] = {
    scenario.__name__: scenario for scenario in (spent_epoch, spent_epoch_of_a_zombie)
}
SCENARIOS: Mapping[str, Callable[[Trace], None]] = {
    "commit_commit": ends(True, True), "commit_abort": ends(True, False), "abort_abort": ends(False, False),
    "abort_commit": ends(False, True),
} | {
    scenario.__name__: scenario
    for scenario in (
        commit_of_nothing, abort_of_nothing,
        commit_and_abort_of_nothing_after_a_transaction, commit_init_and_the_old_commit,
        late_commit_in_the_next_transaction, late_abort_in_the_next_transaction, commit_after_the_timeout,
        end_of_somebody_else, zombie, producer_that_says_who_it_is, producer_that_says_who_it_is_after_an_end,
        bad_inits, partition_not_added, bad_partitions, outside_of_the_transaction, sequences,
        offset_of_a_commit, offset_of_an_abort, offsets_of_two_transactions, offsets_that_are_refused,
        offset_of_a_zombie, offset_without_its_group_in_the_transaction, offsets_outside_of_transactions,
        offsets_of_several_groups, groups_that_are_deleted, group_of_a_transaction_that_is_deleted, described, listed,
        open_and_ended_by_an_operator,
    )
}  # fmt: skip
