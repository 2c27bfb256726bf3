"""Encodes rows of an Arrow batch into their record batches, with a few Arrow and numpy calls.

A record (layout in record_size.py) is  numbers | key | number | value | headers.  The numbers of all rows become one
binary array (`varint_rows`). Keys and values are binary arrays already, and each row's header section is made in the
same way. Then Arrow's `binary_join_element_wise` copies all of them once, in C++, and the data buffer of its result is
the records. The attributes byte is always 0, and 0 is also the varint of 0, so it is a column of zeros like any other
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.columns import Headers, RecordColumns
from kafka_sink.records.record_size import ATTRIBUTES_BYTES, NULL_LENGTH, record_sizes, varint_rows, varint_sizes

if TYPE_CHECKING:
    from kafka_sink.records.kernel import OpenBatches

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
Rows = slice | Int64s

NO_HEADERS = b"\0"
# Arrow's `binary` has 32-bit offsets. Larger results are `large_binary`, with 64-bit offsets.
BINARY_BYTES_MAX = 2**31 - 1


def wire_order(destination: Int64s, destination_count: int) -> tuple[Int64s, Int64s]:
    # numpy's stable sort is a radix sort for numbers of up to 16 bits, and ten times slower for longer ones.
    narrow = destination.astype(np.min_scalar_type(destination_count), copy=False)
    order = np.argsort(narrow, kind="stable").astype(np.int64, copy=False)
    return order, np.bincount(destination, minlength=destination_count).astype(np.int64, copy=False)


# --- sizes ----------------------------------------------------------------------------------------------------------


def byte_lengths(array: pa.Array) -> Int64s:
    """Return int64[n]: the length of each value of a binary or large_binary array, -1 for null."""
    lengths = pc.binary_length(array)
    if lengths.null_count:
        lengths = lengths.fill_null(NULL_LENGTH)
    return np.asarray(lengths.to_numpy(), np.int64)


def field_sizes(lengths: Int64s) -> Int64s:
    """Return the bytes of keys or values with their lengths. `lengths`: as returned by `byte_lengths`."""
    return varint_sizes(lengths) + np.maximum(lengths, 0)


def header_sizes(headers: Headers) -> Int64s:
    """Return int64[n]: bytes of each row's header count and headers."""
    entry_sizes = field_sizes(byte_lengths(headers.key)) + field_sizes(byte_lengths(headers.value))
    entry_offsets = np.zeros(len(entry_sizes) + 1, np.int64)
    np.cumsum(entry_sizes, out=entry_offsets[1:])
    return varint_sizes(np.diff(headers.row_offsets)) + np.diff(entry_offsets[headers.row_offsets])


def payload_sizes(columns: RecordColumns) -> Int64s:
    null_or_no_headers = 1  # a null key takes one byte, and so does a header count of zero
    sizes = field_sizes(byte_lengths(columns.value)) + ATTRIBUTES_BYTES
    sizes += null_or_no_headers if columns.key is None else field_sizes(byte_lengths(columns.key))
    sizes += null_or_no_headers if columns.headers is None else header_sizes(columns.headers)
    return sizes


def body_sizes(payload: Int64s, offset_delta: Int64s, timestamp_delta: Int64s) -> Int64s:
    """Return int64[n]: the `length` of records with `payload` bytes (`payload_sizes`) and these deltas."""
    return payload + varint_sizes(offset_delta) + varint_sizes(timestamp_delta)


# --- records --------------------------------------------------------------------------------------------------------


