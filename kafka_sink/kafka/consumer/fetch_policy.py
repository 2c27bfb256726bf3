"""The rules of a fetcher: what an error code requires, how long a caller waits, which replica is asked, when a topic is
gone.

Source: org.apache.kafka.clients.consumer.internals.FetchCollector.handleInitializeErrors, OffsetFetcherUtils,
SubscriptionState, AbstractFetch.selectReadReplica.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, NO_LEADER, MetadataSnapshot
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning
from kafka_sink.kafka.protocol.topic_partition import ids_differ
from kafka_sink.kafka.waits import THROTTLED_LIMITS


class Action(Enum):
    """What to do with an error code of a Fetch, ListOffsets or OffsetForLeaderEpoch answer."""

    TAKE = auto()
    """The answer counts."""
    RETRY = auto()
    """Ask again, after the backoff."""
    REFRESH_AND_RETRY = auto()
    """As RETRY, and request metadata: another broker may lead, or the client may know an old leader epoch."""
    LOOK_FOR_BOUNDS = auto()
    """Ask where the log begins and ends, to find out what is lost."""
    DENIED = auto()
    """An ACL is missing."""
    FAIL = auto()
    """A retry cannot help."""


_E = ErrorCode

# Codes whose action differs from the general meaning of the code.
READ: dict[int, Action] = {
    _E.NONE: Action.TAKE,
    _E.OFFSET_OUT_OF_RANGE: Action.LOOK_FOR_BOUNDS,
    _E.TOPIC_AUTHORIZATION_FAILED: Action.DENIED,
    # The client knows a newer epoch than the broker, which is about to learn it.
    _E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
    # Java retries it: the broker's own trouble, which may pass. The limit without progress ends it.
    _E.UNKNOWN_SERVER_ERROR: Action.RETRY,
    # The batch on the broker's disk is damaged. Another answer would be the same.
    _E.CORRUPT_MESSAGE: Action.FAIL,
}


def on_read_error(code: int) -> Action:
    """Return the action for the error code of one partition. An unknown code is not retried, because the client does
    not know what it requires."""
    if (action := READ.get(code)) is not None:
        return action
    means = meaning(code)
    if not means.is_retriable:
        return Action.FAIL
    return Action.REFRESH_AND_RETRY if means.needs_new_metadata else Action.RETRY


class Patience:
    """How long a caller waits for a record set before the range fails (`kafkaConsumer.pollTimeoutMs`).

    The time in which the caller works does not count. Nor does the time in which brokers throttle, because a quota
    delays records and keeps none back: unless that lasts for many times the limit. A batch that is larger than a quota
    lets through in its whole window never comes. `throttled_ms`: for how long brokers have throttled the client so far.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # Now, and `throttled_ms`, when the wait began. None: nobody waits.
        self._began: tuple[int, int] | None = None

    def begin(self, now_ms: int, throttled_ms: int) -> None:
        """Note that the caller waits, if it does not already."""
        if self._began is None:
            self._began = now_ms, throttled_ms

    def end(self) -> None:
        """Note that the caller got a record set."""
        self._began = None

    def throttled_ms(self, throttled_ms: int) -> int:
        """Return for how long brokers have throttled the client in this wait."""
        return 0 if self._began is None else throttled_ms - self._began[1]

    def waited_ms(self, now_ms: int, throttled_ms: int) -> int:
        """Return how long the caller has waited, without throttles."""
        return 0 if self._began is None else now_ms - self._began[0] - self.throttled_ms(throttled_ms)

    def is_over(self, now_ms: int, throttled_ms: int) -> bool:
        """False while nobody waits: the limit is 1 ms at least."""
        of_throttles_ms = self.throttled_ms(throttled_ms)
        waited_ms = self.waited_ms(now_ms, throttled_ms)
        return waited_ms >= self._limit_ms or of_throttles_ms >= THROTTLED_LIMITS * self._limit_ms


# Of the first Fetch answer of a read of which Spark may want a few rows, and how much larger the next ones are.
FIRST_BYTES, GROWTH = 64 * 1024, 4


