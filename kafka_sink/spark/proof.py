"""A task's part of the receipt file (option `receiptsPath`), which the task's commit message brings to the driver.

It also brings facts that the committing process cannot know: the query and the micro-batch, which tasks have as local
properties, and `receiptsPath`, which may come from Spark's conf (source.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_sink.errors import WriteKind
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.options.config import SinkConfig
from kafka_sink.text.redaction import Discreet

if TYPE_CHECKING:
    from kafka_sink.kafka.producer.runs import PackedRuns
    from kafka_sink.records.row_identity import RowIdentity

# A batch write without a version is the only micro-batch of its own query.
ONLY_MICRO_BATCH = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a micro-batch or batch write.

    `receipt_name`: the user's name for a batch write (`receiptName`). Several writes may have the same name. So it
    names receipts, where the last one replaces the others, but never rows, which a reader would drop as duplicates.
    """

    query_id: str
    batch_id: int
    kind: WriteKind
    receipt_name: str | None = None

    @property
    def named(self) -> str:
        """The query id in the receipt."""
        return self.receipt_name or self.query_id


@dataclass(frozen=True, slots=True, repr=False)
class TaskProof(Discreet):
    """A task's part of the receipt file.

    `runs` is None if the rows were visible before, because then their offsets are unknown. Times are ms since 1970, by
    the executor's wall clock.
    """

    receipts_path: str
    identity: Identity
    guarantee: str
    started_ms: int
    ended_ms: int
    runs: PackedRuns | None


def task_proof(
    config: SinkConfig, identity: Identity | None, started_ms: int, runs: PackedRuns | None
) -> TaskProof | None:
    """Return the proof of a task that ends now, or None if no receipt file is asked for.

    `identity` may be None only if no receipt file is asked for.
    """
    if config.receipts_path is None or identity is None:
        return None
    return TaskProof(config.receipts_path, identity, config.delivery_guarantee, started_ms, wall_clock_ms(), runs)


def row_identity(config: SinkConfig, identity: Identity | None, slot: int) -> RowIdentity | None:
    """Return the identity for the headers of a task's rows, or None if the option rowIdentity is off."""
    if not config.row_identity or identity is None:
        return None
    from kafka_sink.records.row_identity import RowIdentity

    return RowIdentity(identity.query_id, identity.batch_id, slot, config.topic)


def stream_identity(local_properties: Mapping[str, str]) -> Identity:
    """Return the identity of the micro-batch of a stream's task. `local_properties`: the task's."""
    return Identity(
        local_properties["sql.streaming.queryId"], int(local_properties["streaming.sql.batchId"]), WriteKind.STREAM
    )
