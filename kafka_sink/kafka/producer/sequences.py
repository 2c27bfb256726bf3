"""Sequence numbers of an idempotent producer (KIP-98): why a retry neither doubles nor reorders.

Every batch of a partition starts where the one before ended. The leader accepts only the next sequence, and answers one
of the last five again with its old offset. So a batch is sent only while it and all unanswered ones are among their
partition's last five, it keeps its number for ever once it has one, and after a failure the oldest unanswered batch
goes first and alone.

Without idempotence the numbers stay here, and tell only what comes before what; the wire shows none. Nothing then
stops a batch from overtaking one that is sent again, except `max.in.flight.requests.per.connection` = 1: a partition
is left alone while a batch of it is on the wire (Sender's guaranteeMessageOrder).

Source: Kafka's TransactionManager and TxnPartitionEntry, the part that needs no transactions.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.producer_id import NO_SEQUENCE
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

NEVER = -1
SEQUENCE_COUNT = 2**31  # 0 to 2147483647, then 0 again
# Batches of a producer and partition (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
LEADER_REMEMBERS = 5


def advance(sequence: int, record_count: int) -> int:
    """The sequence after `record_count` records from `sequence`; wraps 2147483647 -> 0 (DefaultRecordBatch)."""
    return (sequence + record_count) % SEQUENCE_COUNT


@dataclass(slots=True)
class _PartitionState:
    next_sequence: int = 0
    # NEVER: the leader may know nothing of this producer yet.
    last_acknowledged_ms: int = NEVER
    # Numbered and not yet answered for good, oldest first; batches that wait for their retry are among them.
    unanswered: list[ProducerBatch] = field(default_factory=list)
    # Batches that were acknowledged before an earlier one was, since last there was nothing unanswered.
    overtaking: int = 0
    # Why those that are unanswered get other numbers, once none is on the wire.
    renumbering: KafkaSinkError | None = None


class Sequences:
    """The sequences of one producer id, or of a producer without one. The Sender's alone."""

    def __init__(self, *, idempotent: bool = True, first_sequence: int = 0) -> None:
        self._idempotent = idempotent
        # By topic id as well: a topic that is made again starts at 0.
        self._partitions: defaultdict[tuple[TopicPartition, uuid.UUID | None], _PartitionState]
        self._partitions = defaultdict(lambda: _PartitionState(first_sequence))
        self._first_topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        # Leaders are told names and no topic ids, and take what is for one topic for the other of its name.
        self.by_name = False
        # Numbers from 0 on may be in a leader's memory already, of a batch that went by name to a topic which had been
        # made again before it was known: one of as many records would be taken for that one, acknowledged and dropped.
        # Nothing more is numbered; the rest needs another producer id.
        self.used_up = False

    def _state(self, batch: ProducerBatch) -> _PartitionState:
        return self._partitions[batch.topic_partition, batch.topic_id]

    def number(self, batch: ProducerBatch) -> int:
        """Gives a batch, about to be sent for the first time, its base sequence."""
        self._first_topic_ids.setdefault(batch.topic_partition, batch.topic_id)
        state = self._state(batch)
        base_sequence = state.next_sequence
        state.next_sequence = advance(base_sequence, batch.record_count)
        state.unanswered.append(batch)
        return base_sequence

    def may_send(self, batch: ProducerBatch, max_in_flight: int) -> bool:
        """Whether sending `batch` now keeps its partition's order and stays within the leader's memory.

        The first batch of a partition goes alone: a leader that knows nothing of a producer takes any first sequence
        (ProducerAppendInfo.checkSequence), so a second one on its heels could be written in its place while it is
        refused for now.

        A batch may be overtaken: its answer is awaited from a broker that led before, while the new leader, which has
        it, acknowledges later ones. It must be among those the leader remembers when it comes again.
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
        """Whether OUT_OF_ORDER_SEQUENCE for `batch` can be the doing of a batch before it, so that a retry helps: one
        is still unanswered, or was when `batch` was last sent."""
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
        """The id of an earlier topic of that name, in which this producer wrote to the partition as well; None if there
        was none. A broker without topic ids (Produce < 13) put such batches into the new topic, under the old numbers.
        """
        first = self._first_topic_ids.get(batch.topic_partition)
        return None if first == batch.topic_id else first

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """`parts`, which have the sequences of `batch`, take its place."""
        unanswered = self._state(batch).unanswered
        place = unanswered.index(batch)
        unanswered[place : place + 1] = parts

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Of the partition's unanswered ones."""
        return self._state(batch).unanswered[0] is batch

    def may_leave_out(self, batch: ProducerBatch) -> bool:
        """Whether `leave_out` is safe for `batch`, the oldest: neither it nor one behind it may be written."""
        return not any(other.may_be_written for other in self._state(batch).unanswered)

    def leave_out(self, batch: ProducerBatch, parts: list[ProducerBatch], why: KafkaSinkError) -> None:
        """`parts`, one or none, take the place of `batch`, the oldest, which a leader has refused: without records that
        it named, so that there are fewer sequences. What is behind gets other numbers, and with them other bytes.

        That neither doubles nor loses a row where no leader has any of these batches, nor ever will: each attempt of
        each must have been answered, by words that say that nothing was appended (`error_policy.NOT_WRITTEN`). Then no
        leader remembers a number from here on, and no copy is under way that could be taken for another batch. So
        nothing goes out until those on the wire are answered, and one whose outcome stays open ends the write, with
        `why`.
        """
        self.split(batch, parts)
        if self._idempotent:
            state = self._state(batch)
            state.next_sequence = batch.base_sequence
            state.renumbering = why

    def renumbering(self, batch: ProducerBatch) -> KafkaSinkError | None:
        """What ends the write if `batch` may be written after all; None where that does not matter."""
        return self._state(batch).renumbering

    def unanswered(self) -> Iterator[ProducerBatch]:
        """All numbered batches without a final answer, oldest first in each partition."""
        for state in self._partitions.values():
            yield from state.unanswered


def _forget_numbers(state: _PartitionState) -> None:
    """All of them are in their queue, in order, and are numbered anew from there."""
    for batch in state.unanswered:
        batch.base_sequence = NO_SEQUENCE
    state.unanswered.clear()
    state.overtaking = 0
    state.renumbering = None
