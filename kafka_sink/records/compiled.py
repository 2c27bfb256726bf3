"""Python's face of the compiled kernel: Arrow arrays taken apart into the buffers that `_kernel.c` reads.

Each function does and returns what its namesake without a compiler does: murmur.py, wire_order.py,
record_size.py, row_hashes.py, record_batch.py, and `CompiledEncoder.fill` that of encoder.py, with the CRC of what it
wrote where `SUMS_RECORDS`. All but `write_header` release the interpreter's lock while they work.
The kernel checks everything it reads; ValueError means a corrupt Arrow batch, and what was written means nothing.
Importing this module fails where the kernel was not built: kernel.py does so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.records import _kernel
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.open_batches import OpenBatches
from kafka_sink.records.row_hashes import KEYS, partition_numbers, timestamp_numbers

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

SUMS_RECORDS = bool(_kernel.SUMS_RECORDS)
write_header = _kernel.write_header


def murmur2(keys: pa.Array) -> Int32s:
    """int32[n]: the hash of each of n keys, a binary or large_binary array. A null's hash means nothing."""
    hashes = np.empty(len(keys), np.int32)
    _kernel.murmur2(_column(keys), hashes)
    return hashes


def wire_order(destination: Int64s, destination_count: int) -> tuple[Int64s, Int64s]:
    """int64[n], the rows sorted by `destination` (int64[n], each 0 <= d < `destination_count`), and
    int64[destination_count], how many rows each destination has."""
    order = np.empty(len(destination), np.int64)
    counts = np.empty(destination_count, np.int64)
    _kernel.wire_order(destination, order, counts)
    return order, counts


def payload_sizes(columns: RecordColumns) -> Int64s:
    """int64[n]: bytes of each record but its length and its two deltas, which only its batch decides."""
    sizes = np.empty(columns.num_rows, np.int64)
    _kernel.payload_sizes(*_columns(columns), sizes)
    return sizes


def sum_row_hashes(columns: RecordColumns) -> tuple[int, int]:
    """The sums, each modulo 2^64, of the low and of the high halves of all rows' hashes."""
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


class CompiledEncoder:
    """Encodes the rows of `columns` in wire order: row i of this object is row `order[i]` of the Arrow batch.

    `order`: int64[n], a permutation or a choice of the batch's rows. Holds on to the Arrow batch: let go of
    the encoder as soon as its rows are in their buffers.
    """

    def __init__(self, columns: RecordColumns, order: Int64s) -> None:
        self._columns = _columns(columns)
        self._order = order
        self._timestamp_ms = columns.timestamp_ms
        self.payload_sizes = np.empty(columns.num_rows, np.int64)
        _kernel.payload_sizes(*self._columns, self.payload_sizes)

    def fill(self, places: Int64s, next_row: Int64s, end_row: Int64s, batches: OpenBatches) -> None:
        """Encodes into the batch of each of `places` (int64[k], no two the same) as many of its rows as fit, in wire
        order from `next_row[place]` and before `end_row[place]` (int64[p]), and moves `next_row` and the batch's
        numbers on by them."""
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
