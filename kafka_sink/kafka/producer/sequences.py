"""Sequence numbers of an idempotent producer (KIP-98). With them a retry neither duplicates nor reorders batches.

The first sequence of a batch follows the last sequence of the batch before it in the partition. The leader accepts only
the next sequence. If it gets one of the last five batches again, it answers with the old offset. From this follow three
rules:

* A batch is sent only while it and all unanswered batches are among their partition's last five.
* A numbered batch keeps its number (exception: `leave_out`).
* After a failure the oldest unanswered batch is sent first and alone.

Without idempotence the numbers are not sent; they only record the order. Then a batch can overtake a retried batch.
With `max.in.flight.requests.per.connection` = 1 it cannot: a partition has at most one batch in flight (Sender's
guaranteeMessageOrder).

Source: Kafka's TransactionManager and TxnPartitionEntry, the part that needs no transactions.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.producer.producer_batch import NO_SEQUENCE, ProducerBatch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition, ids_differ

NEVER = -1
SEQUENCE_COUNT = 2**31  # 0 to 2147483647, then 0 again
# The leader keeps this many batches per producer and partition (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
LEADER_REMEMBERS = 5


def advance(sequence: int, record_count: int) -> int:
    """Return the sequence after `record_count` records from `sequence`; wraps 2147483647 -> 0 (DefaultRecordBatch)."""
    return (sequence + record_count) % SEQUENCE_COUNT


@dataclass(slots=True)
class _PartitionState:
    next_sequence: int = 0
    # NEVER: the leader may not know this producer yet.
    last_acknowledged_ms: int = NEVER
    # Numbered and without a final answer, oldest first. Includes batches that wait for a retry.
    unanswered: list[ProducerBatch] = field(default_factory=list)
    # Batches acknowledged before an earlier one, counted since `unanswered` was last empty.
    overtaking: int = 0
    # The error that made renumbering of the unanswered batches necessary. They are renumbered once none is in flight.
    renumbering: KafkaSinkError | None = None


class Sequences:
    """The sequences of one producer id, or of a producer without an id. Only the Sender uses them."""

    def __init__(self, *, idempotent: bool = True, first_sequence: int = 0) -> None:
        self._idempotent = idempotent
        # The topic id is in the key because a recreated topic starts at 0. An unknown id stands for the first one.
        self._partitions: defaultdict[tuple[TopicPartition, uuid.UUID | None], _PartitionState]
        self._partitions = defaultdict(lambda: _PartitionState(first_sequence))
        self._first_topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        # True if leaders get topic names without topic ids. Such a leader confuses a topic with its recreated namesake.
        self.by_name = False
        # True if a leader may remember numbers from 0 on, from a batch sent by name to a recreated topic. It could take
        # a new batch for that one and drop it. So nothing more is numbered, and the rest needs another producer id.
        self.used_up = False

    def _state(self, batch: ProducerBatch) -> _PartitionState:
        first = self._first_topic_ids.get(batch.topic_partition, batch.topic_id)
        topic_id = batch.topic_id if ids_differ(first, batch.topic_id) else first
        return self._partitions[batch.topic_partition, topic_id]

    def number(self, batch: ProducerBatch) -> int:
        """Assign the base sequence of a batch that is about to be sent for the first time, and return it."""
        self._first_topic_ids.setdefault(batch.topic_partition, batch.topic_id)
        state = self._state(batch)
        base_sequence = state.next_sequence
        state.next_sequence = advance(base_sequence, batch.record_count)
        state.unanswered.append(batch)
        return base_sequence

    def may_send(self, batch: ProducerBatch, max_in_flight: int) -> bool:
        """Return True if sending `batch` now keeps its partition's order and stays within the leader's memory.

        The first batch of a partition is sent alone. A leader that does not know a producer accepts any first sequence
        (ProducerAppendInfo.checkSequence). So it could write a second batch while it refuses the first for the moment.

        A batch may be overtaken: the client waits for the response of the former leader, while the new leader has the
        batch and acknowledges later ones. The leader must still remember the overtaken batch when it is retried.
        """
        state = self._state(batch)
        if state.renumbering is not None:
            if any(other.in_flight for other in state.unanswered):
                return False
            _forget_numbers(state)
        unanswered = state.unanswered
        if not self._idempotent:
            return max_in_flight > 1 or not any(other.in_flight for other in unanswered)
        if batch.base_sequence != NO_SEQUENCE:
            return unanswered[0] is batch
        if self.by_name and state.next_sequence == 0 and self.former_topic_id(batch) is not None:
            self.used_up = True
        if self.used_up:
            return False
        if state.last_acknowledged_ms == NEVER:
            return not unanswered
        if any(not other.in_flight for other in unanswered):
            return False
        return len(unanswered) < max_in_flight and len(unanswered) + state.overtaking < LEADER_REMEMBERS

    def gap_may_heal(self, batch: ProducerBatch) -> bool:
        """Return True if a batch before `batch` can have caused its OUT_OF_ORDER_SEQUENCE, so that a retry helps. An
        earlier batch must be unanswered, or must have been unanswered when `batch` was last sent."""
        state = self._state(batch)
        if state.renumbering is not None:
            return True
        return state.unanswered[0] is not batch or batch.last_attempt_ms <= state.last_acknowledged_ms

    def acknowledged(self, batch: ProducerBatch, now_ms: int) -> None:
        state = self._state(batch)
        overtook = state.unanswered[0] is not batch
        state.unanswered.remove(batch)
        state.overtaking = state.overtaking + overtook if state.unanswered else 0
        state.last_acknowledged_ms = now_ms

    def former_topic_id(self, batch: ProducerBatch) -> uuid.UUID | None:
        """Return the id of an earlier topic of this name to which this producer wrote the same partition, or None.

        A broker without topic ids (Produce < 13) wrote such batches into the new topic, under the old numbers.
        """
        first = self._first_topic_ids.get(batch.topic_partition)
        return first if ids_differ(first, batch.topic_id) else None

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace `batch` with `parts`, which share its sequences."""
        unanswered = self._state(batch).unanswered
        place = unanswered.index(batch)
        unanswered[place : place + 1] = parts

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Return True if `batch` is the partition's oldest unanswered batch."""
        return self._state(batch).unanswered[0] is batch

    def may_leave_out(self, batch: ProducerBatch) -> bool:
        """Return True if `leave_out` is safe for `batch`, the oldest: no leader can have written it or a later
        batch."""
        return not any(other.may_be_written for other in self._state(batch).unanswered)

    def leave_out(self, batch: ProducerBatch, parts: list[ProducerBatch], why: KafkaSinkError) -> None:
        """Replace `batch`, the oldest, with `parts` (one or none), and renumber the batches after it.

        The leader refused some records of `batch`. `parts` lack these records, so they have fewer sequences. The later
        batches get other numbers and thus other bytes.

        This neither duplicates nor loses a row only if no leader has any of these batches, now or later. So every
        attempt of each batch must have an answer that says that nothing was appended (`error_policy.NOT_WRITTEN`). Then
        no leader remembers a number from here on, and no copy in flight can be taken for another batch. So nothing is
        sent until the batches in flight are answered. If the outcome of one stays unknown, the write ends with `why`.
        """
        self.split(batch, parts)
        if self._idempotent:
            state = self._state(batch)
            state.next_sequence = batch.base_sequence
            state.renumbering = why

    def renumbering(self, batch: ProducerBatch) -> KafkaSinkError | None:
        """Return the error that ends the write if `batch` may be written after all, or None if this does not matter."""
        return self._state(batch).renumbering

    def unanswered(self) -> Iterator[ProducerBatch]:
        """Yield all numbered batches without a final answer, oldest first in each partition."""
        for state in self._partitions.values():
            yield from state.unanswered


def _forget_numbers(state: _PartitionState) -> None:
    """Remove the numbers of all unanswered batches. They are in their queue, in order, and get new numbers there."""
    for batch in state.unanswered:
        batch.base_sequence = NO_SEQUENCE
    state.unanswered.clear()
    state.overtaking = 0
    state.renumbering = None
