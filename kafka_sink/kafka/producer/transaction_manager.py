"""The transaction of a producer's batches, and the partitions that its coordinator has added to it.

    IDLE ──begin──> OPEN ──end──> IDLE

Other code begins and ends the transaction in Kafka (`commit/`). InitProducerId comes before `begin`. The marker and
EndTxn come after the last acknowledgement, even from other processes. The producer does the rest. It numbers its
batches by the transaction's ids, and names the transaction in each Produce request. On brokers of transaction version 1
it has each partition added before it writes to it. On version 2 a leader asks the coordinator to add a partition when
the first batch arrives (KIP-890). The coordinator serves one leader at a time. It refuses the others, which ask again
after 20 ms. So one Produce request at a time has partitions that are new in the transaction.

A refused batch or partition fails the write, as without transactions. The InitProducerId of the next attempt aborts
what was written. So no transaction continues after an error, and this module recovers nothing.

Pure. Only the Sender uses it, except `begin` and `end`: a writer calls them under the lock while nothing is queued.

Source: Kafka's TransactionManager (addPartitionsToTransaction, AddPartitionsToTxnHandler);
AddPartitionsToTxnManager with its add.partitions.to.txn.retry.backoff.ms; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kafka_sink.errors import AcknowledgedRowsGone, TopicAuthorizationFailed, TransactionRefused
from kafka_sink.kafka.coordinators import Ask, Coordinators
from kafka_sink.kafka.metadata import NO_LEADER
from kafka_sink.kafka.producer.producer_batch import ProducerIdAndEpoch
from kafka_sink.kafka.producer.sequences import SEQUENCE_COUNT
from kafka_sink.kafka.protocol.api import PartitionsResponse
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind
from kafka_sink.kafka.protocol.apis.transactions import AddPartitionsToTxnRequest, transaction_refused
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, meaning
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# Brokers of transaction version 2 add partitions without AddPartitionsToTxn.
ADDS_PARTITIONS_ITSELF = 2
# An add takes 2 to 8 ms, and two at once cost a pause of 20 ms. A request is answered only when its rows are
# replicated, so others wait no longer than this.
JOIN_PATIENCE_MS = 10


@dataclass(frozen=True, slots=True)
class Transaction:
    """One run of a transactional id, which other code has begun.

    `version`: 1 or 2, the brokers' `transaction.version`.
    `timeout_ms`: after this time brokers abort the transaction; None if that is long after the write.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    timeout_ms: int | None = None


class State(Enum):
    IDLE = auto()
    OPEN = auto()


TRANSITIONS: dict[tuple[State, str], State] = {(State.IDLE, "begin"): State.OPEN, (State.OPEN, "end"): State.IDLE}


