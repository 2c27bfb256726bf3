"""Topics, their partition counts and leaders, as immutable snapshots.

A snapshot is replaced as a whole (Kafka's copy-on-write MetadataCache). So a writer thread reads it without a lock, and
a write sees one consistent state. `Metadata` decides when the next request is due. It is due at once when a topic is
missing or a leader was wrong, and otherwise after `metadata.max.age.ms`. It is never due before the backoff ends.

A topic is forgotten if for five minutes no writer used it and no batch for it was pending (KIP-526). Otherwise a write
with a topic in each row would request all topics that it ever saw. The sequences of such a topic are kept elsewhere.

A broker that lost a partition names its new leader (KIP-951). The client follows it if its epoch is newer. Metadata are
requested nevertheless. Until they are answered, no broker names another leader of that partition: so brokers that
contradict each other move the client back and forth only as often as metadata are requested.

Source: Kafka's clients/Metadata.java, clients/MetadataSnapshot.java, producer/internals/ProducerMetadata.java; leader
epochs: KIP-320; backoff after equal responses: KIP-580.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kafka_sink.kafka.protocol.api import MOST_BROKERS
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    NamedLeader,
    TopicMetadata,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition, ids_differ
from kafka_sink.kafka.waits import backoff_ms

NO_LEADER = -1
NO_EPOCH = -1
# Java's default of metadata.max.idle.ms.
MAX_IDLE_MS = 300_000
# Every broker knows a new topic within a second. A broker that starts may lag longer.
ABSENT_PATIENCE_MS = 5_000


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic. `leaders[p]` is the node id of partition p's leader, or NO_LEADER.

    `epochs_may_fall`: the next Metadata answer counts although its leader epochs are lower.
    """

    name: str
    topic_id: uuid.UUID | None
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    epochs_may_fall: bool = False

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    @property
    def available(self) -> tuple[int, ...]:
        """Partitions that have a leader now."""
        return tuple(partition for partition, leader in enumerate(self.leaders) if leader != NO_LEADER)


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state of the cluster in the last response. Topics that it left out keep their earlier state.

    `errors` has the error code of each topic whose last response was an error.
    """

    brokers: tuple[Broker, ...] = ()
    topics: Mapping[str, TopicSnapshot] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of the partition's leader, or NO_LEADER. NO_LEADER also if the partition is unknown."""
        found = self.topics.get(topic)
        if found is None or partition >= found.partition_count:
            return NO_LEADER
        return found.leaders[partition]


