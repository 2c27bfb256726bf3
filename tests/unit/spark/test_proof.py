from __future__ import annotations

import pickle

import pytest

from kafka_sink.errors import WriteKind
from kafka_sink.producer.receipts import TopicPartition
from kafka_sink.producer.runs import PackedRuns
from kafka_sink.spark.proof import Identity, TaskProof, stream_identity

QUERY = "2f1c9bd0-0000-4000-8000-000000000000"


def test_tasks_of_a_stream_know_whose_they_are() -> None:
    properties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "12", "spark.app.id": "a"}
    assert stream_identity(properties) == Identity(QUERY, 12, WriteKind.STREAM)


def test_a_task_that_is_no_streams_knows_of_none() -> None:
    with pytest.raises(KeyError):
        stream_identity({"spark.app.id": "a"})


def test_a_message_grows_by_the_runs_and_little_more() -> None:
    identity = Identity(QUERY, 12, WriteKind.STREAM)
    none, many = (
        len(pickle.dumps(TaskProof("/receipts", identity, "at-least-once", 1, 2, PackedRuns(HERE, bytes(36 * runs)))))
        for runs in (0, 1_000)
    )
    assert none < 700
    assert many - none < 36_000 + 20


HERE = (TopicPartition("t", 0),)
