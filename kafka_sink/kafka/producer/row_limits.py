"""Which rows their topics do not take, judged as a leader would: too large, without a key, too old or too far ahead.

A topic that compacts takes no row without a key. A time must lie within `message.timestamp.before.max.ms` and
`message.timestamp.after.max.ms` of the leader's clock when the row arrives; where the topic has LogAppendTime it does
not matter. Here that clock is this worker's, with no margin: a row at the edge is not left out that the leader would
take.

A row is too large when a record batch of it alone is refused: by `max.request.size` before compression, as for every
producer, or by its topic's `max.message.bytes` as it goes over the wire, compressed. What is larger than that before
compression is a candidate, and candidates alone are encoded and compressed one by one, in Python: they are few, or the
topic's limit is the wrong one for its rows.

A row that passes may be refused all the same together with others; then the Sender splits the batch, at the worst
down to this row alone. A leader whose topic has a `compression.type` of its own measures once more, as compressed by
that: it may refuse what passed here, and the write fails as it does without `badRows`.

Source: UnifiedLog.append (both checks of sizes), LogValidator.validateRecord, KIP-126, KIP-937.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.protocol.apis.describe_configs import (
    number_in,
)
from kafka_sink.records.bad_rows import GOOD, Reason, Reasons
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import Codec
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.kernel import KERNEL
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_size import lone_batch_sizes

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

NO_COMPRESSION = 0


MAX_MESSAGE_BYTES = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"
BEFORE_MAX_MS = "message.timestamp.before.max.ms"
AFTER_MAX_MS = "message.timestamp.after.max.ms"
# The only one before 3.6, for both; there until 3.9, for either of the two that is at its default.
DIFFERENCE_MAX_MS = "message.timestamp.difference.max.ms"
SETTINGS = (MAX_MESSAGE_BYTES, CLEANUP_POLICY, TIMESTAMP_TYPE, BEFORE_MAX_MS, AFTER_MAX_MS, DIFFERENCE_MAX_MS)
ANY_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic takes. `max_message_bytes`: None where it is not told. A time may be so much before and after now
    (ms)."""

    max_message_bytes: int | None = None
    needs_key: bool = False
    before_max_ms: int = ANY_MS
    after_max_ms: int = ANY_MS


def topic_rules(settings: Mapping[str, str]) -> TopicRules:
    """Of those of SETTINGS that the brokers told."""

    def bound(name: str) -> int:
        told = (number_in(settings.get(setting)) for setting in (name, DIFFERENCE_MAX_MS))
        return next((each for each in told if each is not None and each != ANY_MS), ANY_MS)

    any_time = settings.get(TIMESTAMP_TYPE) == "LogAppendTime"
    return TopicRules(
        max_message_bytes=number_in(settings.get(MAX_MESSAGE_BYTES)),
        needs_key="compact" in map(str.strip, settings.get(CLEANUP_POLICY, "").split(",")),
        before_max_ms=ANY_MS if any_time else bound(BEFORE_MAX_MS),
        after_max_ms=ANY_MS if any_time else bound(AFTER_MAX_MS),
    )


