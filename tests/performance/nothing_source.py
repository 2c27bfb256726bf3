"""A Python source and sink that do nothing: what Spark itself takes to start the processes of a Python source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from python_peers import DiscardingStreamWriter, DiscardingWriter

PARTITIONS = 4


class NothingDataSource(DataSource):
    """`format("nothing")`; option `rows`: how many a read has, and a write must have."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "key binary, value binary"

    def reader(self, schema: object) -> NothingReader:
        return NothingReader(int(self.options["rows"]))

    def streamReader(self, schema: object) -> NothingStreamReader:
        return NothingStreamReader(int(self.options["rows"]))

    def writer(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingWriter:
        return DiscardingWriter(int(self.options["rows"]))

    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> DiscardingStreamWriter:
        return DiscardingStreamWriter(int(self.options["rows"]))


class NothingReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = self._rows // PARTITIONS
        values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(bytes(4 * rows + 4)), pa.py_buffer(b"")])
        yield pa.RecordBatch.from_arrays([values, values], ["key", "value"])


class NothingStreamReader(NothingReader, DataSourceStreamReader):
    """All rows are in the first micro-batch."""

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:
        return {"offset": 1}

    def partitions(self, start: object = None, end: object = None) -> Sequence[InputPartition]:
        return super().partitions()

    def commit(self, end: object) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""
