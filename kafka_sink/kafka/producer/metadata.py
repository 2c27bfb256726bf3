"""Which topics exist, how many partitions they have and who leads them, as immutable snapshots.

A snapshot is swapped whole (Kafka's copy-on-write MetadataCache), so a writer thread reads one without a lock and a
write sees one consistent state. `Metadata` decides when the next request is due: at once when a topic is missing or a
leader was wrong, after `metadata.max.age.ms` otherwise, never sooner than the backoff allows.

A topic that no writer has used and no batch was pending for during five minutes is forgotten (KIP-526): a write with a
topic in each row would otherwise ask for all it ever saw, for ever. Its sequences live elsewhere and outlast that.

Source: Kafka's clients/Metadata.java, clients/MetadataSnapshot.java, producer/internals/ProducerMetadata.java; leader
epochs: KIP-320; pauses between equal answers: KIP-580.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kafka_sink.kafka.backoff import backoff_ms
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    TopicMetadata,
)

NO_LEADER = -1
NO_EPOCH = -1
NO_ERROR = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
# Java's default of metadata.max.idle.ms.
MAX_IDLE_MS = 300_000
# A topic that was just created is known to every broker within a second; a broker that starts may lag for longer.
ABSENT_PATIENCE_MS = 5_000


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic. `leaders[p]` is the node id that leads partition p, or NO_LEADER."""

    name: str
    topic_id: uuid.UUID | None
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    @property
    def available(self) -> tuple[int, ...]:
        """Partitions that have a leader now."""
        return tuple(partition for partition, leader in enumerate(self.leaders) if leader != NO_LEADER)


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """What one answer (and the ones before, for what it left out) said of the cluster.

    `errors` holds the error code of each topic asked for and not found in `topics`.
    """

    version: int = 0
    brokers: tuple[Broker, ...] = ()
    topics: Mapping[str, TopicSnapshot] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the partition's leader, or NO_LEADER, also for what is not known."""
        found = self.topics.get(topic)
        if found is None or partition >= found.partition_count:
            return NO_LEADER
        return found.leaders[partition]


