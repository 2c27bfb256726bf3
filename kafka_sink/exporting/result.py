"""The result of an export by partition: from its receipt file to a table for terminals and notebooks.

PARTITION   RECORDS        OFFSETS  BATCHES    BYTES
orders-0        509        0 - 508        1  16.8 kB
orders-1        491        0 - 490        1  16.2 kB
2 partitions, 1,000                       2  33.0 kB

1,000 rows of at-least-once in 0.81 s
"""

from __future__ import annotations

import html
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_sink.errors import ReceiptsPathUnusable
from kafka_sink.errors.quoting import quoted
from kafka_sink.errors.redaction import Discreet, redacted
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.options.config import SinkConfig
from kafka_sink.records import receipt_file
from kafka_sink.spark.exactly_once.plan import batch_identity

_HEADS = ("PARTITION", "RECORDS", "OFFSETS", "BATCHES", "BYTES")
# Partitions in the table. The field `partitions` has all of them.
MAX_SHOWN = 40


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ExportResult:
    """The result of an export.

    - `rows`: rows that Spark delivered: the written, `dropped` and `dead_lettered` rows together. None if no receipt
      surely belongs to this write: nothing was written, or the receipt could not be written or read (the driver's log
      has the reason)
    - `partitions`: sorted, with those of the dead letter topic. Rows whose place is unknown are in none
    - `duration_s`: duration of Spark's write, by this machine's clock
    - `path`: the receipt file, if the user asked for one
    - `was_written_before`: True if this txnVersion was skipped, because it or a later one had been written. None if
      that is unknown. The file at `path` is then from an earlier run, which may never have been committed, so the
      result does not use it
    """

    topic: str | None
    guarantee: str
    duration_s: float
    rows: int | None = None
    dropped: int = 0
    dead_lettered: int = 0
    partitions: tuple[PartitionOffsets, ...] = ()
    path: str | None = None
    was_written_before: bool | None = False

    @property
    def written(self) -> int | None:
        """Rows in their own topics, without dropped rows and dead letters."""
        return None if self.rows is None else self.rows - self.dropped - self.dead_lettered

    @property
    def batch_count(self) -> int:
        return sum(each.batch_count for each in self.partitions)

    @property
    def batch_bytes(self) -> int:
        """Bytes in the log, with headers and compression."""
        return sum(each.batch_bytes for each in self.partitions)

    @property
    def summary(self) -> str:
        """The result in one line."""
        parts = [self._what_was_written()]
        parts += [f"{self.dropped:,} bad rows dropped"] if self.dropped else []
        parts += [f"{self.dead_lettered:,} bad rows in the dead-letter topic"] if self.dead_lettered else []
        parts += [f"receipt: {quoted(redacted(self.path))}"] if self.path is not None else []
        return "; ".join(parts)

    def _what_was_written(self) -> str:
        if self.was_written_before:
            return "nothing was written: this txnVersion or a later one was written before"
        took = f"in {self.duration_s:.2f} s"
        if self.was_written_before is None:
            return (
                f"this txnVersion or a later one is written, now or before, {self.guarantee}, {took}; there is no "
                "receipt of it, see the driver's log"
            )
        if self.rows is None:
            return f"all rows were written, {self.guarantee}, {took}; there is no receipt of them, see the driver's log"
        return f"{self.rows:,} rows, {self.guarantee}, {took}"

    def __repr__(self) -> str:
        table = self._cells()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table]
        return "\n".join([*(lines if self.partitions else ()), *([""] if self.partitions else ()), self.summary])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        body = "".join(_html_row(row, "td") for row in rows)
        table = f"<table><thead>{_html_row(head, 'th')}</thead><tbody>{body}</tbody></table>" if self.partitions else ""
        return f"{table}<p>{html.escape(self.summary)}</p>"

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [_HEADS, *map(_row, self.partitions[:MAX_SHOWN])]
        if more := len(self.partitions) - MAX_SHOWN:
            rows += [(f"... {more:,} more", "", "", "", "")] if more > 0 else []
        records = sum(each.record_count for each in self.partitions)
        total = "1 partition" if len(self.partitions) == 1 else f"{len(self.partitions):,} partitions"
        return [*rows, (total, f"{records:,}", "", f"{self.batch_count:,}", size_text(self.batch_bytes))]


def _row(each: PartitionOffsets) -> tuple[str, ...]:
    offsets = "unknown" if each.first_offset is None else f"{each.first_offset:,} - {each.last_offset:,}"
    return (
        quoted(f"{each.topic}-{each.partition}"), f"{each.record_count:,}", offsets, f"{each.batch_count:,}",
        size_text(each.batch_bytes),
    )  # fmt: skip


