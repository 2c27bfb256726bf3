"""Whether the topic of a range is still there, as answers to Metadata requests tell.

A broker that lags or has just started may not know a new topic yet, or still know one that was deleted. So the first
answer that misses the topic is no proof. The topic is gone when a request that was sent ABSENT_PATIENCE_MS later, or
after that, misses it too, and no answer in between had it. Time alone proves nothing: a caller that works on a record
set for minutes asks nobody.
"""

from __future__ import annotations

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, MetadataSnapshot
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_id import ids_differ


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
