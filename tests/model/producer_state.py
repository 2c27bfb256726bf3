"""What one replica remembers of idempotent producers: the last five batches of each (KIP-98).

Leader and followers keep it alike, from the batches in their logs; after a truncation it is made again from what is
left. So a new leader knows exactly the batches it has.

Non-obvious: the state expires by the timestamps of the records, not by the time they came, and is looked through at
intervals only. Here that is computed when the producer comes back, which nobody can tell from doing it in time.

Source: ProducerStateManager, ProducerStateEntry, ProducerAppendInfo in Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from model.record_batches import RecordBatch, Refused, next_sequence

REMEMBERED_BATCHES = 5


class BatchMetadata(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int


@dataclass(slots=True)
class ProducerEntry:
    producer_epoch: int
    last_timestamp_ms: int = -1
    appended_ms: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerState:
    def __init__(self, expiration_ms: int, check_interval_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._check_interval_ms = check_interval_ms
        self._entries: dict[int, ProducerEntry] = {}

    def find_duplicate(self, batch: RecordBatch, now_ms: int) -> BatchMetadata | None:
        """The remembered batch of the same sequences. Its bytes are not compared: Kafka does not either."""
        entry = self._entry(batch.producer_id, now_ms)
        if entry is None or entry.producer_epoch != batch.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((known for known in entry.batches if known[:2] == wanted), None)

    def check(self, batch: RecordBatch, now_ms: int) -> None:
        """Raises Refused unless `batch`, which is no duplicate, follows on what its producer wrote last. Of a producer
        without state anything is taken."""
        entry = self._entry(batch.producer_id, now_ms)
        if entry is None:
            return
        if batch.producer_epoch < entry.producer_epoch:
            raise Refused(ErrorCode.invalid_producer_epoch, f"{batch.producer_epoch} < {entry.producer_epoch}")
        is_new_epoch = batch.producer_epoch > entry.producer_epoch
        expected = 0 if is_new_epoch else next_sequence(entry.batches[-1].last_sequence)
        if batch.base_sequence != expected:
            raise Refused(ErrorCode.out_of_order_sequence_number, f"{batch.base_sequence}, not {expected}")

    def update(self, batch: RecordBatch, now_ms: int) -> None:
        """`batch` is in the log. A follower, or a log that is read again, gets here without `check`."""
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.producer_epoch != batch.producer_epoch:
            entry = self._entries[batch.producer_id] = ProducerEntry(batch.producer_epoch)
        entry.batches.append(
            BatchMetadata(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.next_offset)
        )
        entry.last_timestamp_ms = batch.max_timestamp
        entry.appended_ms = now_ms

    def rebuild(self, batches: Iterable[RecordBatch], now_ms: int) -> None:
        """Forgets everything but what `batches`, a log, tell."""
        self._entries.clear()
        for batch in batches:
            if batch.producer_id >= 0:
                self.update(batch, now_ms)

    def _entry(self, producer_id: int, now_ms: int) -> ProducerEntry | None:
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        last_check_ms = now_ms - now_ms % self._check_interval_ms
        # Only a check after the last append can have found the entry as it is now.
        if last_check_ms > entry.appended_ms and last_check_ms - entry.last_timestamp_ms >= self._expiration_ms:
            del self._entries[producer_id]
            return None
        return entry
