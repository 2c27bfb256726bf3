from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# validity (None: no nulls), offsets, data, bytes per offset (4 or 8), first row in the buffers, rows
Column: TypeAlias = tuple[Buffer | None, Buffer | None, Buffer | None, int, int, int]
# int64[n + 1] offsets of the rows in the entries, keys, values
Headers: TypeAlias = tuple[npt.NDArray[np.int64], Column, Column]

# validity (None: no nulls), offsets, data
OutColumn: TypeAlias = tuple[Buffer | None, Buffer, Buffer]
# key, value, offset, timestamp, timestamp type, headers (validity, offsets, keys, values); None: not wanted
OutColumns: TypeAlias = tuple[
    OutColumn | None,
    OutColumn | None,
    Buffer | None,
    Buffer | None,
    Buffer | None,
    tuple[Buffer | None, Buffer, OutColumn, OutColumn] | None,
]

# Nonzero if this processor computes CRC-32C.
SUMS_RECORDS: int

def murmur2(keys: Column, hashes: npt.NDArray[np.int32], /) -> None: ...
def wire_order(
    destination: npt.NDArray[np.int64], order: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], /
) -> None: ...
def payload_sizes(
    value: Column, key: Column | None, headers: Headers | None, sizes: npt.NDArray[np.int64], /
) -> None: ...
def sum_row_hashes(
    value: Column,
    key: Column | None,
    headers: Headers | None,
    topic: Column | None,
    partition: npt.NDArray[np.int64],
    timestamp_ms: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
    sums: npt.NDArray[np.int64],
    /,
) -> None: ...
def fill(
    value: Column,
    key: Column | None,
    headers: Headers | None,
    order: npt.NDArray[np.int64],
    timestamp_ms: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    next_row: npt.NDArray[np.int64],
    end_row: npt.NDArray[np.int64],
    memory: npt.NDArray[np.uint8],
    base_timestamp: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    limit: npt.NDArray[np.int64],
    record_count: npt.NDArray[np.int64],
    max_timestamp: npt.NDArray[np.int64],
    records_crc: npt.NDArray[np.int64] | None,
    /,
) -> None: ...
def write_header(
    batch: memoryview,
    records_crc: int | None,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    /,
) -> None: ...
def scan_batches(
    records: Buffer,
    state: npt.NDArray[np.int64],
    end_offset: int,
    most_bytes: int,
    checks_crc: bool,
    table: npt.NDArray[np.int64],
    /,
) -> int: ...
def measure_records(
    sources: tuple[Buffer, ...],
    table: npt.NDArray[np.int64],
    first_offset: int,
    end_offset: int,
    most_rows: int,
    most_bytes: int,
    checks_timestamps: bool,
    totals: npt.NDArray[np.int64],
    /,
) -> None: ...
def fill_columns(
    sources: tuple[Buffer, ...],
    table: npt.NDArray[np.int64],
    first_offset: int,
    end_offset: int,
    record_count: int,
    row_count: int,
    columns: OutColumns,
    /,
) -> None: ...
def decode_avro(
    program: npt.NDArray[np.int64],
    column_count: int,
    data: Column,
    rows: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    is_read: npt.NDArray[np.uint8],
    /,
) -> list[tuple[bytes, bytes, bytes, int]]: ...
def encode_avro(
    program: npt.NDArray[np.int64], columns: tuple[Column, ...], head: Buffer, ends: npt.NDArray[np.int32], /
) -> bytes | None: ...
