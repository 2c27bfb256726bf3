"""Who a record batch is from, and what one says that is from nobody in particular."""

from __future__ import annotations

from dataclasses import dataclass

# RecordBatch.NO_SEQUENCE
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """Who a batch is from. `is_transactional` is here, and not beside it, because a batch that went out under a
    transaction's ids without the transactional bit would be written outside of it, and nobody would object."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool = False


# What the batches of a producer without idempotence say of it (RecordBatch.NO_PRODUCER_ID, NO_PRODUCER_EPOCH).
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
