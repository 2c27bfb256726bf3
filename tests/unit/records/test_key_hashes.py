"""Hashes of keys against Kafka's own class, mmh3, zlib, the results of Go's hash/fnv, and scalar transcriptions."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.byte_hashes import crc32, fnv1a
from kafka_sink.records.murmur import murmur2, murmur3
from record_cases import scalar_fnv1a

# Output of Murmur2Digests.java, beside it.
JAVA_DIGESTS = Path(__file__).with_name("murmur2_digests.csv")


def int32(value: int) -> int:
    return (value & 0xFFFFFFFF) - (value & 0x80000000) * 2


def scalar_murmur2(data: bytes) -> int:
    """Utils.murmur2, line by line."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return int32(h ^ h >> 15)


def keys_of_murmur2_digests() -> list[bytes]:
    """The 101,000 keys of Murmur2Digests.java: key i is the next i % 101 bytes of SHA-256(0), SHA-256(1) and so on."""
    lengths = [i % 101 for i in range(101_000)]
    block_count = -(-sum(lengths) // 32)
    stream = b"".join(hashlib.sha256(block.to_bytes(4, "big")).digest() for block in range(block_count))
    ends = np.cumsum(lengths).tolist()
    return [stream[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def test_equals_kafkas_own_class_and_mmh3_on_101000_keys_of_0_to_100_bytes() -> None:
    hashes = murmur2(pa.array(keys_of_murmur2_digests(), pa.binary()))
    lines = [f"{length},{hashlib.sha256(hashes[length::101].astype('>i4')).hexdigest()}" for length in range(101)]
    assert lines == JAVA_DIGESTS.read_text().splitlines()[1:]
    keys = keys_of_murmur2_digests()
    assert murmur3(pa.array(keys, pa.binary())).tolist() == [mmh3.hash(key) for key in keys]


@given(
    st.lists(st.binary(max_size=100), max_size=30), st.integers(0, 3), st.integers(0, 3),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)  # fmt: skip
def test_slices_and_any_mix_of_lengths(keys: list[bytes], before: int, after: int, arrow_type: pa.DataType) -> None:
    sliced = pa.array([*[b"before"] * before, *keys, *[b"after"] * after], arrow_type).slice(before, len(keys))
    for hashes, scalar, dtype in (
        (murmur2, scalar_murmur2, np.int32), (murmur3, mmh3.hash, np.int32), (crc32, zlib.crc32, np.uint32),
        (fnv1a, scalar_fnv1a, np.uint32),
    ):  # fmt: skip
        assert hashes(sliced).dtype == dtype
        assert hashes(sliced).tolist() == [scalar(key) for key in keys]


def test_fnv1a_as_go() -> None:
    """What Go's New32a gives, as int32 without its sign: librdkafka's unittest_fnv1a."""
    known = {
        b"kafka": 0xD33C4E1, b"giberish123456789": 0x77A58295, b"1234": 0x23BDD03, b"234": 0x2DEA3CD2,
        b"34": 0x740FA83E, b"4": 0x310CA263, b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65CBD69C, b"": 0x7EE3623B,
    }  # fmt: skip
    hashed = fnv1a(pa.array(list(known), pa.binary())).view(np.int32).tolist()
    assert list(map(abs, hashed)) == list(known.values())
    assert [scalar_fnv1a(key) for key in known] == [each & 0xFFFFFFFF for each in hashed]
