"""Sizes from lengths alone; that they are what is written is test_encoder.py's business."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.record_size import byte_lengths, field_sizes, payload_sizes


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_lengths_of_a_slice_tell_null_from_empty(arrow_type: pa.DataType) -> None:
    array = pa.array([b"before", b"", None, b"abc", b"after"], arrow_type).slice(1, 3)
    assert byte_lengths(array).tolist() == [0, -1, 3]
    # A length varint each: of two bytes from 64 on.
    assert field_sizes(byte_lengths(array)).tolist() == [1, 1, 4]
    assert field_sizes(byte_lengths(pa.array([b"x" * 63, b"x" * 64]))).tolist() == [64, 66]


def test_payload_is_all_but_length_and_deltas() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"abc", None], pa.binary()),
            "key": pa.array([None, b"k"], pa.binary()),
            "headers": pa.array([None, [{"key": "h", "value": None}]], headers),
        }
    )
    # attributes, value, key, header count, headers
    expected = [1 + (1 + 3) + 1 + 1, 1 + 1 + (1 + 1) + 1 + (1 + 1) + 1]
    assert payload_sizes(RecordColumns.from_arrow(batch, now_ms=0)).tolist() == expected


def test_absent_key_and_headers_are_a_byte_each() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"abc"], pa.binary())})
    assert payload_sizes(RecordColumns.from_arrow(batch, now_ms=0)).tolist() == [1 + (1 + 3) + 1 + 1]
