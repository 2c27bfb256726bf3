"""The steps of a delivery guarantee. Each of Spark's writers (`writer.py`) has a guarantee and passes the steps to it.

    planning worker    plan()    when Spark pickles the writer; the results travel to the tasks with the object
    task               write()   one attempt of one Spark partition
    committing worker  commit(), abort()

A stream's commit runs on a new object, made from the options, that has no plan. A batch write's commit runs on a copy
of the object that planned.

Each step runs in a process of its own, which imports what that step needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.errors import WriteKind
from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions
from kafka_sink.spark.task_results import ONLY_MICRO_BATCH, Identity

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.interceptor_chain import InterceptorChain
    from kafka_sink.spark.task_results import TaskCommitMessage


class Guarantee(Protocol):
    def plan(self) -> None:
        """Plan once, before any task. Raises ConfigError, ClusterError, ExactlyOnceError."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task attempt, and return when the leaders have acknowledged every row.

        Raises ConfigError, SchemaError, InterceptorFailed, BadRow, ClusterError, DeliveryError, ExactlyOnceError.
        """

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        """Commit the write.

        `messages`: one for each task, None if a task returned none. `micro_batch_id` is None for a batch write. Raises
        CommitRefused, TooManyBadRows, ClusterError, ExactlyOnceError: then Spark does not record the write.
        """

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a task or `commit` has failed. `messages`: as for `commit`. Never raises."""


class AtLeastOnce:
    """Rows are in Kafka, and visible to all readers, when their task returns.

    There is no plan and no rollback. The rows of a failed attempt stay in Kafka, and the next attempt writes them
    again.

    `identity`: the identity of a batch write, for its receipt and its rows' headers. None for a stream, because its
    tasks know their identity.
    """

    def __init__(self, options: GivenOptions, identity: Identity | None = None) -> None:
        self.options = options
        self.identity = identity

    @classmethod
    def of_batch(cls, options: GivenOptions) -> AtLeastOnce:
        # Spark gives a batch write no id, so make one.
        name = options.get("receipt_name")
        return cls(options, Identity(str(uuid.uuid4()), ONLY_MICRO_BATCH, WriteKind.BATCH, receipt_name=name))

    def plan(self) -> None:
        """Do nothing: at-least-once needs no request before the tasks."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        from kafka_sink.spark.rows import write_rows

        return write_rows(self.options, self.identity, chain, arrow_batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        from kafka_sink.spark.bad_rows import check_bad_rows
        from kafka_sink.spark.rate import tell_too_fast
        from kafka_sink.spark.receipt_writer import leave_receipt
        from kafka_sink.spark.task_results import check_all_present

        receipts = check_all_present(messages, micro_batch_id=micro_batch_id)
        # The rows are in Kafka, so the steps below cannot undo them. They report problems to the user.
        tell_too_fast(receipts)
        leave_receipt(receipts)
        check_bad_rows(receipts, rows_are_written=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: written rows stay in Kafka."""


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


def of_batch(given: GivenOptions) -> Guarantee:
    """Return the guarantee of a batch write with these options."""
    if not is_exactly_once(given):
        return AtLeastOnce.of_batch(given)
    from kafka_sink.spark.exactly_once.guarantee import ExactlyOnceBatch

    return ExactlyOnceBatch(given)


def of_stream(given: GivenOptions, checkpoint: str | None) -> Guarantee:
    """Return the guarantee of a stream with these options and this checkpoint location."""
    if not is_exactly_once(given):
        return AtLeastOnce(given)
    from kafka_sink.spark.exactly_once.guarantee import ExactlyOnceStream

    return ExactlyOnceStream(given, checkpoint)
