"""The runs of receipt files, in the order in which a partition is read, and gaps between the files.

In a valid file, records and dropped bad rows add up to the rows that Spark delivered. A file with another sum was
changed and is not a proof. A missing number between two micro-batches of a stream is a micro-batch without a receipt.
Versions (txnVersion) may have gaps. Numbers before the first file are not gaps, because `receiptsPath` may have been
set later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.options.config import EXACTLY_ONCE
from kafka_sink.records import receipt_file

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Run:
    """One record batch as its leader acknowledged it. `file`: the receipt file.

    `base_offset` is never None: records without an offset are `Unplaced`.
    """

    file: str
    query_id: str
    batch_id: int
    is_exactly_once: bool
    topic: str
    topic_id: str | None
    partition: int
    base_offset: int
    record_count: int
    checksum: int
    base_timestamp: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.record_count - 1


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Records at unknown offsets. `topic` and `partition` are None if unknown too."""

    file: str
    topic: str | None
    partition: int | None
    record_count: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The first and last of a query's micro-batches without receipts, between two micro-batches with receipts."""

    query_id: str
    first: int
    last: int


class Receipts:
    """All receipt files at or below a path.

    Runs are kept as columns (300 bytes for each run, with its names), and only a few at a time become objects.
    `unreadable`: (file, problem).
    """

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.files = 0
        self.unreadable: list[tuple[str, str]] = []
        self.row_count = self.dropped_count = 0
        numbers: dict[str, set[int]] = {}
        tables = [receipt_file.SCHEMA.empty_table().append_column("file", pa.array([], pa.string()))]
        for file in receipt_file.paths_in(filesystem, path):
            try:
                table = receipt_file.read(filesystem, file)
                _check(table)
            except (OSError, pa.ArrowException) as error:
                self.unreadable.append((file, str(error).partition("\n")[0]))
                continue
            self.files += 1
            self.row_count += table["rows"][0].as_py()
            self.dropped_count += _sum(table["dropped"])
            query_id, batch_id, kind = (table[name][0].as_py() for name in ("query_id", "batch_id", "kind"))
            if kind == STREAM:
                numbers.setdefault(query_id, set()).add(batch_id)
            tables.append(table.append_column("file", pa.repeat(file, table.num_rows)))
        self.gaps = [gap for query_id in sorted(numbers) for gap in gaps(query_id, sorted(numbers[query_id]))]
        every = pa.concat_tables(tables)
        is_placed = pc.is_valid(every["base_offset"])
        self._unplaced = every.filter(pc.invert(is_placed))
        order = [(name, "ascending") for name in ("guarantee", "topic", "partition", "base_offset")]
        self._placed = every.filter(is_placed).sort_by(order)

    @property
    def run_count(self) -> int:
        return int(self._placed.num_rows)

    @property
    def topics(self) -> list[str]:
        return sorted(self._placed["topic"].unique().to_pylist())

    def runs(self) -> Iterator[Run]:
        """Yield the runs, sorted by guarantee, topic, partition and offset."""
        for row in receipt_file.slices(self._placed):
            yield _run(row)

    def unplaced(self) -> list[Unplaced]:
        return [
            Unplaced(row["file"], row["topic"], row["partition"], row["record_count"])
            for row in receipt_file.slices(self._unplaced)
            if row["record_count"]
        ]


def _run(row: dict[str, Any]) -> Run:
    return Run(
        is_exactly_once=row["guarantee"] == EXACTLY_ONCE,
        **{name: row[name] for name in Run.__slots__ if name != "is_exactly_once"},
    )


def _check(table: pa.Table) -> None:
    """Raise ArrowInvalid if this sink cannot have written the file with this content."""
    if table.num_rows == 0:
        raise pa.ArrowInvalid("it has no rows, but even an empty micro-batch has one row")
    receipt_file.refuse_nulls(table, "query_id", "batch_id", "kind", "guarantee")
    placed = table.select(["base_offset", "checksum", "base_timestamp"]).filter(pc.is_valid(table["base_offset"]))
    receipt_file.refuse_nulls(placed, "checksum", "base_timestamp")
    rows, records, dropped = table["rows"][0].as_py(), _sum(table["record_count"]), _sum(table["dropped"])
    if rows != records + dropped:
        left_out = f" and {dropped} that were left out" if dropped else ""
        raise pa.ArrowInvalid(f"it has {records} records{left_out}, but Spark delivered {rows} rows")


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())


def gaps(query_id: str, numbers: Sequence[int]) -> list[Gap]:
    """Return the gaps between `numbers`, which must be sorted."""
    return [Gap(query_id, one + 1, other - 1) for one, other in pairwise(numbers) if other > one + 1]