class Metadata:
    """The current snapshot, and when to request the next one. The accumulator's lock guards it."""

    def __init__(
        self,
        *,
        max_age_ms: int,
        max_idle_ms: int,
        backoff_initial_ms: int,
        backoff_max_ms: int,
        rng: random.Random,
        creates_topics: bool = True,
    ) -> None:
        """`max_idle_ms` must not be shorter than the time that a writer waits for a topic.

        `creates_topics`: brokers may create a missing topic, if they are configured to.
        """
        self.snapshot = MetadataSnapshot()
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._backoff = (backoff_initial_ms, backoff_max_ms)
        self._rng = rng
        self._creates_topics = creates_topics
        self._wanted: set[str] = set()
        # Topics that exist or have existed. One that is missing now was deleted.
        self._ever_seen: set[str] = set()
        # When each wanted or known topic was last used.
        self._used_ms: dict[str, int] = {}
        self._update_requested = False
        # The topics of the request in flight, or None without one.
        self._asking_for: frozenset[str] | None = None
        # Requests are numbered from 1; `answered` is the number of the last answered request.
        self._request_number = 0
        self.answered = 0
        # Per topic, because a response covers only the topics of its request.
        self._fresh_until_ms: dict[str, int] = {}
        # Since when every response has said that the topic does not exist.
        self._absent_since_ms: dict[str, int] = {}
        self._not_before_ms = 0
        self._attempts_without_success = 0
        # The partitions whose leader a broker has named since the last answer.
        self._followed: set[TopicPartition] = set()

    def take_over(self, topic: str, earlier: Metadata) -> None:
        """Begin with what `earlier` knows of the topic, for as long as that is fresh."""
        self.snapshot = replace(
            self.snapshot,
            brokers=earlier.snapshot.brokers,
            topics=MappingProxyType({topic: earlier.snapshot.topics[topic]}),
        )
        self._fresh_until_ms[topic] = earlier._fresh_until_ms.get(topic, 0)
        self._ever_seen.add(topic)

    def want(self, topics: Collection[str], now_ms: int) -> int:
        """Note that a writer uses `topics`. Every request from now on includes them, until they are idle.

        Returns the number that `answered` must reach until all of them are known and fresh, or denied. It is 0 if they
        are already known and fresh. Otherwise they are requested: at once if one of them is new, or else after the
        backoff.
        """
        is_new = not self._wanted.issuperset(topics)
        self._wanted.update(topics)
        self._used_ms.update(dict.fromkeys(topics, now_ms))
        if all(now_ms < self._fresh_until_ms.get(topic, 0) for topic in topics):
            return 0
        if self._asking_for is not None and self._asking_for.issuperset(topics):
            return self._request_number
        if is_new:
            # The backoff is for repeated requests only.
            self._not_before_ms = now_ms
            self._attempts_without_success = 0
        return self._request_number + 1

    def want_nothing(self) -> None:
        """End of a write: an idle producer requests nothing, so it cannot recreate a deleted topic."""
        self._wanted.clear()
        self._absent_since_ms.clear()
        self._update_requested = False

    def patience_ends_ms(self, topics: Collection[str]) -> int | None:
        """Return when to stop waiting for `topics`: ABSENT_PATIENCE_MS after the cluster first said that one does not
        exist. Return None if the cluster does not say so. A topic that is being created has another error."""
        absent_since_ms = [self._absent_since_ms[topic] for topic in topics if topic in self._absent_since_ms]
        return min(absent_since_ms) + ABSENT_PATIENCE_MS if absent_since_ms else None

    def request_update(self) -> int:
        """Request metadata as soon as the backoff allows, because a leader was wrong or missing, or a topic may have
        grown.

        Returns the number that `answered` must reach for a response to a request sent after this call. The request in
        flight may be answered with an older state.
        """
        self._update_requested = True
        return self._request_number + 1

    def next_request_delay_ms(self, now_ms: int) -> int | None:
        """Return ms until a request is due (0: now), or None if one is in flight or nothing is wanted."""
        if self._asking_for is not None or not self._wanted:
            return None
        oldest_ms = min(self._fresh_until_ms.get(topic, 0) for topic in self._wanted)
        due_ms = self._not_before_ms if self._update_requested else max(oldest_ms, self._not_before_ms)
        return max(0, due_ms - now_ms)

    def request(self, pending: Collection[str], now_ms: int) -> MetadataRequest:
        """Return the request that is due. `pending`: the topics of all unanswered batches, which are in use.

        As with Java's producer, brokers may create a missing topic if they are configured to. They may not if all
        topics existed before, because then a user has deleted the missing one.
        """
        self._wanted.update(pending)
        self._used_ms.update(dict.fromkeys(pending, now_ms))
        self._forget_idle(now_ms)
        if not self._update_requested:
            # Due only by age, and likely to get the same response. The backoff must stay short in case a leader fails
            # next.
            self._attempts_without_success = 0
        self._asking_for = frozenset(self._wanted)
        self._update_requested = False
        self._request_number += 1
        creates = self._creates_topics and not self._wanted <= self._ever_seen
        return MetadataRequest(topics=tuple(sorted(self._wanted)), allow_auto_topic_creation=creates)

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
            topics=MappingProxyType({name: topic for name, topic in old.topics.items() if name not in idle}),
            errors=MappingProxyType({name: code for name, code in old.errors.items() if name not in idle}),
        )

    def failed(self, now_ms: int) -> None:
        """Note that the request returned without a response."""
        self._asking_for = None
        self._update_requested = True
        self._back_off(now_ms)

    def forget_leader_epochs(self) -> None:
        """Forget leader epochs for the next answer, because new connections may lead to a restored cluster, which has
        lower leader epochs."""
        topics = {name: replace(topic, epochs_may_fall=True) for name, topic in self.snapshot.topics.items()}
        self.snapshot = replace(self.snapshot, topics=MappingProxyType(topics))

    def follow(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        named: NamedLeader,
        learn: Callable[[Broker], None],
    ) -> None:
        """Take the leader that a broker names which does not lead the partition itself. `learn` is called with the
        leader if the last answer lacked it. A known broker keeps its address.

        Ignored: a leader whose epoch is not newer, whose address is unknown, or of an unknown partition or another
        topic; and a second one before the next answer.
        """
        topic, partition = topic_partition
        old = self.snapshot
        found, brokers = old.topics.get(topic), old.brokers
        if found is None or ids_differ(found.topic_id, topic_id) or partition >= found.partition_count:
            return
        if named.epoch <= found.leader_epochs[partition] or topic_partition in self._followed:
            return
        if all(broker.node_id != named.node_id for broker in brokers):
            if named.broker is None or len(brokers) >= MOST_BROKERS:
                return
            learn(named.broker)
            brokers += (named.broker,)
        self._followed.add(topic_partition)
        moved = replace(
            found,
            leaders=_with(found.leaders, partition, named.node_id),
            leader_epochs=_with(found.leader_epochs, partition, named.epoch),
        )
        self.snapshot = replace(old, brokers=brokers, topics=MappingProxyType({**old.topics, topic: moved}))

    def update(self, response: MetadataResponse, now_ms: int) -> None:
        """Replace the snapshot with the state in `response`. Topics with an error are requested again after the
        backoff."""
        self._asking_for = None
        self._followed.clear()
        self.answered = self._request_number
        old = self.snapshot
        topics = dict(old.topics)
        errors: dict[str, int] = {}
        for answer in response.topics:
            if answer.error_code != ErrorCode.NONE:
                # Keep the topic's last good state. A broker that lags behind may forget topics for a moment, and a
                # batch in flight must then not lose its partition and sequence.
                errors[answer.name] = answer.error_code
                self._fresh_until_ms.pop(answer.name, None)
            if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._absent_since_ms.setdefault(answer.name, now_ms)
            else:
                self._absent_since_ms.pop(answer.name, None)
            if answer.error_code == ErrorCode.NONE:
                topics[answer.name] = _merge(topics.get(answer.name), answer)
                self._fresh_until_ms[answer.name] = now_ms + self._max_age_ms
                self._ever_seen.add(answer.name)
        self.snapshot = MetadataSnapshot(
            brokers=response.brokers or old.brokers, topics=MappingProxyType(topics), errors=MappingProxyType(errors)
        )
        leaderless = any(NO_LEADER in topics[name].leaders for name in self._wanted if name in topics)
        if errors or leaderless:
            self._update_requested = True
        if topics != old.topics:
            self._attempts_without_success = 0
        # After equal responses the backoff grows (KIP-580, equivalent responses): until a new leader is elected,
        # brokers report the dead leader to every producer.
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._attempts_without_success += 1
        self._not_before_ms = now_ms + backoff_ms(self._attempts_without_success, *self._backoff, self._rng)


