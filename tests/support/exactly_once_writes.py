"""Exactly-once writes in this process, by the code that Spark runs: planning, tasks and commit."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext

from kafka_sink import kept
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

QUERY_ID = "5a0d0a5e-98a3-4f5c-9d3a-2a5d2fb0a8f1"


@contextmanager
def in_task(slot: int, micro_batch_id: int) -> Iterator[None]:
    """Make `TaskContext.get()` return the context of a stream's task."""
    conf = {"sql.streaming.queryId": QUERY_ID, "streaming.sql.batchId": str(micro_batch_id)}
    context = SimpleNamespace(partitionId=lambda: slot, attemptNumber=lambda: 0, stageId=int, _localProperties=conf)
    with patch.object(TaskContext, "get", lambda: context):
        yield


@contextmanager
def own_workers() -> Iterator[None]:
    """Processes that keep no client of others, and end."""
    with patch.object(kept, "KEPT", kept.Kept()):
        try:
            yield
        finally:
            kept.KEPT.close()


def run_tasks(
    planned: KafkaBatchWriter | KafkaStreamWriter, rows: Sequence[Sequence[str]], micro_batch_id: int = 0
) -> list[TaskCommitMessage]:
    """Run a task for each of `rows`."""
    receipts = []
    for slot, values in enumerate(rows):
        with in_task(slot, micro_batch_id):
            receipts.append(planned.write(iter([pa.record_batch({"value": pa.array(values)})])))
    return receipts


Writer = TypeVar("Writer", KafkaBatchWriter, KafkaStreamWriter)


def plan(writer: Writer) -> Writer:
    """As tasks get it."""
    made: Writer = pickle.loads(pickle.dumps(writer))
    return made


def write_batch(given: dict[str, Any], rows: Sequence[Sequence[str]]) -> None:
    with own_workers():
        planned = plan(KafkaBatchWriter(given))
        planned.commit(run_tasks(planned, rows))


def write_micro_batch(given: dict[str, Any], rows: Sequence[Sequence[str]], micro_batch_id: int) -> None:
    with own_workers():
        planned = plan(KafkaStreamWriter(given))
        # Spark makes another writer in the process that commits.
        KafkaStreamWriter(given).commit(run_tasks(planned, rows, micro_batch_id), micro_batch_id)
