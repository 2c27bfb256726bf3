"""Which batches of a record set belong to aborted transactions, for readers of committed records.

Scope: the list of aborted transactions in a Fetch answer, applied batch by batch in the order of offsets. A transaction
of a producer is aborted from its first offset up to its abort marker. The marker is a control batch of that producer;
after it, the producer's records are of another transaction.

Source: CompletedFetch (consumeAbortedTransactionsUpTo, containsAbortMarker), ControlRecordType; KIP-98.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

from kafka_sink.records.aborted_transaction import AbortedTransaction
from kafka_sink.records.batch_table import Fault
from kafka_sink.records.record_walk import Wrong, read_record

NO_PRODUCER_ID = -1
# The key of a control record: version, and type.
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


class AbortedTransactions:
    """The state after the batches so far. Every batch of the record set must pass it, in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._producer_ids: set[int] = set()

    def __bool__(self) -> bool:
        """False if no batch from here on can be aborted."""
        return bool(self._ahead or self._producer_ids)

    def begin(self, last_offset: int) -> None:
        """Open the transactions that begin up to the last offset of the next batch."""
        while self._ahead and self._ahead[0].first_offset <= last_offset:
            self._producer_ids.add(self._ahead.popleft().producer_id)

    def end(self, producer_id: int) -> None:
        """The next batch is an abort marker."""
        self._producer_ids.discard(producer_id)

    def has(self, producer_id: int) -> bool:
        """The next batch is transactional and of this producer: is it aborted?"""
        return producer_id in self._producer_ids


def is_abort_marker(records: memoryview) -> bool:
    """Return whether the records of a control batch, at least one, begin with an abort marker. Raises Wrong if they
    cannot be read."""
    record = read_record(records, 0, len(records))
    if record.key_length < _CONTROL_KEY.size:
        raise Wrong(Fault.RECORD)
    version, kind = _CONTROL_KEY.unpack_from(records, record.key_at)
    if version < 0:
        raise Wrong(Fault.RECORD)
    return bool(kind == _ABORT)
