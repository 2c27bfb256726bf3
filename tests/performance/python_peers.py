"""The Python peers, as Spark's workers import them: a writer that discards, and confluent-kafka in `mapInArrow`.

Written as well as their APIs allow. The writer that discards is the floor of every Python sink: what Spark takes to
bring Arrow batches to a worker. With confluent-kafka a row is a call; its producer is kept by the worker, as a careful
user would, and only failed deliveries call back into Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

FLUSH_TIMEOUT_S = 120.0
QUEUE_FULL_POLL_S = 0.05

Options = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class RowCount(WriterCommitMessage):
    rows: int


class DiscardingWriter(DataSourceArrowWriter):
    def __init__(self, expected_rows: int) -> None:
        self.expected_rows = expected_rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowCount:
        return RowCount(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        check_rows(messages, self.expected_rows)


class DiscardingStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, expected_rows: int) -> None:
        self.expected_rows = expected_rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowCount:
        return RowCount(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        check_rows(messages, self.expected_rows)


def check_rows(messages: Sequence[WriterCommitMessage | None], expected_rows: int) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, RowCount))
    if rows != expected_rows:
        raise AssertionError(f"{expected_rows} rows were written, {rows} arrived")


class DiscardingDataSource(DataSource):
    """`format("discard")`; option `rows`: how many there will be, in each micro-batch of a stream."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingWriter:
        return DiscardingWriter(int(self.options["rows"]))

    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingStreamWriter:
        return DiscardingStreamWriter(int(self.options["rows"]))


def confluent_sink(topic: str, options: Options) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: writes columns `key` and `value` to `topic` and yields nothing."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        producer = _producer(options)
        _failed.clear()
        for batch in batches:
            _produce(producer, topic, batch)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if left or _failed:
            raise RuntimeError(f"{left} rows undelivered, {len(_failed)} failed: {_failed[:1]}")
        return iter(())

    return write


_producers: dict[tuple[tuple[str, str | int | bool], ...], Producer] = {}
_failed: list[str] = []


def _producer(options: Options) -> Producer:
    from confluent_kafka import Producer

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            _failed.append(str(error))

    key = tuple(sorted(options.items()))
    if key not in _producers:
        _producers[key] = Producer({**options, "delivery.report.only.error": True, "on_delivery": delivered})
    return _producers[key]


def _produce(producer: Producer, topic: str, batch: pa.RecordBatch) -> None:
    produce = producer.produce
    for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
        while True:
            try:
                produce(topic, value, key)
                break
            except BufferError:
                producer.poll(QUEUE_FULL_POLL_S)
    producer.poll(0)
