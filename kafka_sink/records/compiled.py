"""The Python side of the compiled kernel: splits Arrow arrays into the buffers that `_kernel.c` reads.

Each function returns the same as the function of its name without a compiler (fallback/, key_hashes.py and
record_batch.py). If `SUMS_RECORDS`, `CompiledEncoder.fill` also computes the CRC of what it wrote. All functions except
`write_header` release the GIL while they work.

The kernel checks everything that it reads. ValueError means a corrupt Arrow batch; the output is then undefined.
Importing this module fails if the kernel was not built; kernel.py handles that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.records import _kernel
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.row_hashes import KEYS, partition_numbers, timestamp_numbers

if TYPE_CHECKING:
    from kafka_sink.records.kernel import AvroColumns, OpenBatches

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

SUMS_RECORDS = bool(_kernel.SUMS_RECORDS)
write_header = _kernel.write_header
scan_batches = _kernel.scan_batches
measure_records = _kernel.measure_records
fill_columns = _kernel.fill_columns


def murmur2(keys: pa.Array) -> Int32s:
    """Return int32[n]: the hash of each of n keys, a binary or large_binary array. A null's hash is undefined."""
    hashes = np.empty(len(keys), np.int32)
    _kernel.murmur2(_column(keys), hashes)
    return hashes


def wire_order(destination: Int64s, destination_count: int) -> tuple[Int64s, Int64s]:
    """Return int64[n], the rows sorted by `destination` (int64[n], each 0 <= d < `destination_count`), and
    int64[destination_count], the number of rows of each destination."""
    order = np.empty(len(destination), np.int64)
    counts = np.empty(destination_count, np.int64)
    _kernel.wire_order(destination, order, counts)
    return order, counts


def payload_sizes(columns: RecordColumns) -> Int64s:
    """Return int64[n]: bytes of each record without its length and its two deltas, which depend on its batch."""
    sizes = np.empty(columns.num_rows, np.int64)
    _kernel.payload_sizes(*_columns(columns), sizes)
    return sizes


def sum_row_hashes(columns: RecordColumns) -> tuple[int, int]:
    """Return the sums, each modulo 2^64, of the low and of the high halves of all rows' hashes."""
    sums = np.empty(2, np.uint64)
    _kernel.sum_row_hashes(
        *_columns(columns),
        None if columns.topic is None else _column(columns.topic),
        partition_numbers(columns),
        timestamp_numbers(columns),
        KEYS.view(np.int64),
        sums.view(np.int64),
    )
    return int(sums[0]), int(sums[1])


def decode_avro(
    program: Int64s, column_count: int, data: pa.Array, rows: Int64s, starts: Int64s
) -> tuple[AvroColumns, npt.NDArray[np.bool_]]:
    """Return the columns of those records of `rows` (int64[n]) that could be read, and bool[n]: which were.

    `program`: see registry/avro_program.py. `starts`: int64[n], where the payload of each begins.
    """
    is_read = np.empty(len(rows), np.uint8)
    columns = _kernel.decode_avro(program, column_count, _column(data), rows, starts, is_read)
    return columns, is_read.view(np.bool_)


def encode_avro(
    program: Int64s, columns: tuple[_kernel.Column, ...], head: bytes, count: int
) -> tuple[bytes, npt.NDArray[np.int32]] | None:
    """Return the bytes of `count` rows, and int32[count + 1], where each begins and ends; or None if one is refused.

    `program`: see registry/avro_encoding.py. `head`: the first bytes of each row.
    """
    ends = np.empty(count + 1, np.int32)
    data = _kernel.encode_avro(program, columns, head, ends)
    return None if data is None else (data, ends)


class CompiledEncoder:
    """See kernel.Encoder."""

    def __init__(self, columns: RecordColumns, order: Int64s) -> None:
        self._columns = _columns(columns)
        self._order = order
        self._timestamp_ms = columns.timestamp_ms
        self.payload_sizes = np.empty(columns.num_rows, np.int64)
        _kernel.payload_sizes(*self._columns, self.payload_sizes)

    def fill(self, places: Int64s, next_row: Int64s, end_row: Int64s, batches: OpenBatches) -> None:
        _kernel.fill(
            *self._columns,
            self._order,
            self._timestamp_ms,
            places,
            next_row,
            end_row,
            batches.memory,
            batches.base_timestamp,
            batches.end,
            batches.limit,
            batches.record_count,
            batches.max_timestamp,
            batches.records_crc,
        )


def _columns(columns: RecordColumns) -> tuple[_kernel.Column, _kernel.Column | None, _kernel.Headers | None]:
    headers = columns.headers
    return (
        _column(columns.value),
        None if columns.key is None else _column(columns.key),
        None if headers is None else (headers.row_offsets, _column(headers.key), _column(headers.value)),
    )


_LARGE = (pa.large_binary(), pa.large_string())


def _column(array: pa.Array) -> _kernel.Column:
    validity, offsets, data = array.buffers()
    offset_bytes = 8 if array.type in _LARGE else 4
    return validity if array.null_count else None, offsets, data, offset_bytes, array.offset, len(array)
