"""One replica's state of producers: the last five batches of each, its open transaction (KIP-98), and what a leader
remembers between asking a coordinator of a transaction and appending its first batch (KIP-890).

Leader and followers build the state from the batches in their logs; after a truncation they rebuild it from the rest.
So a new leader knows exactly the batches that it has.

A marker that raises the epoch
removes the producer's batches; a marker with the same epoch keeps them.

Not modelled: that the state expires, a day after the timestamps of the records.

Source: ProducerStateManager, ProducerStateEntry, ProducerAppendInfo, VerificationGuard, VerificationStateEntry,
UnifiedLog (maybeStartTransactionVerification, updateProducers) in Kafka (of 2.1.1 and 2.8.2, too); KIP-360 and KIP-890
(what a producer without state may begin with, and markers of transaction version 2), KAFKA-19999 (such a marker sent
again).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from model.record_batches import EndTransactionMarker, RecordBatch, Refused, decode_marker, next_sequence


@dataclass(slots=True, eq=False)
class Verification:
    """`lowest_sequence`: of the batches that came under it; a later one must not be appended first. `starts_at_0`: a
    producer without state must begin with sequence 0 (transaction version 2)."""

    producer_epoch: int
    lowest_sequence: int
    starts_at_0: bool


REMEMBERED_BATCHES = 5
NO_OFFSET = -1


class BatchMetadata(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int


@dataclass(slots=True)
class ProducerEntry:
    """`transaction_start_offset`: NO_OFFSET without an open transaction."""

    producer_epoch: int
    last_timestamp_ms: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    transaction_start_offset: int = NO_OFFSET
    coordinator_epoch: int = -1

    @property
    def has_open_transaction(self) -> bool:
        return self.transaction_start_offset != NO_OFFSET

    def raise_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()


class ProducerState:
    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch of the same sequences. Its bytes are not compared: Kafka does not either."""
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.producer_epoch != batch.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((known for known in entry.batches if known[:2] == wanted), None)

    def check(
        self, batch: RecordBatch, verification: Verification | None = None, *, takes_unknown: bool = True
    ) -> None:
        """Raises Refused unless `batch`, which is no duplicate, follows on what its producer wrote last. Of a producer
        without state anything is taken, unless not `takes_unknown`: then a producer begins at 0.
        `verification`: of this producer, whether or not `batch` came under it."""
        entry = self._entries.get(batch.producer_id)
        self._check_epoch(entry, batch.producer_epoch)
        is_unknown = entry is None or (not entry.batches and entry.producer_epoch == batch.producer_epoch)
        if is_unknown and batch.base_sequence != 0 and not takes_unknown:
            raise Refused(ErrorCode.unknown_producer_id, f"{batch.base_sequence} without a state")
        if verification is not None:
            is_new = entry is None or not entry.batches
            if verification.starts_at_0 and batch.base_sequence != 0 and is_new:
                raise Refused(ErrorCode.out_of_order_sequence_number, f"{batch.base_sequence} without a state")
            if batch.base_sequence > verification.lowest_sequence:
                raise Refused(ErrorCode.out_of_order_sequence_number, f"{verification.lowest_sequence} came before")
        if entry is None:
            return
        is_fresh = batch.producer_epoch > entry.producer_epoch or not entry.batches
        expected = 0 if is_fresh else next_sequence(entry.batches[-1].last_sequence)
        if batch.base_sequence != expected:
            raise Refused(ErrorCode.out_of_order_sequence_number, f"{batch.base_sequence}, not {expected}")
        if entry.has_open_transaction and not batch.is_transactional:
            raise Refused(ErrorCode.invalid_txn_state, "not transactional in a transaction")

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """All that a batch without a sequence is held to."""
        self._check_epoch(self._entries.get(producer_id), producer_epoch)

    def _check_epoch(self, entry: ProducerEntry | None, producer_epoch: int) -> None:
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise Refused(ErrorCode.invalid_producer_epoch, f"{producer_epoch} < {entry.producer_epoch}")

    def check_marker(self, marker: EndTransactionMarker) -> None:
        """Raises Refused for a marker of an older transaction, or of a coordinator that has been replaced."""
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, marker.producer_epoch)
        raises_epoch = marker.producer_epoch > entry.producer_epoch
        # Version 2 raises the epoch with every marker: any other is late, unless it is the last one sent again.
        if marker.transaction_version >= 2 and not raises_epoch and entry.has_open_transaction:
            raise Refused(ErrorCode.invalid_producer_epoch, f"{marker.producer_epoch} is open")
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise Refused(ErrorCode.transaction_coordinator_fenced, f"{marker.coordinator_epoch}")

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None) -> bool:
        """`producer_epoch`: None for any."""
        entry = self._entries.get(producer_id)
        if entry is None or producer_epoch not in (None, entry.producer_epoch):
            return False
        return entry.has_open_transaction

    def update(self, batch: RecordBatch) -> None:
        """`batch` is in the log. A follower, or a log that is read again, gets here without `check`."""
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            entry = self._entries[batch.producer_id] = ProducerEntry(batch.producer_epoch)
        entry.raise_epoch(batch.producer_epoch)
        if batch.is_control:
            entry.transaction_start_offset = NO_OFFSET
            entry.coordinator_epoch = decode_marker(batch).coordinator_epoch
        else:
            entry.batches.append(
                BatchMetadata(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.next_offset)
            )
            if batch.is_transactional and not entry.has_open_transaction:
                entry.transaction_start_offset = batch.base_offset
        entry.last_timestamp_ms = batch.max_timestamp

    def rebuild(self, batches: Iterable[RecordBatch]) -> None:
        self._entries.clear()
        for batch in batches:
            if batch.producer_id >= 0:
                self.update(batch)

    def active(self) -> dict[int, ProducerEntry]:
        return dict(self._entries)
