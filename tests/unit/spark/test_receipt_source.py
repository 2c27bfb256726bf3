"""A receipt file, read where the driver is, and brought in a task."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from kafka_sink.spark.receipt_source import ReceiptReader, ReceiptSource
from kafka_sink.verification.receipt_file import SCHEMA, columns_of

RUNS = columns_of([{"topic": "t", "partition": 3, "base_offset": None, "rows": 7, "record_count": 7}])


def read(path: Path, remove: str = "") -> pa.Table:
    reader = ReceiptSource({"path": str(path), "remove": remove}).reader(StructType())
    (partition,) = reader.partitions()
    # The reader travels to the task as well.
    there: ReceiptReader = pickle.loads(pickle.dumps(reader))
    return pa.Table.from_batches(there.read(pickle.loads(pickle.dumps(partition))), SCHEMA)


def test_the_rows_of_the_file_and_what_was_temporary_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "r" / "query_id=a"
    folder.mkdir(parents=True)
    pq.write_table(RUNS, folder / "b.parquet")
    assert read(folder / "b.parquet").equals(RUNS)
    assert folder.exists()
    assert read(folder / "b.parquet", remove=str(tmp_path / "r")).equals(RUNS)
    assert list(tmp_path.iterdir()) == []


def test_no_file_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "b.parquet").num_rows == 0
