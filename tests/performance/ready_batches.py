"""A Python source whose Arrow batches are made beforehand: the least that Spark takes for a Python source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

BATCH_ROWS = 64 * 1024
_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
_HEADERS = "headers array<struct<key string, value binary>>"


class ReadyDataSource(DataSource):
    """Options: `rows`, `value_bytes`, `headers` (of a row) and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return f"{_COLUMNS}, {_HEADERS}" if int(self.options["headers"]) else _COLUMNS

    def reader(self, schema: object) -> DataSourceReader:
        names = ("rows", "value_bytes", "headers", "partitions")
        return ReadyReader(*(int(self.options[name]) for name in names))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int, headers: int, partitions: int) -> None:
        self._rows, self._value_bytes, self._headers, self._partitions = rows, value_bytes, headers, partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._rows // self._partitions
        whole = self._batch(min(BATCH_ROWS, left))
        while left:
            rows = min(left, whole.num_rows)
            yield whole.slice(0, rows)
            left -= rows

    def _batch(self, rows: int) -> pa.RecordBatch:
        def binary(size: int) -> pa.Array:
            offsets = pa.py_buffer(
                memoryview(bytearray(b"".join((n * size).to_bytes(4, "little") for n in range(rows + 1))))
            )
            return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(os.urandom(rows * size))])

        columns = {
            "key": binary(8),
            "value": binary(self._value_bytes),
            "topic": pa.array(["orders"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
        }
        if self._headers:
            pairs = [{"key": f"header-{number}", "value": b"1234567"} for number in range(self._headers)]
            of_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            columns["headers"] = pa.array([pairs] * rows, of_type)
        return pa.RecordBatch.from_pydict(columns)
