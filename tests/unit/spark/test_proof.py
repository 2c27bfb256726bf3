from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.errors import WriteKind
from kafka_sink.kafka.producer.runs import PackedRuns
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from kafka_sink.records.columns import RecordColumns
from kafka_sink.spark.proof import Identity, TaskProof, row_identity, stream_identity

QUERY = "2f1c9bd0-0000-4000-8000-000000000000"


def test_tasks_of_a_stream_know_whose_they_are_and_others_know_of_none() -> None:
    properties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "12", "spark.app.id": "a"}
    assert stream_identity(properties) == Identity(QUERY, 12, WriteKind.STREAM)
    with pytest.raises(KeyError):
        stream_identity({"spark.app.id": "a"})


def test_two_writes_of_one_name_in_receipts_are_two_where_rows_are_told_apart() -> None:
    config = sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", "rowIdentity": "true"})
    one, other = (Identity(query_id, 0, WriteKind.BATCH, receipt_name="orders") for query_id in ("1", "2"))
    assert (one.named, Identity(QUERY, 12, WriteKind.STREAM).named) == (other.named, QUERY)
    texts = []
    for identity in (one, other):
        of_rows = row_identity(config, identity, 0)
        assert of_rows is not None
        columns = RecordColumns.from_arrow(pa.record_batch({"value": [b"v"]}), now_ms=0)
        headers = of_rows.added_to(columns, np.array([0])).headers
        assert headers is not None
        texts.append(headers.value.to_pylist())
    assert texts == [[b"t", query_id, b"0", b"0", b"0"] for query_id in (b"1", b"2")]


def test_a_message_grows_by_the_runs_and_little_more() -> None:
    identity = Identity(QUERY, 12, WriteKind.STREAM)
    none, many = (
        len(pickle.dumps(TaskProof("/receipts", identity, "at-least-once", 1, 2, PackedRuns(HERE, bytes(36 * runs)))))
        for runs in (0, 1_000)
    )
    assert none < 700
    assert many - none < 36_000 + 20


HERE = (TopicPartition("t", 0),)
