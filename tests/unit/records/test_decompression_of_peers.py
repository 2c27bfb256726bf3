"""Frames as peers write them: several, empty, without sizes, with bytes behind them; and content of many pieces."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.decompression import DamagedRecords, Decompressor, TooManyBytes

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
DECOMPRESSOR = Decompressor()
MIB = 1024 * 1024
GARBAGE = (b"\0", b"\0" * 9, b"garbage", b"\x1f", b"\x04\x22", b"\xff" * 70)


def read(codec_id: int, compressed: bytes, most_bytes: int = MIB) -> bytes:
    return bytes(DECOMPRESSOR.decompress(codec_id, memoryview(compressed), most_bytes))


def zstd(content: bytes, **given: bool) -> bytes:
    """With `write_content_size=False` as zstd-jni's stream writes, that of Java's producer."""
    return zstandard.ZstdCompressor(**given).compress(content)


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize(
    "parts", [(b"a" * 9, b"b"), (b"", b"b" * 100), (b"", b"", b"c"), (b"a", b""), (b"x" * 70_000,) * 3]
)
def test_zstd_of_several_frames(parts: tuple[bytes, ...], has_checksum: bool, has_size: bool) -> None:
    frames = b"".join(zstd(part, write_content_size=has_size, write_checksum=has_checksum) for part in parts)
    assert read(ZSTD, frames) == b"".join(parts)


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000, 300_000])
def test_zstd_of_one_frame(size: int, has_size: bool) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert read(ZSTD, zstd(content, write_content_size=has_size)) == content


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("more", GARBAGE)
def test_bytes_behind_a_zstd_frame_are_damage_as_for_java(more: bytes, has_size: bool) -> None:
    with pytest.raises(DamagedRecords):
        read(ZSTD, zstd(b"content", write_content_size=has_size) + more)


@pytest.mark.parametrize("more", GARBAGE)
def test_bytes_behind_gzip_and_lz4_are_left_out_as_java_does(more: bytes) -> None:
    content = b"content " * 5_000
    assert read(GZIP, gzip.compress(content) + more) == content
    assert read(GZIP, gzip.compress(content) + gzip.compress(b"second") + more) == content + b"second"
    for more_options in ({}, {"content_checksum": True}, {"block_checksum": True}, {"store_size": False}):
        frame = lz4.frame.compress(content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, **more_options)
        assert read(LZ4, frame + more) == content
        assert read(LZ4, frame + lz4.frame.compress(b"second") + more) == content + b"second"


def test_frames_of_lz4_that_are_to_be_skipped() -> None:
    skipped = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    assert read(LZ4, lz4.frame.compress(b"a") + skipped + lz4.frame.compress(b"b")) == b"ab"


@pytest.mark.parametrize("codec_id", [GZIP, LZ4, ZSTD])
def test_a_frame_that_is_cut_off_is_damage(codec_id: int) -> None:
    content = bytes(range(256)) * 20
    frame = {GZIP: gzip.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress}[codec_id](content)
    for end in (1, 8, len(frame) // 2, len(frame) - 1):
        with pytest.raises(DamagedRecords):
            read(codec_id, frame[:end])


@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=60), st.integers(0, 3))
def test_whatever_comes_is_content_or_damage(codec_id: int, data: bytes, kind: int) -> None:
    magic = (b"", b"\x1f\x8b\x08\0", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")[kind]
    with contextlib.suppress(DamagedRecords, TooManyBytes):
        assert len(read(codec_id, magic + data, 1_000)) <= 1_000


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(each)) + each for each in blocks)


def test_snappy_in_blocks_of_one_byte_costs_no_more_than_its_size() -> None:
    """20 MB took 1 GB and 12 s."""
    compressed = xerial(*[snappy.compress(b"x")] * 300_000)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedRecords, match="hardly any content"):
            read(SNAPPY, compressed, 128 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MIB
    assert read(SNAPPY, xerial(*[snappy.compress(b"x")] * 900)) == b"x" * 900
    assert read(SNAPPY, xerial(*[snappy.compress(b"x" * 64)] * 5_000)) == b"x" * 64 * 5_000


@pytest.mark.parametrize("codec_id", [GZIP, SNAPPY, LZ4, ZSTD])
def test_content_is_in_memory_once(codec_id: int) -> None:
    """Pieces that were joined took twice their size."""
    content = bytes(64 * MIB)
    compressed = {
        GZIP: lambda: gzip.compress(content, 1),
        SNAPPY: lambda: xerial(*[snappy.compress(content[: 4 * MIB])] * 16),
        LZ4: lambda: lz4.frame.compress(content),
        ZSTD: lambda: zstd(content[:MIB], write_content_size=False) * 64,
    }[codec_id]()
    tracemalloc.start()
    try:
        assert len(DECOMPRESSOR.decompress(codec_id, memoryview(compressed), 128 * MIB)) == len(content)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1.4 * len(content)
