"""The steps of a delivery guarantee. Each of Spark's writers (`writer.py`) has a guarantee and passes the steps to it.

    planning worker    plan()    when Spark pickles the writer; the results travel to the tasks with the object
    task               write()   one attempt of one Spark partition
    committing worker  commit(), abort()

A stream's commit runs on a new object, made from the options, that has no plan. A batch write's commit runs on a copy
of the object that planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.options.config import EXACTLY_ONCE, GivenOptions
from kafka_sink.spark.at_least_once import AtLeastOnce
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.exactly_once.guarantee import ExactlyOnceBatch, ExactlyOnceStream
from kafka_sink.spark.interceptor_chain import InterceptorChain


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


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


def of_batch(given: GivenOptions) -> Guarantee:
    """Return the guarantee of a batch write with these options."""
    return ExactlyOnceBatch(given) if is_exactly_once(given) else AtLeastOnce.of_batch(given)


def of_stream(given: GivenOptions, checkpoint: str | None) -> Guarantee:
    """Return the guarantee of a stream with these options and this checkpoint location."""
    return ExactlyOnceStream(given, checkpoint) if is_exactly_once(given) else AtLeastOnce(given)
