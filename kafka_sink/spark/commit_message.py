"""What a task tells the driver: proof, from the leaders' answers, of what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.errors import CommitRefused
from kafka_sink.producer.receipts import PartitionReceipt


@dataclass(frozen=True, slots=True)
class TaskReceipt(WriterCommitMessage):
    """One task attempt's rows, all acknowledged. `record_count` is what Spark delivered, counted before sending; the
    sum over `partitions` is what leaders acknowledged; `write` returns only when they agree."""

    spark_partition_id: int
    attempt_number: int
    record_count: int
    partitions: tuple[PartitionReceipt, ...]


def check_all_present(
    messages: Sequence[WriterCommitMessage | None], *, micro_batch_id: int | None
) -> tuple[TaskReceipt, ...]:
    """The receipts, if every task gave one. `micro_batch_id` is None for a batch write. Raises CommitRefused."""
    missing = [index for index, message in enumerate(messages) if message is None]
    if missing:
        raise CommitRefused(micro_batch_id=micro_batch_id, missing=missing, tasks=len(messages))
    return tuple(message for message in messages if isinstance(message, TaskReceipt))