class TransactionManager:
    """`delivery_timeout_ms` limits how long adding partitions may take, as it limits a batch."""

    def __init__(self, coordinators: Coordinators, *, delivery_timeout_ms: int) -> None:
        self._coordinators = coordinators
        self._delivery_timeout_ms = delivery_timeout_ms
        self._state = State.IDLE
        # The open transaction.
        self.transaction: Transaction | None = None
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._adding: Ask | None = None
        # Version 2: the new partitions of unanswered requests, and until when other new partitions wait for them (ms).
        # Then the node of the last such request.
        self._joining: set[TopicPartition] = set()
        self._joining_until_ms = 0
        self._last_joining = NO_LEADER
        # Of each partition's latest acknowledged batch: its first sequence, and its first and last offset.
        self._latest: dict[TopicPartition, tuple[int, int, int]] = {}

    def begin(self, transaction: Transaction) -> ProducerIdAndEpoch:
        """Put batches into `transaction` from now on. Return the producer id and epoch for them."""
        self._step("begin")
        self.transaction = transaction
        return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch, is_transactional=True)

    def end(self) -> None:
        """End the transaction. The producer sends no batch of it any more."""
        self._step("end")
        self.transaction = self._adding = None
        self._added.clear()
        self._wanted.clear()
        self._latest.clear()

    def _step(self, event: str) -> None:
        """Move to the state that TRANSITIONS gives. Raises KeyError for a missing pair, a bug of the caller."""
        self._state = TRANSITIONS[self._state, event]

    def admit(self, led: Mapping[int, deque[TopicPartition]], now_ms: int) -> Mapping[int, deque[TopicPartition]]:
        """Return those of the partitions `led` (by node) that may be written to now. Have the coordinator add the
        others.

        Raises the error that ends the write if the coordinator refuses a partition: AttemptFenced,
        TopicAuthorizationFailed, TransactionRefused.
        """
        transaction = self.transaction
        if transaction is None or transaction.version >= ADDS_PARTITIONS_ITSELF:
            return led
        if self._adding is not None and self._adding.done:
            adding, self._adding = self._adding, None
            self._take(adding)
        for partitions in led.values():
            self._wanted.update((each, None) for each in partitions if each not in self._added)
        if self._adding is None and self._wanted:
            request = AddPartitionsToTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                partitions=tuple(self._wanted),
            )
            self._adding = self._coordinators.ask(
                CoordinatorKind.TRANSACTION,
                transaction.transactional_id,
                request,
                now_ms=now_ms,
                deadline_ms=now_ms + self._delivery_timeout_ms,
            )
        return {node: deque(each for each in partitions if each in self._added) for node, partitions in led.items()}

    def turns(self, node_ids: Iterable[int]) -> list[int]:
        """Return the nodes in the order in which they get new partitions: those after the last one first."""
        return sorted(node_ids, key=lambda node_id: (node_id <= self._last_joining, node_id))

    def in_turn(self, led: deque[TopicPartition], now_ms: int) -> deque[TopicPartition]:
        """Return those of a leader's partitions that may be written to now: no new ones while others are being
        added."""
        if self.wait_ms(now_ms) is None:
            return led
        return deque(each for each in led if each in self._added)

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long (ms) new partitions wait for others, or None if they need not wait."""
        return self._joining_until_ms - now_ms if self._joining and now_ms < self._joining_until_ms else None

    def sent(self, node_id: int, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """A Produce request with these partitions was sent to the node."""
        if self.transaction is None or self.transaction.version < ADDS_PARTITIONS_ITSELF:
            return
        if new := {each for each in partitions if each not in self._added}:
            self._joining |= new
            self._joining_until_ms = now_ms + JOIN_PATIENCE_MS
            self._last_joining = node_id

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        """The Produce request with these partitions has ended. A partition whose batch failed counts as added, too: at
        worst its next batch meets another leader's, and a broker pauses."""
        if self._joining:
            self._joining.difference_update(partitions)
            self._added.update(partitions)

    def acknowledged(self, partition: TopicPartition, sequence: int, first: int | None, record_count: int) -> None:
        """A batch of the transaction is at offset `first`, None if the leader did not tell. Sequences begin at 0 for
        each partition.

        Raises AcknowledgedRowsGone if the offset does not ascend with the sequence. A log's end goes back only by an
        unclean election. A leader without any state of the producer then takes whatever sequence comes (KIP-360).
        """
        if self.transaction is None or first is None:
            return
        known_sequence, known_first, known_last = self._latest.get(partition, (sequence, -1, -1))
        # After the highest sequence comes 0.
        is_later = (sequence - known_sequence) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2
        # A batch may be acknowledged before an earlier one.
        ascends = first > known_last if is_later else first + record_count <= known_first
        if is_later:
            self._latest[partition] = sequence, first, first + record_count - 1
        if not ascends:
            raise AcknowledgedRowsGone(
                **partition._asdict(),
                offset=first,
                before=known_last if is_later else known_first,
                transactional_id=self.transaction.transactional_id,
            )

    def _take(self, adding: Ask) -> None:
        """Process the coordinator's response, a result for each partition. Raises an error without a response."""
        assert self.transaction is not None
        transactional_id = self.transaction.transactional_id
        if not isinstance(adding.response, PartitionsResponse):
            code = adding.refused or ErrorCode.REQUEST_TIMED_OUT
            name = error_name(adding.refused) if adding.refused else adding.error
            raise TransactionRefused(transactional_id=transactional_id, api="AddPartitionsToTxn", code=code, name=name)
        for result in adding.response.results:
            if result.error_code == ErrorCode.NONE:
                partition = TopicPartition(result.topic, result.partition)
                self._added.add(partition)
                del self._wanted[partition]
            elif result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise TopicAuthorizationFailed(topic=result.topic)
            elif result.error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                raise transaction_refused(transactional_id, "AddPartitionsToTxn", result.error_code)


def is_of_transaction(code: int) -> bool:
    """Return True if a leader's error for Produce is about the transaction and not about the batch."""
    return meaning(code).fenced or code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
