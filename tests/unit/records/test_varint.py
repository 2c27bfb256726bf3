"""Zig-zag varints against a scalar transcription of Kafka's ByteUtils, over the whole range of 64 bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.varint import varint_rows, varint_sizes, varints_at
from record_cases import varint

INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    # Around every length there is: 2^6 is the first number of two bytes, -2^6 the last of one.
    st.builds(
        lambda bits, sign, off: sign * 2**bits + off, st.integers(0, 62), st.sampled_from([1, -1]), st.integers(-1, 1)
    ),
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    # KafkaProtobuf's and ByteUtilsTest's own examples.
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
        (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_known_bytes(value: int, encoded: str) -> None:
    data, offsets = varint_rows(np.array([value], np.int64))
    assert data.tobytes().hex() == encoded
    assert offsets.tolist() == [0, len(encoded) // 2]
    assert varint_sizes(np.array([value], np.int64)).tolist() == [len(encoded) // 2]


@given(st.lists(st.tuples(INT64, INT64, INT64), max_size=50))
def test_columns_interleave_row_by_row(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(len(rows), 3)
    data, offsets = varint_rows(*columns.T)
    expected = [b"".join(map(varint, row)) for row in rows]
    assert [data[a:b].tobytes() for a, b in pairwise(offsets)] == expected
    assert varint_sizes(columns[:, 1]).tolist() == [len(varint(row[1])) for row in rows]


@given(st.lists(INT64, max_size=50))
def test_values_are_read_back_from_their_places(values: list[int]) -> None:
    encoded = [varint(value) for value in values]
    at = np.cumsum([0, *map(len, encoded)])[:-1]
    read, sizes = varints_at(np.frombuffer(b"".join(encoded), np.uint8), at)
    assert read.tolist() == values
    assert sizes.tolist() == [len(each) for each in encoded]
