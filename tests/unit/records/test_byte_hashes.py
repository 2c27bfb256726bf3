"""CRC-32 against zlib, FNV-1a against a scalar transcription and the results of Go's hash/fnv."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.byte_hashes import crc32, fnv1a
from record_cases import scalar_fnv1a

KEYS = st.lists(st.binary(max_size=100), max_size=30)


@pytest.mark.parametrize(
    ("key", "magnitude"),
    # What Go's New32a gives, as int32 without its sign: librdkafka's unittest_fnv1a.
    [
        (b"kafka", 0xD33C4E1),
        (b"giberish123456789", 0x77A58295),
        (b"1234", 0x23BDD03),
        (b"234", 0x2DEA3CD2),
        (b"34", 0x740FA83E),
        (b"4", 0x310CA263),
        (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x65CBD69C),
        (b"", 0x7EE3623B),
    ],
)
def test_fnv1a_as_go(key: bytes, magnitude: int) -> None:
    (hashed,) = fnv1a(pa.array([key], pa.binary())).view(np.int32)
    assert abs(int(hashed)) == magnitude
    assert scalar_fnv1a(key) == int(hashed) & 0xFFFFFFFF


@given(KEYS, st.integers(0, 3), st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_slices_and_any_mix_of_lengths(keys: list[bytes], before: int, after: int, arrow_type: pa.DataType) -> None:
    sliced = pa.array([*[b"before"] * before, *keys, *[b"after"] * after], arrow_type).slice(before, len(keys))
    assert crc32(sliced).dtype == fnv1a(sliced).dtype == np.uint32
    assert crc32(sliced).tolist() == [zlib.crc32(key) for key in keys]
    assert fnv1a(sliced).tolist() == [scalar_fnv1a(key) for key in keys]
