"""The receipt file, which is the proof of one micro-batch or batch write: its content, its place, and reading it.

    <receiptsPath>/query_id=<query id>/batch-00000000000000000042.parquet       one row for each record batch, a *run*

The folders follow Hive, so `spark.read.parquet(receiptsPath)` works as well as `kafka_sink.receipts(spark,
receiptsPath)`. The files have the column `query_id` too. Files that are being written have names that begin with `_`.

A micro-batch without rows has one row in its file: no topic, 0 records. A slot whose rows were all bad and dropped also
has one row. A slot with rows at unknown offsets (spark/receipt_writer.py) has one row with their number. In every file
`rows` is the sum of `record_count` and `dropped`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from kafka_sink.errors.quoting import is_topic_name

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    arrow_type: pa.DataType
    spark_type: str
    doc: str


COLUMNS = (
    Column("query_id", pa.string(), "STRING", "the stream's; txnAppId:<name>; of another batch write its receiptName"),
    Column("batch_id", pa.int64(), "BIGINT", "number of the micro-batch, or txnVersion; 0 for another batch write"),
    Column("kind", pa.string(), "STRING", "stream, version (txnAppId and txnVersion) or batch"),
    Column("guarantee", pa.string(), "STRING", "at-least-once or exactly-once"),
    Column("rows", pa.int64(), "BIGINT", "of the whole micro-batch, as Spark delivered them to its tasks"),
    Column("started_at", pa.timestamp("us", "UTC"), "TIMESTAMP", "when its first task began, by that executor's clock"),
    Column("duration_ms", pa.int64(), "BIGINT", "from there until its last task had every acknowledgement"),
    Column("slot", pa.int32(), "INT", "Spark partition whose task wrote the run"),
    Column("topic", pa.string(), "STRING", "null where nothing was written, or nobody knows any more where"),
    Column("topic_id", pa.string(), "STRING", "a topic that is made again has another; null where brokers have none"),
    Column("partition", pa.int32(), "INT", ""),
    Column("base_offset", pa.int64(), "BIGINT", "of its first record; null where the leader did not say"),
    Column("record_count", pa.int64(), "BIGINT", "records, without a gap from base_offset on"),
    Column("dropped", pa.int64(), "BIGINT", "bad rows of the slot that were left out (badRows=drop), in its first row"),
    Column("batch_bytes", pa.int32(), "INT", "of the record batch in the log, header and compression included"),
    Column("retries", pa.int32(), "INT", "how often it was sent again"),
    Column("checksum", pa.int64(), "BIGINT", "CRC-32C of its records section before compression"),
    Column("base_timestamp", pa.int64(), "BIGINT", "ms; the records' own times are differences to it"),
)
SCHEMA = pa.schema([(column.name, column.arrow_type) for column in COLUMNS])
SPARK_SCHEMA = ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS)
SUFFIX = ".parquet"
# In memory. A write of 5 TB in batches of 1 MiB has about so many.
MAX_BYTES = 1024**3
# Arrow takes twelve times as much. That of a write of 5 TB is below 100 KiB.
MAX_FOOTER_BYTES = 4 * 1024**2
# What a URI has beside letters, digits and `_.-~`. Anything else, such as a blank, is written as its code.
_OF_URIS = "%/:@?&=+,;$!*'()#[]"
# When pyarrow finds no Java, or no libhdfs of Hadoop, and each time after that.
_WITHOUT_LIBHDFS = "Unable to load lib", "Prior attempt to load libhdfs failed"
# So many rows of a slot that no sum of MAX_BYTES of them overflows, and about the year 4000 in microseconds.
_MOST_ROWS, _LAST_US = 2**39, 2**56
_RANGES = {
    "rows": (0, 2**62), "started_at": (0, _LAST_US), "duration_ms": (-(2**40), 2**40), "partition": (0, 2**31 - 1),
    "base_offset": (0, 2**63 - 1 - 2**31), "record_count": (0, _MOST_ROWS), "dropped": (0, _MOST_ROWS),
    "batch_bytes": (0, 2**31 - 1), "retries": (0, 2**31 - 1), "base_timestamp": (-1, 2**63 - 1),
}  # fmt: skip


def folder_of(query_id: str) -> str:
    """Return the folder of a query below `receiptsPath`."""
    return f"query_id={quote(query_id, safe='')}"


def relative_path(query_id: str, batch_id: int) -> str:
    """Return the path below `receiptsPath`. Numbers are padded, so that names sort like numbers."""
    return f"{folder_of(query_id)}/batch-{batch_id:020d}{SUFFIX}"


def filesystem_of(path: str, within: Callable[[float, Callable[[], Any]], Any]) -> tuple[FileSystem, str]:
    """Return the file system of an absolute path or a URI, and the path in it. Hadoop's `s3a` is `s3` in pyarrow. HDFS
    is read and written by hdfs-native if it is installed, else by Hadoop's libhdfs, which pyarrow loads. A character
    that no URI has, such as a blank, stands for itself. `within`, of kafka/clock.py, bounds waits for HDFS.

    Raises ArrowException if pyarrow does not support the scheme, OSError if the file system does not answer.
    """
    from pyarrow.fs import FileSystem

    if not path.startswith("/"):
        path = quote("s3" + path[3:] if path.startswith("s3a://") else path, safe=_OF_URIS)
    is_hdfs = path.startswith(("hdfs:", "viewfs:"))
    if is_hdfs and find_spec("hdfs_native"):
        from kafka_sink.records import receipts_in_hdfs  # needs the extra

        return receipts_in_hdfs.opened(path, within)
    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(path)
    except OSError as error:
        if is_hdfs and str(error).startswith(_WITHOUT_LIBHDFS):
            raise OSError("no client of HDFS is installed here: pip install 'pyspark-pykafka[hdfs]'") from None
        raise
    return found


def paths_in(filesystem: FileSystem, path: str) -> list[str]:
    """Return the receipt files at or below `path`, sorted. Raises OSError."""
    from pyarrow.fs import FileSelector, FileType

    if filesystem.get_file_info(path).type == FileType.File:
        return [path]
    found = filesystem.get_file_info(FileSelector(path, recursive=True))
    return sorted(
        each.path
        for each in found
        if each.type == FileType.File and each.base_name.endswith(SUFFIX) and not each.base_name.startswith(("_", "."))
    )


def read(filesystem: FileSystem, path: str) -> pa.Table:
    """Return one file with the columns of SCHEMA. Raises OSError, or ArrowException if it is not a receipt file.

    A few kB of Parquet can be gigabytes of equal rows, so a file that needs more than MAX_BYTES is none. Nor is one
    with values that the sink does not write, such as a negative count. The file is in memory whole while it is read.
    """
    import pyarrow.parquet as pq

    texts = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
    with filesystem.open_input_file(path) as file:
        _check_size(file.size())
        content = file.read_buffer()
    # The footer's length is in front of the last four bytes.
    if int.from_bytes(content[-8:-4], "little") > MAX_FOOTER_BYTES:
        raise pa.ArrowInvalid(f"its footer is larger than {MAX_FOOTER_BYTES:,} bytes")
    metadata = pq.read_metadata(pa.BufferReader(content))
    _check_layout(metadata, memoryview(content).cast("B"))
    with pq.ParquetFile(pa.BufferReader(content), metadata=metadata, read_dictionary=texts) as found:
        table = found.read(SCHEMA.names)
    # Each text is there once until here.
    _check_size(sum(_text_bytes(chunk) for name in texts for chunk in table[name].chunks))
    table = table.select(SCHEMA.names).cast(SCHEMA)
    _check_values(table)
    return table


def _check_layout(metadata: FileMetaData, content: memoryview) -> None:
    """Raise ArrowInvalid if the columns are not each there once and flat, or take more than MAX_BYTES.

    Arrow reads as many values as the column chunks say, and inflates pages to what they say. The numbers of rows and
    the sizes in the footer may be others.
    """
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    size_bytes = 0
    for field in SCHEMA:
        numbers = [number for number, leaf in enumerate(leaves) if leaf.path.split(".")[0] == field.name]
        if not numbers:
            raise pa.ArrowInvalid(f"it has no column {field.name!r}")
        leaf = leaves[numbers[0]]
        if len(numbers) > 1 or leaf.path != field.name or leaf.max_repetition_level or leaf.max_definition_level > 1:
            raise pa.ArrowInvalid(f"its column {field.name!r} is nested or there twice")
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        width = 4 if pa.types.is_string(field.type) else field.type.bit_width // 8
        for chunk in (group.column(numbers[0]) for group in groups):
            size_bytes += max(width * abs(chunk.num_values), _inflated_bytes(chunk, content))
    _check_size(size_bytes)


def _inflated_bytes(chunk: ColumnChunkMetaData, content: memoryview) -> int:
    first = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < first:
        first = chunk.dictionary_page_offset
    end = first + chunk.total_compressed_size
    if not 0 < first <= end <= len(content):
        raise pa.ArrowInvalid("its footer names bytes that it does not have")
    try:
        return inflated_bytes(content[first:end])
    except ValueError as error:
        raise pa.ArrowInvalid(f"it has {error}") from None


def _check_values(table: pa.Table) -> None:
    """Raise ArrowInvalid if a value is none that the sink writes."""
    import pyarrow.compute as pc  # a commit without a receipt has only the schema

    is_placed = pc.is_valid(table["base_offset"])
    refuse_nulls(table, "rows", "record_count")
    refuse_nulls(table.select(["topic", "partition"]).filter(is_placed), "topic", "partition")
    in_batches = pc.if_else(is_placed, table["record_count"], 0)
    ranges = [(name, table[name].cast(pa.int64()), most) for name, most in _RANGES.items()]
    for name, column, (first, last) in [*ranges, ("record_count", in_batches, (0, 2**31))]:
        found = pc.min_max(column).as_py()
        if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
            raise pa.ArrowInvalid(f"its column {name!r} has a value that cannot be")
    for name in table["topic"].unique().drop_null().to_pylist():
        if not is_topic_name(name):
            raise pa.ArrowInvalid("it names a topic as Kafka does not allow")


def refuse_nulls(table: pa.Table, *names: str) -> None:
    for name in names:
        if table[name].null_count:
            raise pa.ArrowInvalid(f"its column {name!r} has nulls")


def _text_bytes(column: pa.Array) -> int:
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
    else:
        lengths = pc.binary_length(column)
    return int(pc.sum(lengths.cast(pa.int64()), min_count=0).as_py())


def _check_size(size_bytes: int) -> None:
    if size_bytes > MAX_BYTES:
        raise pa.ArrowInvalid(
            f"its rows take {size_bytes:,} bytes in memory, and those of a write at most {MAX_BYTES:,}"
        )


def columns_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def slices(table: pa.Table, rows_a_slice: int = 10_000) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, with at most `rows_a_slice` of them as Python objects at a time."""
    for batch in table.to_batches(max_chunksize=rows_a_slice):
        yield from batch.to_pylist()


