"""The place of an export's receipt file, and how the user's Python reads it.

Spark's commit writes the file on the driver's machine (spark/receipt_writer.py). Usually the user's Python runs on the
same machine, and reads the file from the same disk or object store. With Spark Connect the driver is on the server:
there a data source (spark/receipt_source.py) reads the file and returns its rows.

Without `receiptsPath` the folder is a temporary one, and is removed. By default the receipt has a random name, so that
it cannot be confused with another write's. With `txnAppId` or `receiptName` the file of another write may already be
there (writing.py compares).
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_sink.errors import ReceiptsPathUnusable
from kafka_sink.options.config import SinkConfig
from kafka_sink.spark.exactly_once.batch_write import batch_identity
from kafka_sink.spark.receipt_source import ReceiptSource
from kafka_sink.text.redaction import Discreet
from kafka_sink.verification import receipt_file


@dataclass(frozen=True, slots=True, repr=False)
class Place(Discreet):
    """The place of a receipt. `is_remote`: on a Spark Connect server. `is_temporary`: the user set no receiptsPath."""

    folder: str
    name: str
    batch_id: int
    is_remote: bool
    is_temporary: bool

    @property
    def path(self) -> str:
        return f"{self.folder}/{receipt_file.relative_path(self.name, self.batch_id)}"

    def read(self, spark: SparkSession) -> pa.Table:
        """Return the rows of the file (receipt_file.SCHEMA), or no rows if it does not exist.

        Raises OSError, ArrowException, PySparkException.
        """
        if self.is_remote:
            return _read_by_spark(spark, self.path, remove=self.folder if self.is_temporary else "")
        filesystem, path = receipt_file.filesystem_of(self.path)
        try:
            return receipt_file.read(filesystem, path)
        except FileNotFoundError:
            return receipt_file.SCHEMA.empty_table()


@contextmanager
def place_of(config: SinkConfig, *, is_remote: bool) -> Iterator[Place]:
    """Yield the place of the receipt for a batch write with `config`. Raises ReceiptsPathUnusable."""
    said = {name: getattr(config, name) for name in ("txn_app_id", "txn_version", "receipt_name")}
    _, write = batch_identity(said)
    name, batch_id = write.identity.named, write.micro_batch_id
    if config.receipts_path is not None:
        yield Place(config.receipts_path, name, batch_id, is_remote, is_temporary=False)
    elif is_remote:
        # The server creates it and removes it after reading. Its folder for temporary files is unknown here.
        yield Place(f"/tmp/pykafka-{uuid.uuid4().hex}", name, batch_id, is_remote, is_temporary=True)
    else:
        try:
            folder = tempfile.mkdtemp(prefix="pykafka-")
        except OSError as error:
            raise ReceiptsPathUnusable(path=tempfile.tempdir or "/tmp", reason=error.strerror or str(error)) from error
        try:
            yield Place(folder, name, batch_id, is_remote, is_temporary=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _read_by_spark(spark: SparkSession, path: str, *, remove: str) -> pa.Table:
    spark.dataSource.register(ReceiptSource)
    read = spark.read.format(ReceiptSource.name()).options(path=path, remove=remove).load()
    return read.toArrow().cast(receipt_file.SCHEMA)