class Appetite:
    """How many `bytes` a task takes at once, `most_bytes` in the end.

    A task cannot know that Spark wants no more of its rows, as for a `limit`: it goes on until the socket to Spark is
    full or closed. So a batch read begins small. A micro-batch is read to its end, and does not.
    """

    def __init__(self, most_bytes: int, first_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = min(first_bytes, most_bytes)

    def fed(self) -> None:
        """Note that it had so much."""
        self.bytes = min(self.bytes * GROWTH, self._most_bytes)


class PreferredReplica:
    """Which replica a reader fetches from instead of the leader (KIP-392). `node`: NO_LEADER for the leader.

    The leader may tell a client that names its rack a replica that is nearer. The client fetches there until
    `metadata.max.age.ms` later, and then asks the leader again. Only the leader is believed, and only about another
    node: otherwise two brokers could send the client back and forth.

    The leader cannot know whether the client reaches the replica. So after trouble there the client names no rack for
    as long, and the leader itself hands out the records. Java's consumer is told the same replica again.
    """

    def __init__(self, rack: str, max_age_ms: int) -> None:
        self.node = NO_LEADER
        self._rack = rack
        self._max_age_ms = max_age_ms
        # Of `node`.
        self._until_ms: int
        # None: no replica has been in trouble.
        self._alone_until_ms: int | None = None

    def rack(self, now_ms: int) -> str:
        """Return the rack to name; empty for none."""
        is_alone = self._alone_until_ms is not None and now_ms < self._alone_until_ms
        return "" if is_alone else self._rack

    def named(self, node_id: int, by: int, now_ms: int) -> bool:
        """Note that the answer of the node `by` names `node_id`. Return whether to fetch there."""
        if node_id in (NO_LEADER, by) or self.node != NO_LEADER:
            return False
        self.node, self._until_ms = node_id, now_ms + self._max_age_ms
        return True

    def expire(self, now_ms: int) -> None:
        """The leader must be asked anew if the replica was named too long ago."""
        if self.node != NO_LEADER and now_ms >= self._until_ms:
            self.node = NO_LEADER

    def forget(self) -> None:
        """The leader must be asked."""
        self.node = NO_LEADER

    def failed(self, now_ms: int) -> None:
        """Note trouble with the last request. If the replica had it, leave it alone."""
        if self.node != NO_LEADER:
            self.node, self._alone_until_ms = NO_LEADER, now_ms + self._max_age_ms


def missing(range_: FetchRange, snapshot: MetadataSnapshot) -> LossCause | None:
    """Return why the range is not in the last answer; None if it is, or if the answer does not tell."""
    if snapshot.errors.get(range_.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return LossCause.TOPIC_DELETED
    topic = snapshot.topics.get(range_.topic)
    if topic is None:
        return None
    if ids_differ(range_.topic_id, topic.topic_id):
        return LossCause.TOPIC_RECREATED
    return None if range_.partition < topic.partition_count else LossCause.TOPIC_DELETED


class TopicWatch:
    """Whether the topic of a range is still there, as answers to Metadata requests tell.

    A broker that lags or has just started may not know a new topic yet, or still know one that was deleted. So the
    first answer that misses the topic is no proof. The topic is gone when a request that was sent ABSENT_PATIENCE_MS
    later, or after that, misses it too, and no answer in between had it. Time alone proves nothing: a caller that works
    on a record set for minutes asks nobody.
    """

    def __init__(self, range_: FetchRange) -> None:
        self._range = range_
        # When the first of the answers came that all miss the topic.
        self._missing_since_ms: int | None = None

    def answered(self, snapshot: MetadataSnapshot, sent_ms: int, now_ms: int) -> LossCause | None:
        """Note an answer, whose request was sent at `sent_ms`. Return why the topic is gone, or None."""
        cause = missing(self._range, snapshot)
        if cause is None:
            self.seen()
        elif self._missing_since_ms is None:
            self._missing_since_ms = now_ms
        elif sent_ms - self._missing_since_ms >= ABSENT_PATIENCE_MS:
            return cause
        return None

    def seen(self) -> None:
        """Note that the topic is there."""
        self._missing_since_ms = None