def _html_row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def size_text(size_bytes: int) -> str:
    """Return the size with a decimal unit and one decimal place."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


# --- from the receipt file --------------------------------------------------------------------------------------------


def rows_of(runs: pa.Table) -> int:
    """Return the number of rows of the write. Each row of the file has it."""
    return int(runs["rows"][0].as_py())


def dropped_of(runs: pa.Table) -> int:
    return int(pc.sum(runs["dropped"]).as_py() or 0)


def partitions_of(runs: pa.Table) -> tuple[PartitionOffsets, ...]:
    """Sum up a receipt file's rows, one for each record batch (receipt_file.COLUMNS). Rows without a place are left
    out."""
    placed = runs.filter(pc.is_valid(runs["topic"]))
    ends = pc.subtract(pc.add(placed["base_offset"], placed["record_count"]), 1)
    summed = (
        placed.append_column("last_offset", ends)
        .group_by(["topic", "partition"])
        .aggregate([
            ("record_count", "sum"), ("record_count", "count"), ("batch_bytes", "sum"), ("base_offset", "min"),
            ("last_offset", "max"),
        ])
        .sort_by([("topic", "ascending"), ("partition", "ascending")])
    )  # fmt: skip
    return tuple(
        PartitionOffsets(
            topic=row["topic"],
            partition=row["partition"],
            record_count=row["record_count_sum"],
            first_offset=row["base_offset_min"],
            last_offset=row["last_offset_max"],
            batch_count=row["record_count_count"],
            batch_bytes=row["batch_bytes_sum"],
        )
        for row in summed.to_pylist()
    )


# --- where the receipt is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Place(Discreet):
    """The place of a receipt, which Spark's commit writes on the driver's machine (spark/receipt_writer.py).

    Usually this Python is on the same machine, and reads the file itself. `is_remote`: the driver is on a Spark Connect
    server, where `ReceiptSource` reads it. `is_temporary`: the user set no receiptsPath, so the folder is removed.
    `name` is random by default. With `txnAppId` or `receiptName` another write's file may already be there.
    """

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
        return read_receipt(self.path)


@contextmanager
def place_of(config: SinkConfig, *, is_remote: bool) -> Iterator[Place]:
    """Yield the place of the receipt for a batch write with `config`. Raises ReceiptsPathUnusable."""
    options = {name: getattr(config, name) for name in ("txn_app_id", "txn_version", "receipt_name")}
    _, write = batch_identity(options)
    name, batch_id = write.named, write.batch_id
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


def read_receipt(path: str) -> pa.Table:
    """Return the rows of the file, or no rows if it does not exist. Raises OSError, ArrowException."""
    filesystem, path = receipt_file.filesystem_of(path, within)
    try:
        return receipt_file.read(filesystem, path)
    except FileNotFoundError:
        return receipt_file.SCHEMA.empty_table()


def _read_by_spark(spark: SparkSession, path: str, *, remove: str) -> pa.Table:
    spark.dataSource.register(ReceiptSource)
    read = spark.read.format(ReceiptSource.name()).options(path=path, remove=remove).load()
    return read.toArrow().cast(receipt_file.SCHEMA)


# Sail reads the TIMESTAMP of a schema's text as a time without a zone, so times travel as the microseconds they are.
_SENT = receipt_file.SPARK_SCHEMA.replace("TIMESTAMP", "BIGINT")
SENT_TYPES = pa.schema([
    field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in receipt_file.SCHEMA
])  # fmt: skip


class ReceiptSource(DataSource):
    """One receipt file as a DataFrame, read by the driver: for clients on another machine, as with Spark Connect.

    With `spark.read.parquet` executors would read a path that may be on the driver's own disk. The driver makes the
    partitions of a data source and sends them to tasks, so the content of the file is the only partition here. Option
    `path`: the file; no rows if it does not exist. Option `remove`: a folder to remove after the read.
    """

    @classmethod
    def name(cls) -> str:
        return "pykafka-receipt"

    def schema(self) -> str:
        return _SENT

    def reader(self, schema: StructType) -> ReceiptReader:
        return ReceiptReader(self.options["path"], self.options.get("remove", ""))


class ReceiptReader(DataSourceReader):
    def __init__(self, path: str, remove: str) -> None:
        self.path = path
        self.remove = remove

    def partitions(self) -> Sequence[InputPartition]:
        """Return the file as one partition. Runs on the driver. Raises OSError, ArrowException."""
        table = read_receipt(self.path).cast(SENT_TYPES)
        if self.remove:
            shutil.rmtree(self.remove, ignore_errors=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return [InputPartition(sink.getvalue().to_pybytes())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(partition.value)
