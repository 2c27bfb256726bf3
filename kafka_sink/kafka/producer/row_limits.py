"""Finds rows that their topics refuse, as a leader would: too large, without a key, too old, or too far in the future.

A compacted topic takes no row without a key. A row's time must be within `message.timestamp.before.max.ms` and
`message.timestamp.after.max.ms` of the leader's clock when the row arrives. With LogAppendTime any time is allowed.
Here this worker's clock is used, without a margin, so that no row is left out that the leader would take.

A row is too large if a record batch of only this row is refused. Two limits apply: `max.request.size` before
compression, as in every producer, and the topic's `max.message.bytes` after compression. A row above the second limit
before compression is a candidate. Only candidates are encoded and compressed one by one, in Python. They are few,
unless the topic's limit is wrong for its rows.

A row that passes may still be refused together with others. Then the Sender splits the batch, in the worst case down to
this row alone. A leader whose topic has its own `compression.type` measures again after its own compression. It may
refuse a row that passed here, and the write fails as it does without `badRows`.

Source: UnifiedLog.append (both checks of sizes), LogValidator.validateRecord, KIP-126, KIP-937.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.producer.producer_batch import NO_COMPRESSION
from kafka_sink.kafka.protocol.apis.topics import number_in
from kafka_sink.records.bad_rows import GOOD, Reason, Reasons
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import Codec
from kafka_sink.records.kernel import KERNEL, OpenBatches
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_size import lone_batch_sizes

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

MAX_MESSAGE_BYTES = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"
BEFORE_MAX_MS = "message.timestamp.before.max.ms"
AFTER_MAX_MS = "message.timestamp.after.max.ms"
# Before Kafka 3.6 the only setting, for both bounds. Until 3.9 it still applies to a bound that has its default.
DIFFERENCE_MAX_MS = "message.timestamp.difference.max.ms"
SETTINGS = (MAX_MESSAGE_BYTES, CLEANUP_POLICY, TIMESTAMP_TYPE, BEFORE_MAX_MS, AFTER_MAX_MS, DIFFERENCE_MAX_MS)
ANY_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic takes. `max_message_bytes`: None if unknown. `before_max_ms`, `after_max_ms`: how far a time may be
    from now (ms)."""

    max_message_bytes: int | None = None
    needs_key: bool = False
    before_max_ms: int = ANY_MS
    after_max_ms: int = ANY_MS


def topic_rules(settings: Mapping[str, str]) -> TopicRules:
    """Return the rules in `settings`, the SETTINGS that the brokers reported."""

    def bound(name: str) -> int:
        values = (number_in(settings.get(setting)) for setting in (name, DIFFERENCE_MAX_MS))
        return next((each for each in values if each is not None and each != ANY_MS), ANY_MS)

    any_time = settings.get(TIMESTAMP_TYPE) == "LogAppendTime"
    return TopicRules(
        max_message_bytes=number_in(settings.get(MAX_MESSAGE_BYTES)),
        needs_key="compact" in map(str.strip, settings.get(CLEANUP_POLICY, "").split(",")),
        before_max_ms=ANY_MS if any_time else bound(BEFORE_MAX_MS),
        after_max_ms=ANY_MS if any_time else bound(AFTER_MAX_MS),
    )


class TopicLimits:
    """The limits for rows: `max_request_size` before compression, and the rules of their topics.

    Topics are learned as the write meets them. `dead_letter_topic` has no rows of the user, so its limits do not count
    in `least` and `_strictest`.

    `least`: the lowest size limit of all topics so far. A row of at most `least` bytes before compression fits every
    topic, so one comparison per Arrow batch suffices. `_strictest`: the same for keys and times.
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
        """Return the lower of both size limits (bytes)."""
        return min(self.max_request_size, self._of_topic[topic])

    def learn(self, rules: Mapping[str, TopicRules]) -> None:
        """Add the rules of topics that were unknown."""
        for topic, rule in rules.items():
            max_bytes = rule.max_message_bytes
            self._rules[topic] = rule
            self._of_topic[topic] = self.max_request_size if max_bytes is None else max_bytes
            if topic != self._dead_letter_topic:
                self.least = min(self.least, self._of_topic[topic])
                before = self._strictest
                self._strictest = TopicRules(
                    needs_key=before.needs_key or rule.needs_key,
                    before_max_ms=min(before.before_max_ms, rule.before_max_ms),
                    after_max_ms=min(before.after_max_ms, rule.after_max_ms),
                )

    def refuses_any(
        self, columns: RecordColumns, topics: tuple[str, ...], topic_index: Int64s | None, now_ms: int
    ) -> bool:
        """Return True if a topic refuses a row for its missing key or its time. Parameters as in `too_large`."""
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
        """Return uint8[n]: GOOD, KeyNull or TimestampNotAllowed. Parameters as in `too_large`."""
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
        """Return bool[n], True for rows that are too large, and int64[n], the sizes (bytes) that decided it.
        `topic_index` (int64[n]): each row's place in `topics`; None: all rows have the first. `codec`: the calling
        thread's own."""
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
    """Return int64[k]: for each of `rows` (int64[k]), the bytes on the wire of a record batch of only this row."""
    encoder = KERNEL.encoder(columns, rows)
    sizes = lone_batch_sizes(encoder.payload_sizes[rows]) - HEADER_BYTES
    limit, place = np.cumsum(sizes), np.arange(len(rows))
    start = limit - sizes
    batches = OpenBatches(
        memory=np.empty(sizes.sum(), np.uint8),
        base_timestamp=columns.timestamp_ms[rows],
        end=start.copy(),
        limit=limit,
        record_count=np.zeros_like(limit),
        max_timestamp=np.zeros_like(limit),
        records_crc=None,
    )
    encoder.fill(place, place.copy(), place + 1, batches)
    data = batches.memory.data
    records = [data[first:last] for first, last in zip(start.tolist(), limit.tolist(), strict=True)]
    return np.array([HEADER_BYTES + _compressed_bytes(record, codec) for record in records], np.int64)


def _compressed_bytes(record: memoryview, codec: Codec) -> int:
    """As in ProducerBatch.close: records that compression would enlarge stay uncompressed."""
    return len(record) if codec.id == NO_COMPRESSION else min(len(record), len(codec.compress(record)))
