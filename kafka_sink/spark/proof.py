"""A task's part of the receipt file that `receiptsPath` asks for, as its commit message brings it to the driver.

It also brings what the committing process does not know of itself: the query, whose micro-batch it is (tasks have both
as local properties), and `receiptsPath`, which may be said by Spark's conf (source.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.errors import WriteKind
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.producer.runs import PackedRuns
from kafka_sink.options.config import SinkConfig
from kafka_sink.records.row_identity import RowIdentity
from kafka_sink.text.redaction import Discreet

# A batch write without a version is one micro-batch of a query of its own.
ONLY_MICRO_BATCH = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Which micro-batch or batch write it is. `receipt_name`: what a user calls a batch write (`receiptName`), perhaps
    another one too: good for a receipt, which one may replace, and not for rows, which a reader would leave out."""

    query_id: str
    batch_id: int
    kind: WriteKind
    receipt_name: str | None = None

    @property
    def named(self) -> str:
        """What its receipt has as the query's id."""
        return self.receipt_name or self.query_id


@dataclass(frozen=True, slots=True, repr=False)
class TaskProof(Discreet):
    """`runs` is None where the rows were there already, and no attempt knows any more where. Times are the executor's
    wall clock."""

    receipts_path: str
    identity: Identity
    guarantee: str
    started_ms: int
    ended_ms: int
    runs: PackedRuns | None


def task_proof(
    config: SinkConfig, identity: Identity | None, started_ms: int, runs: PackedRuns | None
) -> TaskProof | None:
    """Of a task that ends now; None where no receipt file is asked for. `identity` is None only then."""
    if config.receipts_path is None or identity is None:
        return None
    return TaskProof(config.receipts_path, identity, config.delivery_guarantee, started_ms, wall_clock_ms(), runs)


def row_identity(config: SinkConfig, identity: Identity | None, slot: int) -> RowIdentity | None:
    """What a task's rows say of themselves, where they are to; None: nothing."""
    if not config.row_identity or identity is None:
        return None
    return RowIdentity(identity.query_id, identity.batch_id, slot, config.topic)


def stream_identity(local_properties: Mapping[str, str]) -> Identity:
    """Of the micro-batch that a stream's task belongs to; `local_properties`: the task's."""
    return Identity(
        local_properties["sql.streaming.queryId"], int(local_properties["streaming.sql.batchId"]), WriteKind.STREAM
    )
