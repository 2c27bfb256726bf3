"""Codecs: what they write, decompressors that are not ours read (Java, librdkafka: integration/test_client.py)."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable

import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from kafka_sink.options.table import OPTIONS
from kafka_sink.records.compression import codec_for

RECORDS = b"rows rows rows " * 10_000
DECODERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    # Attribute bits: KIP-98; 4: KIP-110.
    "gzip": (1, gzip_decode),
    "snappy": (2, snappy_decode),
    "lz4": (3, lz4_decode),
    "zstd": (4, zstd_decode),
}
NAMES = pytest.mark.parametrize("name", list(DECODERS))


def noise(count: int) -> bytes:
    return np.random.default_rng(count).bytes(count)


def compress(name: str, records: bytes, level: int | None = None) -> bytes:
    return bytes(codec_for(name, level).compress(memoryview(records)))


@NAMES
def test_reads_back_with_one_object_for_several_batches(name: str) -> None:
    codec_id, decode = DECODERS[name]
    codec = codec_for(name)
    assert codec.id == codec_id
    for records in (RECORDS, b"x", RECORDS[:100], noise(200_000), RECORDS[:7]):
        assert decode(bytes(codec.compress(memoryview(records)))) == records
    assert len(codec.compress(memoryview(RECORDS))) < len(RECORDS) / 10


@NAMES
@given(st.binary(max_size=300), st.integers(0, 1500), st.integers(0, 100_000))
def test_any_mix_of_what_can_and_cannot_be_compressed_reads_back(
    name: str, text: bytes, repeats: int, random_bytes: int
) -> None:
    records = text * repeats + noise(random_bytes) + text + b"!"  # a batch is never empty
    assert DECODERS[name][1](compress(name, records)) == records


# Blocks are where a frame of one's own goes wrong: whole, one byte less, one more, several.
SIZES = [1, 200_000, *(block + extra for block in (32 << 10, 64 << 10, 1 << 20) for extra in (-1, 0, 1))]


@NAMES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compressible", [True, False])
def test_bounds_of_blocks(name: str, size: int, compressible: bool) -> None:
    records = (RECORDS * 8)[:size] if compressible else noise(size)
    assert len(records) == size
    compressed = compress(name, records)
    assert DECODERS[name][1](compressed) == records
    assert codec_for(name).decompress(memoryview(compressed), size) == records


LEVELS = [
    *[("gzip", level) for level in (-1, *range(1, 10))],
    *[("lz4", level) for level in range(1, 18)],
    *[("zstd", level) for level in (-131072, -5, 0, 1, 3, 22)],
]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_every_level_reads_back(name: str, level: int) -> None:
    assert DECODERS[name][1](compress(name, RECORDS, level)) == RECORDS


@pytest.mark.parametrize(
    ("name", "fast", "small"), [("gzip", 1, 9), ("lz4", 9, 12), ("lz4", 3, 12), ("zstd", -100, 19)]
)
def test_a_level_reaches_the_compressor(name: str, fast: int, small: int) -> None:
    words = np.random.default_rng(5).choice([b"order", b"created", b"42", b"amsterdam", b",", b"{"], 100_000)
    text = b"".join(words.tolist())
    assert len(compress(name, text, small)) < len(compress(name, text, fast))


def test_defaults_are_those_of_the_options_and_a_level_of_zstd_is_its_own() -> None:
    defaults = {option.name: option.default for option in OPTIONS}
    for name in ("gzip", "lz4", "zstd"):
        assert compress(name, RECORDS) == compress(name, RECORDS, defaults[f"kafka.compression.{name}.level"])
    for level in (1, 3, 19):
        assert compress("zstd", RECORDS, level) == zstandard.ZstdCompressor(level=level).compress(RECORDS)


def orders() -> bytes:
    """1 MiB of JSON around numbers that differ."""
    numbers = np.random.default_rng(7).integers(0, 10**6, (10_000, 3))
    return b"".join(
        b'{"order": %d, "customer": %d, "amount": %d, "status": "paid", "currency": "EUR"}' % (row, customer, amount)
        for row, customer, amount in numbers.tolist()
    )


def test_without_a_level_zstd_is_about_kafkas_with_a_window_of_256_kib() -> None:
    kafkas, ours = (len(compress("zstd", orders(), level)) for level in (3, None))
    assert 0.9 < kafkas / ours < 1.1
    assert ours < 0.95 * len(compress("zstd", orders(), -1))
    records = noise(200_000)
    near = len(compress("zstd", records + bytes(10_000) + records))
    far = len(compress("zstd", records + bytes(100_000) + records))
    assert near < 210_000 < 390_000 < far


def test_gzip_has_no_time_or_name_in_it() -> None:
    assert compress("gzip", RECORDS)[:8] == gzip.compress(RECORDS, mtime=0)[:8]


def test_lz4_frame_says_what_java_insists_on() -> None:
    info = lz4.frame.get_frame_info(compress("lz4", RECORDS))
    assert info["block_linked"] is False
    assert info["block_size"] == 64 * 1024
    assert (info["content_checksum"], info["block_checksum"], info["content_size"]) == (False, False, 0)


def test_snappy_stream_is_that_of_snappy_java() -> None:
    compressed = compress("snappy", RECORDS)
    assert re.match(rb"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", compressed)
    at, sizes = 16, []
    while at < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, at)
        sizes.append(len(snappy_decode(compressed[at + 4 : at + 4 + length])))
        at += 4 + length
    assert sizes == [32 * 1024] * 4 + [len(RECORDS) - 4 * 32 * 1024]


def test_none_copies_nothing() -> None:
    codec = codec_for("none")
    records = memoryview(RECORDS)
    assert codec.id == 0
    assert codec.compress(records) is records
