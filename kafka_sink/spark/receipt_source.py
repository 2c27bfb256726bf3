"""One receipt file as a DataFrame, read by the driver. Clients on another machine need it, as with Spark Connect.

With `spark.read.parquet` executors would read a path that may be on the driver's own disk. The driver makes the
partitions of a data source and sends them to tasks. So the content of the file is the only partition here. It is small:
100 bytes for each record batch.

    option path     the file; no rows if it does not exist
    option remove   a folder to remove after the read
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_sink.verification import receipt_file


class ReceiptSource(DataSource):
    """It reads and does not write."""

    @classmethod
    def name(cls) -> str:
        return "pykafka-receipt"

    def schema(self) -> str:
        return receipt_file.SPARK_SCHEMA

    def reader(self, schema: StructType) -> ReceiptReader:
        return ReceiptReader(self.options["path"], self.options.get("remove", ""))


class ReceiptReader(DataSourceReader):
    def __init__(self, path: str, remove: str) -> None:
        self.path = path
        self.remove = remove

    def partitions(self) -> Sequence[InputPartition]:
        """Return the file as one partition. Runs on the driver. Raises OSError, ArrowException."""
        filesystem, path = receipt_file.filesystem_of(self.path)
        try:
            table = receipt_file.read(filesystem, path)
        except FileNotFoundError:
            table = receipt_file.SCHEMA.empty_table()
        if self.remove:
            shutil.rmtree(self.remove, ignore_errors=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return [InputPartition(sink.getvalue().to_pybytes())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(partition.value)
