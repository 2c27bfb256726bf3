"""CRC-32 against zlib, FNV-1a against a scalar transcription and the results of Go's hash/fnv."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.byte_hashes import crc32, fnv1a

KEYS = st.lists(st.binary(max_size=40), max_size=30)


def scalar_fnv1a(key: bytes) -> int:
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed


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


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_random_keys_of_0_to_100_bytes(arrow_type: pa.DataType) -> None:
    random = np.random.default_rng(3)
    keys = [random.bytes(int(length)) for length in random.integers(0, 101, 20_000)]
    column = pa.array(keys, arrow_type)
    assert crc32(column).dtype == fnv1a(column).dtype == np.uint32
    assert crc32(column).tolist() == [zlib.crc32(key) for key in keys]
    assert fnv1a(column[:2000]).tolist() == [scalar_fnv1a(key) for key in keys[:2000]]


@given(KEYS, st.integers(0, 3), st.integers(0, 3))
def test_slices_and_any_mix_of_lengths(keys: list[bytes], skipped_before: int, skipped_after: int) -> None:
    padded = [b"before"] * skipped_before + keys + [b"after"] * skipped_after
    sliced = pa.array(padded, pa.binary()).slice(skipped_before, len(keys))
    assert crc32(sliced).tolist() == [zlib.crc32(key) for key in keys]
    assert fnv1a(sliced).tolist() == [scalar_fnv1a(key) for key in keys]