class RecordEncoder:
    """See kernel.Encoder."""

    def __init__(self, columns: RecordColumns, order: Int64s) -> None:
        self._value = columns.value
        self._key = columns.key
        self._headers = None if columns.headers is None else _header_sections(columns.headers)
        self._order = order
        self._timestamp_ms = columns.timestamp_ms[order]
        self.payload_sizes = payload_sizes(columns)
        self._payload_sizes = self.payload_sizes[order]

    def sizes(self, rows: Rows, offset_delta: Int64s, timestamp_delta: Int64s) -> Int64s:
        """Return int64[n]: exactly the bytes that `encode` writes for each of `rows` with these deltas (int64[n])."""
        return record_sizes(body_sizes(self._payload_sizes[rows], offset_delta, timestamp_delta))

    def fill(self, places: Int64s, next_row: Int64s, end_row: Int64s, batches: OpenBatches) -> None:
        first_row = next_row[places]
        counts = end_row[places] - first_row
        bounds = np.cumsum(counts)
        # The position in wire order of every candidate row; each belongs to one batch.
        starts = bounds - counts
        row = np.arange(counts.sum()) + np.repeat(first_row - starts, counts)
        offset_delta = np.arange(len(row)) + np.repeat(batches.record_count[places] - starts, counts)
        timestamp_ms = self._timestamp_ms[row]
        timestamp_delta = timestamp_ms - np.repeat(batches.base_timestamp[places], counts)

        # Sizes grow along a run, so the rows that fit are a prefix of it.
        end_byte = np.cumsum(self.sizes(row, offset_delta, timestamp_delta))
        end_byte -= np.repeat(np.concatenate(([0], end_byte))[starts], counts)
        fits = end_byte <= np.repeat((batches.limit - batches.end)[places], counts)
        fits_before = np.concatenate(([0], np.cumsum(fits)))
        placed = fits_before[bounds] - fits_before[starts]

        data, offsets = self.encode(row[fits], offset_delta[fits], timestamp_delta[fits])
        growing = np.flatnonzero(placed)
        grown = places[growing]
        record_ends = np.cumsum(placed[growing])
        record_starts = record_ends - placed[growing]
        first_byte, end_of_run, end = offsets[record_starts], offsets[record_ends], batches.end[grown]
        records, memory = data.data, batches.memory.data  # a memoryview is sliced faster than a numpy array
        for first, last, into in zip(first_byte.tolist(), end_of_run.tolist(), end.tolist(), strict=True):
            memory[into : into + last - first] = records[first:last]
        batches.end[grown] = end + end_of_run - first_byte
        if len(growing):
            latest = np.maximum.reduceat(timestamp_ms[fits], record_starts)
            batches.max_timestamp[grown] = np.maximum(batches.max_timestamp[grown], latest)
        batches.record_count[places] += placed
        next_row[places] += placed

    def encode(self, rows: Rows, offset_delta: Int64s, timestamp_delta: Int64s) -> tuple[UInt8s, Int64s]:
        """Return the records of `rows`, in order and without gaps.

        `rows`: n positions in wire order, as a slice or int64[n].
        `offset_delta`: int64[n], each record's place in its batch, 0 <= delta < 2^31.
        `timestamp_delta`: int64[n], ms to the batch's base timestamp, of either sign.

        Returns the bytes (uint8, read-only) and int64[n + 1] offsets of the records in them. No record may exceed 2^31
        - 1 bytes. The check of `lone_batch_sizes` against `max.request.size` ensures this.
        """
        body = body_sizes(self._payload_sizes[rows], offset_delta, timestamp_delta)
        attributes = np.zeros(len(body), np.int64)
        numbers = (body, attributes, timestamp_delta, offset_delta)
        choose = _chooser(self._order[rows])
        value = choose(self._value)
        headers = NO_HEADERS if self._headers is None else choose(self._headers)
        total = int(record_sizes(body).sum())
        if self._key is None:
            no_key = np.full(len(body), NULL_LENGTH, np.int64)
            joined = interleaved(total, (*numbers, no_key, byte_lengths(value)), value, headers)
        else:
            key = choose(self._key)
            joined = interleaved(total, (*numbers, byte_lengths(key)), key, (byte_lengths(value),), value, headers)
        return bytes_of(joined)


def _chooser(positions: Int64s) -> Callable[[pa.Array], pa.Array]:
    """Return a function that picks rows of the Arrow batch from a column: adjacent rows by a slice, others by a
    gather."""
    if len(positions) and (np.diff(positions) == 1).all():
        first, count = int(positions[0]), len(positions)
        return lambda array: array.slice(first, count)
    indices = pa.array(positions)
    return lambda array: array.take(indices)


def _header_sections(headers: Headers) -> pa.Array:
    """Return each row's header count and headers, as a binary or large_binary array of n."""
    total = int(header_sizes(headers).sum())
    key, value = headers.key, headers.value
    entries = interleaved(total, (byte_lengths(key),), key, (byte_lengths(value),), value)
    # A row's headers are adjacent already. The row's bounds are those of its first and last entry, so no byte moves.
    runs = binary_array(entries.type, _offsets(entries)[headers.row_offsets], entries.buffers()[2])
    return interleaved(total, (np.diff(headers.row_offsets),), runs)


def interleaved(total: int, *parts: pa.Array | bytes | tuple[Int64s, ...]) -> pa.Array:
    """Return the parts of each row joined; a null adds no bytes. The result is large_binary if it has over 2^31 - 1
    bytes (`total`) or if a part is, otherwise binary, because Arrow requires one type for all parts."""
    is_large = total > BINARY_BYTES_MAX or any(
        isinstance(part, pa.Array) and pa.types.is_large_binary(part.type) for part in parts
    )
    binary = pa.large_binary() if is_large else pa.binary()
    return joined_rows(binary, [_as_part(binary, part) for part in parts])


def joined_rows(binary: pa.DataType, parts: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """Return the parts of each row joined; a null adds no bytes. All are of the type `binary`."""
    separator = pa.scalar(b"", binary)
    return pc.binary_join_element_wise(*parts, separator, null_handling="replace", null_replacement="")


def _as_part(binary: pa.DataType, part: pa.Array | bytes | tuple[Int64s, ...]) -> pa.Array | pa.Scalar:
    """Return an array from `part`: an array, one value for all rows, or columns of numbers to write as varints."""
    if isinstance(part, bytes):
        return pa.scalar(part, binary)
    if isinstance(part, tuple):
        data, offsets = varint_rows(*part)
        return binary_array(binary, offsets, pa.py_buffer(data))
    return part.cast(binary)


def binary_array(binary: pa.DataType, offsets: Int64s, data: pa.Buffer) -> pa.Array:
    width = np.int64 if pa.types.is_large_binary(binary) else np.int32
    return pa.Array.from_buffers(binary, len(offsets) - 1, [None, pa.py_buffer(offsets.astype(width)), data])


def bytes_of(joined: pa.Array) -> tuple[UInt8s, Int64s]:
    """Return the bytes of a new binary or large_binary array (uint8), and int64[n + 1] offsets of the rows in them."""
    offsets = _offsets(joined)
    return np.frombuffer(joined.buffers()[2], np.uint8)[: offsets[-1]], offsets


def _offsets(joined: pa.Array) -> Int64s:
    """Return int64[n + 1] offsets of a new binary or large_binary array that begins at the start of its buffers."""
    width = np.int64 if pa.types.is_large_binary(joined.type) else np.int32
    return np.frombuffer(joined.buffers()[1], width)[: len(joined) + 1].astype(np.int64)
