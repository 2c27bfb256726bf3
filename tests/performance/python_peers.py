"""The Python peers, as Spark's workers import them, written as well as their APIs allow.

The writer that discards is the floor of every Python sink: what Spark takes to bring Arrow batches to a worker. The
source whose batches are made beforehand is that of every source; the one without values is what Spark takes to start
processes. With confluent-kafka a row is a call; its producer is kept by the worker, as a careful user would, and only
failed deliveries call back into Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql import types as spark_types

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

FLUSH_TIMEOUT_S = 120.0
QUEUE_FULL_POLL_S = 0.05
BATCH_ROWS = 64 * 1024
# Of a source or sink that does nothing.
PARTITIONS = 4

Options = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class RowCount(datasource.WriterCommitMessage):
    rows: int


class DiscardingWriter(datasource.DataSourceArrowWriter):
    def __init__(self, expected_rows: int) -> None:
        self.expected_rows = expected_rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowCount:
        return RowCount(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        rows = sum(message.rows for message in messages if isinstance(message, RowCount))
        if rows != self.expected_rows:
            raise AssertionError(f"{self.expected_rows} rows were written, {rows} arrived")


class DiscardingStreamWriter(datasource.DataSourceStreamArrowWriter):
    def __init__(self, expected_rows: int) -> None:
        self._writer = DiscardingWriter(expected_rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowCount:
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages)


class DiscardingDataSource(datasource.DataSource):
    """`format("discard")`; option `rows`: how many there will be, in each micro-batch of a stream."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingWriter:
        return DiscardingWriter(int(self.options["rows"]))

    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingStreamWriter:
        return DiscardingStreamWriter(int(self.options["rows"]))


class ReadyDataSource(DiscardingDataSource):
    """`format("ready")`; options of a read: `rows`, `value_bytes`, `headers` (of a row) and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        columns = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        headers = ", headers array<struct<key string, value binary>>" if int(self.options.get("headers", 0)) else ""
        return f"{columns}timestampType int{headers}"

    def reader(self, schema: object) -> ReadyReader:
        return ReadyReader(self.options)

    def streamReader(self, schema: object) -> ReadyStreamReader:
        return ReadyStreamReader(self.options)


class NothingDataSource(ReadyDataSource):
    """`format("nothing")`: with rows without values."""

    @classmethod
    def name(cls) -> str:
        return "nothing"


class ReadyReader(datasource.DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        defaults = {"value_bytes": 0, "headers": 0, "partitions": PARTITIONS}
        self._given = {name: int(options.get(name, defaults.get(name, 0))) for name in ("rows", *defaults)}

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return [datasource.InputPartition(number) for number in range(self._given["partitions"])]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._given["rows"] // self._given["partitions"]
        whole = self._batch(min(BATCH_ROWS, left))
        while left:
            rows = min(left, whole.num_rows)
            yield whole.slice(0, rows)
            left -= rows

    def _batch(self, rows: int) -> pa.RecordBatch:
        def binary(size: int) -> pa.Array:
            offsets = b"".join((n * size).to_bytes(4, "little") for n in range(rows + 1))
            values = pa.py_buffer(os.urandom(rows * size))
            return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), values])

        columns = {
            "key": binary(8), "value": binary(self._given["value_bytes"]), "topic": pa.array(["orders"] * rows),
            "partition": pa.array([0] * rows, pa.int32()), "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
        }  # fmt: skip
        if self._given["headers"]:
            pairs = [{"key": f"header-{number}", "value": b"1234567"} for number in range(self._given["headers"])]
            of_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            columns["headers"] = pa.array([pairs] * rows, of_type)
        return pa.RecordBatch.from_pydict(columns)


class ReadyStreamReader(ReadyReader, datasource.DataSourceStreamReader):
    """All rows are in the first micro-batch."""

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:
        return {"offset": 1}

    def partitions(self, start: object = None, end: object = None) -> Sequence[datasource.InputPartition]:
        return super().partitions()

    def commit(self, end: object) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""


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