def _merge(old: TopicSnapshot | None, answer: TopicMetadata) -> TopicSnapshot:
    """Return `answer` as a snapshot. A partition that is missing in `answer`, or has a lower leader epoch there (same
    topic, KIP-320), keeps its state in `old`: topics never lose partitions."""
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition)
    new = TopicSnapshot(
        name=answer.name,
        topic_id=answer.topic_id,
        leaders=tuple(partition.leader_id for partition in partitions),
        leader_epochs=tuple(partition.leader_epoch for partition in partitions),
    )
    if old is None or ids_differ(old.topic_id, new.topic_id):
        return new
    if old.topic_id != new.topic_id:
        # Brokers are being upgraded. It may be another topic, so its leaders count. It keeps its id (`ids_differ`).
        return replace(new, topic_id=old.topic_id)
    epochs = (NO_EPOCH,) * old.partition_count if old.epochs_may_fall else old.leader_epochs
    known = list(zip(old.leaders, epochs, strict=True))
    reported = list(zip(new.leaders, new.leader_epochs, strict=True))
    newest = [
        known[partition]
        if partition < len(known) and known[partition][1] > reported[partition][1]
        else reported[partition]
        for partition in range(len(reported))
    ]
    if new.topic_id is not None:
        newest += known[len(reported) :]
    leaders, leader_epochs = zip(*newest, strict=True) if newest else ((), ())
    return replace(new, leaders=tuple(leaders), leader_epochs=tuple(leader_epochs))


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])
