"""What a delivery guarantee does at each step of a write. Spark's writers (`writer.py`) hold one and pass steps on.

    planning worker    plan()    when Spark pickles the writer; what it finds travels to tasks with the object
    task               write()   one attempt of one Spark partition
    committing worker  commit(), abort()

A stream's commit runs on an object made from the options again, which has not planned; a batch write's runs on a copy
of the one that has.
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
        """Before any task, and once. Raises ConfigError, ClusterError, ExactlyOnceError."""

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """One task attempt: returns when leaders have acknowledged every row. Raises ConfigError, SchemaError,
        InterceptorFailed, BadRow, ClusterError, DeliveryError, ExactlyOnceError."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        """`messages`: one a task, None where a task left none. `micro_batch_id` is None for a batch write. Raises
        CommitRefused, TooManyBadRows, ClusterError, ExactlyOnceError; Spark does not record the write then."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After a task or `commit` has failed; `messages` as there. Never raises."""


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


def of_batch(given: GivenOptions) -> Guarantee:
    """That of a batch write with these options."""
    return ExactlyOnceBatch(given) if is_exactly_once(given) else AtLeastOnce.of_batch(given)


def of_stream(given: GivenOptions, checkpoint: str | None) -> Guarantee:
    """That of a stream with these options, which keeps its state in `checkpoint`."""
    return ExactlyOnceStream(given, checkpoint) if is_exactly_once(given) else AtLeastOnce(given)
