"""Sizes from lengths alone; that they are what is written is test_encoder.py's business."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_sink.records.record_size import byte_lengths, field_sizes


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_lengths_of_a_slice_tell_null_from_empty(arrow_type: pa.DataType) -> None:
    array = pa.array([b"before", b"", None, b"abc", b"after"], arrow_type).slice(1, 3)
    assert byte_lengths(array).tolist() == [0, -1, 3]
    # A length varint each: of two bytes from 64 on.
    assert field_sizes(byte_lengths(array)).tolist() == [1, 1, 4]
    assert field_sizes(byte_lengths(pa.array([b"x" * 63, b"x" * 64]))).tolist() == [64, 66]
