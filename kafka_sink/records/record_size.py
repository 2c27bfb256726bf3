"""Computes how many bytes a record takes, from the lengths of its parts alone.

A record (Kafka's DefaultRecord). Every number is a zig-zag varint, except the attributes, which are one byte:

    length | attributes | timestamp delta | offset delta | key length, key | value length, value
           | header count | for each header: key length, key | value length, value

A null key or value has length -1 and no bytes. `length` counts the bytes after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.columns import Headers, RecordColumns
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.varint import varint_size, varint_sizes

Int64s = npt.NDArray[np.int64]

ATTRIBUTES_BYTES = 1
NULL_LENGTH = -1
DELTAS_OF_ZERO = 2


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
    """Return int64[n]: bytes of each record without its length and its two deltas, which depend on its batch."""
    null_or_no_headers = 1  # a null key takes one byte, and so does a header count of zero
    sizes = field_sizes(byte_lengths(columns.value)) + ATTRIBUTES_BYTES
    sizes += null_or_no_headers if columns.key is None else field_sizes(byte_lengths(columns.key))
    sizes += null_or_no_headers if columns.headers is None else header_sizes(columns.headers)
    return sizes


def body_sizes(payload: Int64s, offset_delta: Int64s, timestamp_delta: Int64s) -> Int64s:
    """Return int64[n]: the `length` of records with `payload` bytes (`payload_sizes`) and these deltas."""
    return payload + varint_sizes(offset_delta) + varint_sizes(timestamp_delta)


def record_sizes(body: Int64s) -> Int64s:
    """Return int64[n]: bytes of whole records with the `length` `body`."""
    return body + varint_sizes(body)


def lone_batch_size(payload: int) -> int:
    """As `lone_batch_sizes` for one record. numpy calls would take as long as the hashes of some hundred keys."""
    body = payload + DELTAS_OF_ZERO
    return HEADER_BYTES + varint_size(body) + body


def lone_batch_sizes(payload: Int64s) -> Int64s:
    """Return int64[n]: bytes of uncompressed record batches with one record of `payload` bytes each. `max.request.size`
    limits them."""
    return HEADER_BYTES + record_sizes(payload + DELTAS_OF_ZERO)