# --- what Parquet pages inflate to ------------------------------------------------------------------------------------

# Arrow's own limit is 16 MiB. That of a receipt is some 100 bytes long.
MOST_HEADER_BYTES = 64 * 1024
# A page has up to 20,000 rows.
MOST_PAGES = 100_000
_MOST_DEPTH = 8

# Types of Thrift, and fields of a page header.
_STOP, _I32 = 0, 5
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3


def inflated_bytes(column_chunk: memoryview) -> int:
    """Return the sum of the uncompressed sizes of all pages, as their headers say. Raises ValueError if they cannot be
    read.

    Arrow allocates so much for a page, whatever the file's footer says of its column. Source: parquet.thrift of
    apache/parquet-format (PageHeader); Thrift's compact protocol.
    """
    inflated = at = 0
    for _ in range(MOST_PAGES):
        if at >= len(column_chunk):
            return inflated
        header = _Header(column_chunk[at : at + MOST_HEADER_BYTES])
        sizes = header.sizes()
        inflated += sizes[_UNCOMPRESSED_SIZE]
        at += header.at + sizes[_COMPRESSED_SIZE]
    raise ValueError("too many pages")


class _Header:
    """Reads one page header. `at`: how many bytes were read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def sizes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        try:
            self._struct(found, 0)
        except IndexError:
            raise ValueError("a page header without an end") from None
        if found.keys() != {_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE} or min(found.values()) < 0:
            raise ValueError("a page header without its sizes")
        return found

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _struct(self, sizes: dict[int, int], depth: int) -> None:
        """Read a struct, and put its sizes into `sizes`."""
        if depth > _MOST_DEPTH:
            raise ValueError("a page header that is nested too deep")
        number = 0
        while (kind := self._byte()) & 0x0F != _STOP:
            number = number + (kind >> 4) if kind >> 4 else self._zigzag()
            if kind & 0x0F == _I32 and number in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE):
                sizes[number] = self._zigzag()
            else:
                self._skip(kind & 0x0F, depth)

    def _skip(self, kind: int, depth: int) -> None:
        match kind:
            case 1 | 2:  # true, false: the value is the type
                pass
            case 3:  # i8
                self.at += 1
            case 4 | 5 | 6:  # i16, i32, i64
                self._varint()
            case 7:  # double
                self.at += 8
            case 8:  # binary
                length = self._varint()
                self.at += length
            case 12:  # struct
                self._struct({}, depth + 1)
            case _:
                raise ValueError("a page header with a list")
