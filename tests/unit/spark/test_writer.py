"""What `write_task` does with a producer, seen through one that only remembers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.config import sink_config
from kafka_sink.errors import CommitRefused, DeliveryError, ProducerClosed, ReceiptMismatch, UnexpectedColumn
from kafka_sink.producer.receipts import PartitionReceipt
from kafka_sink.spark import writer
from kafka_sink.spark.commit_message import TaskReceipt
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

CONFIG = sink_config({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})


class Remembering:
    """Producer and write in one."""

    def __init__(self, acknowledged: int | None = None, failure: DeliveryError | None = None) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.record_count = 0
        self.acknowledged = acknowledged
        self.failure = failure
        self.left_with: type[BaseException] | None = None

    def begin(self, *, topic: str | None, partitioner: str) -> Remembering:
        assert topic == "t"
        return self

    def append(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.record_count += batch.num_rows

    def finish(self) -> tuple[PartitionReceipt, ...]:
        if self.failure is not None:
            raise self.failure
        count = self.record_count if self.acknowledged is None else self.acknowledged
        return (PartitionReceipt("t", 0, count, 0, count - 1, 1, 100),)


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(producer: Remembering) -> Remembering:
        @contextmanager
        def lease(config: object) -> Iterator[Remembering]:
            assert config == CONFIG.producer
            try:
                yield producer
            except BaseException as error:
                producer.left_with = type(error)
                raise

        monkeypatch.setattr(writer, "lease", lease)
        return producer

    return use


def batches(*counts: int, **columns: pa.Array) -> Iterator[pa.RecordBatch]:
    for count in counts:
        yield pa.record_batch({"value": pa.array([b"v"] * count, pa.binary()), **columns})


@pytest.mark.parametrize("make", [KafkaBatchWriter, KafkaStreamWriter])
def test_write_reads_its_iterator_to_the_end_and_returns_the_receipts(using: Any, make: type) -> None:
    producer = using(Remembering())
    iterator = batches(3, 0, 5)
    receipt = make(CONFIG).write(iterator)
    assert next(iterator, None) is None
    assert [batch.num_rows for batch in producer.batches] == [3, 0, 5]
    assert receipt == TaskReceipt(0, 0, 8, (PartitionReceipt("t", 0, 8, 0, 7, 1, 100),))


def test_fewer_acknowledged_than_delivered_is_never_a_success(using: Any) -> None:
    producer = using(Remembering(acknowledged=7))
    with pytest.raises(ReceiptMismatch) as failure:
        KafkaBatchWriter(CONFIG).write(batches(8))
    assert (failure.value.received, failure.value.acknowledged) == (8, 7)
    assert producer.left_with is ReceiptMismatch


def test_a_failed_delivery_fails_the_task(using: Any) -> None:
    using(Remembering(failure=ProducerClosed(reason="test")))
    with pytest.raises(ProducerClosed):
        KafkaStreamWriter(CONFIG).write(batches(1))


def test_columns_are_checked_before_any_row_is_handed_over(using: Any) -> None:
    producer = using(Remembering())
    with pytest.raises(UnexpectedColumn):
        KafkaStreamWriter(CONFIG).write(batches(1, extra=pa.array([1])))
    assert producer.batches == []


def test_a_missing_message_is_refused_by_both_commits() -> None:
    receipt = TaskReceipt(0, 0, 0, ())
    with pytest.raises(CommitRefused):
        KafkaBatchWriter(CONFIG).commit([receipt, None])
    with pytest.raises(CommitRefused):
        KafkaStreamWriter(CONFIG).commit([None], 3)
    KafkaBatchWriter(CONFIG).commit([receipt])
    KafkaStreamWriter(CONFIG).commit([receipt], 3)


def test_abort_never_raises() -> None:
    KafkaBatchWriter(CONFIG).abort([None])
    KafkaStreamWriter(CONFIG).abort([None], 3)