class TopicLimits:
    """What rows may be: `max_request_size` before compression, and what their topics take. Topics become known as the
    write meets them. `dead_letter_topic`: no row's.

    `least`: what no row exceeds before compression is small enough for every topic of rows seen so far, which is one
    comparison a batch; `_strictest` is the same of keys and times.
    """

    def __init__(self, max_request_size: int, dead_letter_topic: str | None) -> None:
        self.max_request_size = max_request_size
        self.least = max_request_size
        self._strictest = TopicRules()
        self._dead_letter_topic = dead_letter_topic
        self._of_topic: dict[str, int] = {}
        self._rules: dict[str, TopicRules] = {}

    def unknown(self, topics: Collection[str]) -> set[str]:
        return {topic for topic in topics if topic not in self._of_topic}

    def of(self, topic: str) -> int:
        """What both limits allow."""
        return min(self.max_request_size, self._of_topic[topic])

    def learn(self, rules: Mapping[str, TopicRules]) -> None:
        """Of topics that were not known."""
        for topic, told in rules.items():
            max_bytes = told.max_message_bytes
            self._rules[topic] = told
            self._of_topic[topic] = self.max_request_size if max_bytes is None else max_bytes
            if topic != self._dead_letter_topic:
                self.least = min(self.least, self._of_topic[topic])
                before = self._strictest
                self._strictest = TopicRules(
                    needs_key=before.needs_key or told.needs_key,
                    before_max_ms=min(before.before_max_ms, told.before_max_ms),
                    after_max_ms=min(before.after_max_ms, told.after_max_ms),
                )

    def refuses_any(
        self, columns: RecordColumns, topics: tuple[str, ...], topic_index: Int64s | None, now_ms: int
    ) -> bool:
        """Whether one of the rows has no key, or a time, that its topic does not take. Parameters as of `too_large`."""
        strictest, timestamp_ms = self._strictest, columns.timestamp_ms
        lacks_key = strictest.needs_key and (columns.key is None or columns.key.null_count > 0)
        is_off = (
            min(strictest.before_max_ms, strictest.after_max_ms) < ANY_MS
            and columns.timestamp_is_set is not False
            and columns.num_rows > 0
            and (
                int(timestamp_ms.min()) < now_ms - strictest.before_max_ms
                or int(timestamp_ms.max()) > now_ms + strictest.after_max_ms
            )
        )
        return (lacks_key or is_off) and bool(self.refused(columns, topics, topic_index, now_ms).any())

    def refused(
        self, columns: RecordColumns, topics: tuple[str, ...], topic_index: Int64s | None, now_ms: int
    ) -> Reasons:
        """uint8[n]: GOOD, KeyNull or TimestampNotAllowed. Parameters as of `too_large`."""
        reasons = np.full(columns.num_rows, GOOD, np.uint8)
        place = np.zeros(columns.num_rows, np.int64) if topic_index is None else topic_index
        rules = [self._rules[topic] for topic in topics]
        earliest = np.array([max(now_ms - rule.before_max_ms, 0) for rule in rules], np.int64)
        latest = np.array([min(now_ms + rule.after_max_ms, ANY_MS) for rule in rules], np.int64)
        timestamp_ms = columns.timestamp_ms
        is_off = (timestamp_ms < earliest[place]) | (timestamp_ms > latest[place])
        reasons[is_off & columns.timestamp_is_set] = Reason.TimestampNotAllowed
        key = columns.key
        lacks_key = True if key is None else key.is_null().to_numpy(zero_copy_only=False)
        reasons[np.array([rule.needs_key for rule in rules], np.bool_)[place] & lacks_key] = Reason.KeyNull
        return reasons

    def too_large(
        self, columns: RecordColumns, topics: tuple[str, ...], topic_index: Int64s | None, codec: Codec
    ) -> tuple[Bools, Int64s]:
        """bool[n]: rows that are too large; int64[n]: the bytes that decided it. `topic_index` (int64[n]): each row's
        place in `topics`; None: they are of the first. `codec`: the calling thread's own."""
        sizes = lone_batch_sizes(KERNEL.payload_sizes(columns))
        too_large = sizes > self.max_request_size
        limit = np.array([self._of_topic[topic] for topic in topics], np.int64)
        limit = limit[np.zeros(columns.num_rows, np.int64) if topic_index is None else topic_index]
        candidates = np.flatnonzero(~too_large & (sizes > limit))
        if candidates.size:
            sizes[candidates] = wire_sizes(columns, candidates, codec)
            too_large[candidates] = sizes[candidates] > limit[candidates]
        return too_large, sizes


def wire_sizes(columns: RecordColumns, rows: Int64s, codec: Codec) -> Int64s:
    """int64[k]: bytes on the wire of a record batch of each of `rows` (int64[k]) alone."""
    none = np.zeros(len(rows), np.int64)
    data, offsets = RecordEncoder(columns, rows).encode(slice(None), none, none)
    records = [data[first:last].data for first, last in pairwise(offsets.tolist())]
    return np.array([HEADER_BYTES + _compressed_bytes(record, codec) for record in records], np.int64)


def _compressed_bytes(record: memoryview, codec: Codec) -> int:
    """As ProducerBatch.close: what compression makes larger stays as it is."""
    return len(record) if codec.id == NO_COMPRESSION else min(len(record), len(codec.compress(record)))