class Metadata:
    """The current snapshot and when to ask for the next one. One lock guards it together with the accumulator."""

    def __init__(
        self,
        *,
        max_age_ms: int,
        max_idle_ms: int,
        backoff_initial_ms: int,
        backoff_max_ms: int,
        rng: random.Random,
    ) -> None:
        """`max_idle_ms` must not be shorter than a writer waits for a topic that it wants."""
        self.snapshot = MetadataSnapshot()
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._backoff = (backoff_initial_ms, backoff_max_ms)
        self._rng = rng
        self._wanted: set[str] = set()
        # Topics that exist, or did: somebody deleted them.
        self._ever_seen: set[str] = set()
        # Of all topics that are wanted or known.
        self._used_ms: dict[str, int] = {}
        self._update_requested = False
        # The topics of the request that is under way; None when none is.
        self._asking_for: frozenset[str] | None = None
        # Requests are numbered from 1; `answered` is the number of the last one that was answered.
        self._request_number = 0
        self.answered = 0
        # Of each topic on its own: an answer speaks of the topics that it was asked for.
        self._fresh_until_ms: dict[str, int] = {}
        # Since when every answer has said that there is no such topic.
        self._absent_since_ms: dict[str, int] = {}
        self._not_before_ms = 0
        self._attempts_without_success = 0

    def want(self, topics: Collection[str], now_ms: int) -> int:
        """A writer uses `topics`: from now on every request asks for them too, until they have been idle.

        Returns the number that `answered` must reach for all of them to be known and not older than `max.age`, or
        denied: 0 if they are; else they are asked for, at once if one of them is new, or when the backoff allows.
        """
        is_new = not self._wanted.issuperset(topics)
        self._wanted.update(topics)
        self._used_ms.update(dict.fromkeys(topics, now_ms))
        if all(now_ms < self._fresh_until_ms.get(topic, 0) for topic in topics):
            return 0
        if self._asking_for is not None and self._asking_for.issuperset(topics):
            return self._request_number
        if is_new:
            # The pause is for questions that were asked before.
            self._not_before_ms = now_ms
            self._attempts_without_success = 0
        return self._request_number + 1

    def want_nothing(self) -> None:
        """The write is over: an idle producer asks for nothing, and so cannot bring a deleted topic back to life."""
        self._wanted.clear()
        self._absent_since_ms.clear()
        self._update_requested = False

    def patience_ends_ms(self, topics: Collection[str]) -> int | None:
        """When waiting for `topics` makes no sense any more, as the cluster has said for ABSENT_PATIENCE_MS that one of
        them does not exist. None while it does not say so: a topic that is being created has another error."""
        absent_since_ms = [self._absent_since_ms[topic] for topic in topics if topic in self._absent_since_ms]
        return min(absent_since_ms) + ABSENT_PATIENCE_MS if absent_since_ms else None

    def request_update(self) -> int:
        """A leader was wrong or missing, or a topic may have grown: ask again as soon as the backoff allows.

        Returns the number that `answered` must reach for the answer to be one to a question asked after this call: one
        that is under way already may be answered with what was true before.
        """
        self._update_requested = True
        return self._request_number + 1

    def next_request_delay_ms(self, now_ms: int) -> int | None:
        """Milliseconds until a request is due (0: now); None while one is under way or nothing is wanted."""
        if self._asking_for is not None or not self._wanted:
            return None
        oldest_ms = min(self._fresh_until_ms.get(topic, 0) for topic in self._wanted)
        due_ms = self._not_before_ms if self._update_requested else max(oldest_ms, self._not_before_ms)
        return max(0, due_ms - now_ms)

    def request(self, pending: Collection[str], now_ms: int) -> MetadataRequest:
        """The request that is due. `pending`: the topics of all batches that are not answered for; they are in use.

        Brokers that are set to may create a topic, as for Java's producer, unless it was there before: then somebody
        deleted it.
        """
        self._wanted.update(pending)
        self._used_ms.update(dict.fromkeys(pending, now_ms))
        self._forget_idle(now_ms)
        if not self._update_requested:
            # It is due by age alone, and likely to have the same answer: no reason to be slow when a leader then fails.
            self._attempts_without_success = 0
        self._asking_for = frozenset(self._wanted)
        self._update_requested = False
        self._request_number += 1
        never_seen = not self._wanted <= self._ever_seen
        return MetadataRequest(topics=tuple(sorted(self._wanted)), allow_auto_topic_creation=never_seen)

    def _forget_idle(self, now_ms: int) -> None:
        idle = {topic for topic, used_ms in self._used_ms.items() if now_ms - used_ms >= self._max_idle_ms}
        if not idle:
            return
        self._wanted -= idle
        for topic in idle:
            del self._used_ms[topic]
            self._fresh_until_ms.pop(topic, None)
        old = self.snapshot
        self.snapshot = replace(
            old,
            version=old.version + 1,
            topics=MappingProxyType({name: topic for name, topic in old.topics.items() if name not in idle}),
            errors=MappingProxyType({name: code for name, code in old.errors.items() if name not in idle}),
        )

    def failed(self, now_ms: int) -> None:
        """The request came back without an answer."""
        self._asking_for = None
        self._update_requested = True
        self._back_off(now_ms)

    def forget_leader_epochs(self) -> None:
        """Who answers from now on may be a restored cluster, whose leader epochs are lower than those of before."""
        topics = {
            name: replace(topic, leader_epochs=(NO_EPOCH,) * topic.partition_count)
            for name, topic in self.snapshot.topics.items()
        }
        self.snapshot = replace(self.snapshot, topics=MappingProxyType(topics))

    def update(self, response: MetadataResponse, now_ms: int) -> None:
        """Swaps in what `response` says. Topics with an error are asked for again, after the backoff."""
        self._asking_for = None
        self.answered = self._request_number
        old = self.snapshot
        topics = dict(old.topics)
        errors: dict[str, int] = {}
        for answer in response.topics:
            if answer.error_code != NO_ERROR:
                # The topic's last good state stays: a broker that lags behind forgets topics for a moment, and
                # a batch under way must not lose its partition (and its sequence) over that.
                errors[answer.name] = answer.error_code
                self._fresh_until_ms.pop(answer.name, None)
            if answer.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self._absent_since_ms.setdefault(answer.name, now_ms)
            else:
                self._absent_since_ms.pop(answer.name, None)
            if answer.error_code == NO_ERROR:
                topics[answer.name] = _merge(topics.get(answer.name), answer)
                self._fresh_until_ms[answer.name] = now_ms + self._max_age_ms
                self._ever_seen.add(answer.name)
        self.snapshot = MetadataSnapshot(
            version=old.version + 1,
            brokers=response.brokers or old.brokers,
            topics=MappingProxyType(topics),
            errors=MappingProxyType(errors),
        )
        leaderless = any(NO_LEADER in topics[name].leaders for name in self._wanted if name in topics)
        if errors or leaderless:
            self._update_requested = True
        if topics != old.topics:
            self._attempts_without_success = 0
        # The same answer again is asked for after a longer pause each time (KIP-580's equivalent responses): until a
        # new leader is elected, a dead one is named to every producer that asks.
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._attempts_without_success += 1
        self._not_before_ms = now_ms + backoff_ms(self._attempts_without_success, *self._backoff, self._rng)


def _merge(old: TopicSnapshot | None, answer: TopicMetadata) -> TopicSnapshot:
    """`answer` as a snapshot; a partition about which it knows less than `old` (none of it, or a lower leader epoch of
    the same topic, KIP-320) keeps what `old` says: topics grow, but never shrink."""
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition)
    new = TopicSnapshot(
        name=answer.name,
        topic_id=answer.topic_id,
        leaders=tuple(partition.leader_id for partition in partitions),
        leader_epochs=tuple(partition.leader_epoch for partition in partitions),
    )
    if old is None or old.topic_id != new.topic_id:
        return new
    known = list(zip(old.leaders, old.leader_epochs, strict=True))
    told = list(zip(new.leaders, new.leader_epochs, strict=True))
    newest = [
        known[partition] if partition < len(known) and known[partition][1] > told[partition][1] else told[partition]
        for partition in range(len(told))
    ]
    if new.topic_id is not None:
        newest += known[len(told) :]
    leaders, leader_epochs = zip(*newest, strict=True) if newest else ((), ())
    return replace(new, leaders=tuple(leaders), leader_epochs=tuple(leader_epochs))
