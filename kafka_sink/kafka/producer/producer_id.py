"""The producer id and epoch of a record batch, and the values for a producer without an id."""

from __future__ import annotations

from dataclasses import dataclass

# RecordBatch.NO_SEQUENCE
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The producer of a batch. `is_transactional` is a field here because the three must agree: a batch with a
    transaction's ids but without the transactional bit would silently be written outside of the transaction."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool = False


# The values in batches of a producer without idempotence (RecordBatch.NO_PRODUCER_ID, NO_PRODUCER_EPOCH).
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
