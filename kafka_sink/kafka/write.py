"""The rows of one task on their way through a producer: cut into slices, checked, and routed to topics and partitions.

A slice is checked, routed and placed as a whole, with one call each. If a slice has a bad row, each row is judged
separately, and the good rows are written (`_append_sorted`).

A write remembers the id of each topic when it first saw the topic. Another id later means another topic, which must not
get the rows. Only the producer waits (`client.py`).
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from kafka_sink.errors import (
    BadRow,
    DeadLetterTopicNamed,
    KafkaSinkError,
    PartitionOutOfRange,
    RecordTooLarge,
    TopicRecreated,
)
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PackedRuns, PartitionOffsets, Runs
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowPolicy, BadRowTally
from kafka_sink.kafka.producer.router import Int64s, RoutedRows, Router, RowTopics
from kafka_sink.kafka.producer.row_limits import TopicLimits, TopicRules
from kafka_sink.kafka.producer.sender import codec_of
from kafka_sink.kafka.producer.throttling import RateLimit
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.topic_partition import ids_differ
from kafka_sink.kafka.statistics import WriteStatistics
from kafka_sink.records.bad_rows import (
    GOOD,
    Reason,
    Reasons,
    columns_for_fingerprint,
    judge_values,
    key_bytes,
    letters_of,
    named_topics,
    plain,
    topic_of,
)
from kafka_sink.records.columns import RecordColumns, content_bytes, plain_bytes
from kafka_sink.records.dead_letters import NO_NUMBER, BadRows, LeftOut, Origin, SentRow, dead_letters, rows_before
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.records.row_identity import NAMES, RowIdentity

# An Arrow batch is routed and encoded in slices of about this size. The encoded copy then stays in the CPU cache and
# within the memory limit, and a slice still fills several batches.
SLICE_BYTES = 4 * 1024 * 1024


class Write:
    """`finish` is the last call."""

    def __init__(
        self,
        producer: Producer,
        *,
        topic: str | None,
        partitioner: str = "murmur2",
        transaction: Transaction | None = None,
        fingerprint: Fingerprint | None = None,
        bad_rows: BadRowPolicy | None = None,
        rate_limit: RateLimit | None = None,
        row_identity: RowIdentity | None = None,
    ) -> None:
        """Begin a write of rows to `topic`, or to the topic that each row names if `topic` is None.

        `partitioner`: the option of this name.
        `transaction`: contains all rows of the write. The caller has begun it and will end it.
        `fingerprint`: updated with all rows.
        `bad_rows`: what to do with rows that cannot be written; None: the first such row ends the write.
        `rate_limit`: the highest rate; None for no limit.
        `row_identity`: headers that each row gets.
        """
        producer.begin(transaction)
        self._producer = producer
        self._topic = topic
        self._bad_rows = bad_rows
        self._tally = None if bad_rows is None else BadRowTally(bad_rows)
        self._limits = TopicLimits(
            producer.config.max_request_size, None if bad_rows is None else bad_rows.dead_letter_topic
        )
        self._fingerprint = fingerprint
        self._rate_limit = rate_limit
        self._row_identity = row_identity
        self._codec = codec_of(producer.config)
        self._router = Router(
            topic=topic, batch_bytes=producer.config.batch_size, rng=random.Random(), partitioner=partitioner
        )
        # Of the rows appended so far.
        self.acknowledgements = Acknowledgements()
        if bad_rows is not None:
            self.acknowledgements.refused = deque()
            self.acknowledgements.dead_letter_topic = bad_rows.dead_letter_topic
        # The id of each topic when this write first saw it.
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._may_ask_again = True
        self._throttled_before_ms = producer.throttled_ms()
        self.record_count = 0

    def keep_runs(self) -> None:
        """Record in `runs` where each record batch was written. Call before the first row."""
        self.acknowledgements.runs = Runs()

    def append(self, arrow_batch: pa.RecordBatch) -> None:
        """Hand rows over for sending. Returns when the rows are copied from `arrow_batch`, before they are delivered.

        Raises BadRow, ClusterError, or the DeliveryError of an earlier row.
        """
        self._account_for_refused()
        # At most once per Arrow batch: many rows may name a partition that does not exist.
        self._may_ask_again = True
        rows_a_slice = max(1, SLICE_BYTES * arrow_batch.num_rows // max(1, plain_bytes(arrow_batch)))
        if self._rate_limit is not None:
            fit = self._rate_limit.rows_at_once(arrow_batch.num_rows, content_bytes(arrow_batch))
            rows_a_slice = min(rows_a_slice, fit)
        for start in range(0, arrow_batch.num_rows, rows_a_slice):
            part = arrow_batch.slice(start, rows_a_slice)
            if self._rate_limit is not None:
                # Wait before `max.block.ms` and the delivery timeout of these rows begin.
                self._producer.pause(self._rate_limit.take(part.num_rows, content_bytes(part), monotonic_ms()))
            self._append_slice(part)

    def _append_slice(self, arrow_batch: pa.RecordBatch) -> None:
        started_ms = self._producer.waiting_clock_ms()
        if letters_of(arrow_batch) is not None:
            # Without a policy `check_schema` has refused the column.
            assert self._bad_rows is not None
            self._append_sorted(arrow_batch, self._bad_rows, started_ms)
            return
        try:
            columns = RecordColumns.from_arrow(arrow_batch, now_ms=wall_clock_ms())
            topics = self._topics_of(columns)
            rows = self._route(self._identified(columns), topics, started_ms)
            self._check_sizes(rows, self._limits.least)
            # Without a bad-row policy no topic's rules are known, so this is False.
            is_refused = self._limits.refuses_any(columns, topics.names, topics.index, wall_clock_ms())
        except BadRow as error:
            if self._bad_rows is None:
                self._locate(error, arrow_batch, started_ms)
                raise
            is_refused = True
        if is_refused and self._bad_rows is not None:
            self._append_sorted(arrow_batch, self._bad_rows, started_ms)
            return
        self._producer.place(rows, self.acknowledgements, self._codec, started_ms)
        if self._fingerprint is not None:
            self._fingerprint.update(columns)
        self.record_count += columns.num_rows

    def _identified(self, columns: RecordColumns, place: Int64s | None = None) -> RecordColumns:
        """Return the rows as they are to be written. `place` (int64[n]): their places in the slice; None: the whole
        slice."""
        if self._row_identity is None:
            return columns
        numbers = np.arange(columns.num_rows) if place is None else place
        return self._row_identity.added_to(columns, self.record_count + numbers)

    def _route(self, columns: RecordColumns, topics: RowTopics, started_ms: int) -> RoutedRows:
        names = frozenset(topics.names)
        try:
            return self._router.route(columns, topics, self._resolve(names, started_ms))
        except PartitionOutOfRange as out_of_range:
            if out_of_range.partition < 0 or not self._may_ask_again:
                raise
        # The topic may have got new partitions since the last metadata.
        self._may_ask_again = False
        return self._router.route(columns, topics, self._resolve(names, started_ms, ask_again=True))

    def _topics_of(self, columns: RecordColumns) -> RowTopics:
        topics = self._router.topics_of(columns)
        if self._bad_rows is not None and self._bad_rows.dead_letter_topic in topics.names:
            raise DeadLetterTopicNamed(topic=self._bad_rows.dead_letter_topic or "")
        return topics

    def _resolve(
        self, names: frozenset[str], started_ms: int, *, ask_again: bool = False
    ) -> Mapping[str, TopicSnapshot]:
        policy = self._bad_rows
        if policy is not None and policy.dead_letter_topic is not None:
            # Also before the first dead letter, so that a missing topic is noticed on the first day.
            names |= {policy.dead_letter_topic}
        states = self._producer.await_topics(names, self._topic_ids, started_ms, ask_again=ask_again)
        if policy is not None and (unknown := self._limits.unknown(names)):
            self._limits.learn(policy.rules(unknown))
        for name, state in states.items():
            first_id = self._topic_ids.get(name) or state.topic_id
            self._topic_ids[name] = first_id
            if ids_differ(first_id, state.topic_id):
                raise TopicRecreated(topic=name, old_topic_id=str(first_id), new_topic_id=str(state.topic_id))
        return states

    def _check_sizes(self, rows: RoutedRows, max_bytes: int) -> None:
        largest = rows.largest()
        if largest is None:
            return
        topic_partition, size_bytes = largest
        if size_bytes > max_bytes:
            raise RecordTooLarge(
                topic=topic_partition.topic, size_bytes=size_bytes, max_bytes=max_bytes, limit="kafka.max.request.size"
            )

    def _locate(self, error: BadRow, arrow_batch: pa.RecordBatch, started_ms: int) -> None:
        """Add to `error`, which ends the write, the row of the slice that it is about."""
        batch, reason = plain(arrow_batch), Reason[type(error).__name__]
        reasons, sizes = judge_values(batch, topic_option=self._topic is not None), None
        try:
            if reason not in reasons:
                names = named_topics(arrow_batch) if self._topic is None else {self._topic}
                # The topics' own limits are not known here.
                self._limits.learn(dict.fromkeys(self._limits.unknown(names), TopicRules()))
                reasons, sizes = self._judge(batch, started_ms)
        except KafkaSinkError:
            # Ignore an error of the cluster: the row's error came first.
            return
        bad = np.flatnonzero(reasons == reason)
        if not bad.size:
            return
        # An error about sizes is about the largest row, any other about the first bad row.
        place = int(bad[0] if sizes is None or reason != Reason.RecordTooLarge else bad[sizes[bad].argmax()])
        error.located(
            row=self.record_count + place,
            topic=self._topic or topic_of(batch, place),
            key_bytes=key_bytes(batch, place),
        )

    # --- bad rows -----------------------------------------------------------------------------------------------------

    def _append_sorted(self, arrow_batch: pa.RecordBatch, policy: BadRowPolicy, started_ms: int) -> None:
        """As `_append_slice`, for slices that may have bad rows. Good rows are written; bad rows follow the policy."""
        batch = plain(arrow_batch)
        reasons, sizes = self._judge(batch, started_ms)
        bad = np.flatnonzero(reasons)
        if bad.size and self._tally is not None:
            self._tally.add(reasons[bad], self.record_count + bad)
        good = np.flatnonzero(reasons == GOOD)
        if good.size:
            columns = RecordColumns.from_arrow(batch.take(pa.array(good)), now_ms=wall_clock_ms())
            columns = self._identified(columns, good)
            self._place(columns, self._topics_of(columns), started_ms)
        if bad.size and policy.dead_letter_topic is not None:
            rows = BadRows(batch.take(pa.array(bad)), reasons[bad], self.record_count + bad, sizes[bad])
            self._place_letters(rows, policy.origin, policy.dead_letter_topic, started_ms)
        if self._fingerprint is not None:
            self._fingerprint.update(columns_for_fingerprint(arrow_batch, now_ms=wall_clock_ms()))
        self.record_count += arrow_batch.num_rows

    def _judge(self, batch: pa.RecordBatch, started_ms: int) -> tuple[Reasons, Int64s]:
        """Return the reason for each row of a `plain` batch (uint8[n]), and the bytes of too large rows (int64[n]).

        Raises ClusterError, for example for an unknown topic, which is an error of the cluster and not of a row.
        """
        reasons = judge_values(batch, topic_option=self._topic is not None)
        sizes = np.zeros(batch.num_rows, np.int64)
        place = np.flatnonzero(reasons == GOOD)
        columns = RecordColumns.from_arrow(batch.take(pa.array(place)), now_ms=wall_clock_ms())
        columns = self._identified(columns, place)
        topics = self._topics_of(columns)
        states = self._resolve(frozenset(topics.names), started_ms)
        outside = self._router.out_of_range(columns, topics, states)
        if self._may_ask_again and columns.partition is not None and (columns.partition[outside] >= 0).any():
            # As in `_route`.
            self._may_ask_again = False
            states = self._resolve(frozenset(topics.names), started_ms, ask_again=True)
            outside = self._router.out_of_range(columns, topics, states)
        too_large, sizes[place] = self._limits.too_large(columns, topics.names, topics.index, self._codec)
        reasons[place[too_large]] = Reason.RecordTooLarge
        refused = self._limits.refused(columns, topics.names, topics.index, wall_clock_ms())
        reasons[place[refused != GOOD]] = refused[refused != GOOD]
        reasons[place[outside]] = Reason.PartitionOutOfRange
        return reasons, sizes

    def _account_for_refused(self) -> bool:
        """Count the rows that leaders have refused since the last call, or write them as dead letters. Return True if
        there were any. Raises TooManyBadRows, and what placing raises."""
        waiting, policy = self.acknowledgements.refused, self._bad_rows
        if not waiting or policy is None or self._tally is None:
            return False
        sent = []
        while waiting:
            (topic, partition), timestamp_ms, body = waiting.popleft()
            sent.append(SentRow(topic, partition, timestamp_ms, body))
        self._tally.add_refused(len(sent), self.record_count)
        if policy.dead_letter_topic is not None:
            added = 0 if self._row_identity is None else len(NAMES)
            rows = rows_before(sent, added_headers=added)
            reasons = np.full(len(sent), Reason.RefusedByLeader, np.uint8)
            bad = BadRows(rows, reasons, np.full(len(sent), NO_NUMBER), np.zeros(len(sent), np.int64))
            self._place_letters(bad, policy.origin, policy.dead_letter_topic, self._producer.waiting_clock_ms())
        return True

    def _place_letters(self, bad: BadRows, origin: Origin, topic: str, started_ms: int) -> None:
        letters = self._fitting_letters(bad, origin, topic, started_ms)
        columns = RecordColumns.from_arrow(letters, now_ms=wall_clock_ms())
        self._place(columns, RowTopics((topic,), None), started_ms)

    def _fitting_letters(self, bad: BadRows, origin: Origin, topic: str, started_ms: int) -> pa.RecordBatch:
        """Return the dead letters. Letters that are too large for `topic` lose their value, and then all optional
        parts. Raises RecordTooLarge if `topic` does not even take the rest."""
        self._resolve(frozenset(), started_ms)
        left_out = np.full(bad.rows.num_rows, LeftOut.NOTHING, np.uint8)
        for leave_out in (LeftOut.VALUE, LeftOut.ALL, None):
            letters = dead_letters(bad, origin, left_out)
            columns = RecordColumns.from_arrow(letters, now_ms=wall_clock_ms())
            too_large, sizes = self._limits.too_large(columns, (topic,), None, self._codec)
            if not too_large.any():
                break
            if leave_out is None:
                limit = "kafka.max.request.size or max.message.bytes of deadLetterTopic"
                size_bytes, max_bytes = int(sizes[too_large].max()), self._limits.of(topic)
                raise RecordTooLarge(topic=topic, size_bytes=size_bytes, max_bytes=max_bytes, limit=limit)
            left_out[too_large] = leave_out
        return letters

    def _place(self, columns: RecordColumns, topics: RowTopics, started_ms: int) -> None:
        """Place rows that were judged good."""
        rows = self._router.route(columns, topics, self._resolve(frozenset(topics.names), started_ms))
        self._check_sizes(rows, self._limits.max_request_size)
        self._producer.place(rows, self.acknowledgements, self._codec, started_ms)

    @property
    def bad_rows(self) -> BadRowCounts:
        """The counts of bad rows so far. All zero with badRows=fail."""
        return BadRowCounts() if self._tally is None else self._tally.receipt()

    def statistics(self) -> WriteStatistics:
        """Return the statistics of the write so far."""
        bad = self.bad_rows
        return WriteStatistics(
            retried=dict(self.acknowledgements.retried),
            throttled_ms=self._producer.throttled_ms() - self._throttled_before_ms,
            dropped=bad.dropped,
            dead_lettered=bad.dead_lettered,
        )

    def finish(self) -> tuple[PartitionOffsets, ...]:
        """Wait for the acknowledgement of every row. Return one receipt per partition.

        Raises DeliveryError. If leaders refused rows, also raises what `append` raises.

        Brokers that know topics only by name may have acknowledged rows for a topic that was deleted and recreated
        during the write. The rows written before are then lost. So these brokers are asked for the topic ids after the
        last row.
        """
        self._producer.flush(self.acknowledgements)
        while self._account_for_refused():
            self._producer.flush(self.acknowledgements)
        self._producer.check_topics(self._topic_ids, self.acknowledgements)
        return self.acknowledgements.partitions()

    @property
    def runs(self) -> PackedRuns | None:
        """The runs of the acknowledged rows, or None without `keep_runs`."""
        return None if self.acknowledgements.runs is None else self.acknowledgements.runs.packed()

    @property
    def topic_ids(self) -> dict[str, str | None]:
        """Topic -> its id, or None if the brokers have no topic ids."""
        return {topic: None if topic_id is None else str(topic_id) for topic, topic_id in self._topic_ids.items()}
