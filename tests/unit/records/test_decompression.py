"""What peers write: streams and raw blocks, several frames, empty ones, linked blocks; limits, and damage."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
from collections.abc import Callable

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.compression import codec_for
from kafka_sink.records.decompression import DamagedRecords, Decompressor, TooManyBytes

TEXT = b"rows rows rows " * 10_000
NOISE = np.random.default_rng(3).bytes(150_000)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
# One for all tests: what it keeps of one batch must not show in the next.
DECOMPRESSOR = Decompressor()
IDS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
NAMES = pytest.mark.parametrize("name", IDS)


def ours(name: str, content: bytes) -> bytes:
    return bytes(codec_for(name).compress(memoryview(content)))


def read(codec_id: int, compressed: bytes, most_bytes: int = 2**20) -> bytes:
    return DECOMPRESSOR.decompress(codec_id, memoryview(compressed), most_bytes)


def xerial(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in map(snappy.compress, blocks))


FOREIGN: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip of members": (GZIP, lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:])),
    "raw snappy": (SNAPPY, snappy.compress),
    "snappy of blocks": (SNAPPY, lambda content: xerial(content[:9], b"", content[9:])),
    "streams of snappy": (SNAPPY, lambda content: xerial(content[:9]) + xerial(content[9:])),
    "lz4 of linked blocks": (
        LZ4, lambda content: lz4.frame.compress(content, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    ),
    "lz4 with all checksums": (
        LZ4, lambda content: lz4.frame.compress(content, content_checksum=True, block_checksum=True)
    ),
    "frames of lz4": (LZ4, lambda content: lz4.frame.compress(content[:9]) + lz4.frame.compress(content[9:])),
    "zstd without a size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    "zstd with a checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "frames of zstd": (ZSTD, lambda content: ours("zstd", content[:9]) + ours("zstd", content[9:])),
    "zstd with a large window": (
        ZSTD, zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
        ).compress,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("codec_id", "compress"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("content", [TEXT, NOISE, NOISE[:20], bytes(400_000)], ids=["text", "noise", "little", "zeros"])
def test_a_byte_over_the_limit(codec_id: int, compress: Callable[[bytes], bytes], content: bytes) -> None:
    compressed = compress(content)
    assert read(codec_id, compressed, len(content)) == content
    for most_bytes in (len(content) - 1, 10, 1):
        with pytest.raises(TooManyBytes):
            read(codec_id, compressed, most_bytes)


@NAMES
def test_damage(name: str) -> None:
    right = ours(name, TEXT)
    # Bytes behind the end: below.
    for damaged in (b"\0" * 30, right[:-1], right[: len(right) // 2], right[1:]):
        with pytest.raises(DamagedRecords):
            read(IDS[name], damaged)


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"\xff\xff\xff", b"\x80\x80\x80\x80\x80", xerial(TEXT)[:18], xerial(TEXT)[:20],
        b"\xff\xff\xff\xff\x7f",  # a content of more than 32 bits
        b"\xff\xff\xff\x7f\0\0",  # 256 MiB of two bytes
        xerial(TEXT)[:16] + struct.pack(">i", -1), xerial(TEXT)[:16] + struct.pack(">i", 2**31 - 1) + b"x",
    ],
)  # fmt: skip
def test_lengths_of_snappy_that_cannot_be(damaged: bytes) -> None:
    with pytest.raises(DamagedRecords):
        read(SNAPPY, damaged, 2**31 - 1)


def test_a_size_that_zstd_claims_is_compared_with_the_limit_first() -> None:
    """Magic, a single segment with a size of 8 bytes, and that size: 2^62."""
    claim = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 2**62)
    with pytest.raises(DamagedRecords):
        read(ZSTD, claim)


@pytest.mark.parametrize("codec_id", [0, 5, 6, 7])
def test_codecs_that_kafka_does_not_have(codec_id: int) -> None:
    with pytest.raises(DamagedRecords, match=f"{codec_id} is no codec"):
        read(codec_id, b"anything")


@NAMES
@given(content=st.binary(max_size=3000), data=st.data())
def test_whatever_comes_is_read_or_refused(name: str, content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(ours(name, content * data.draw(st.integers(1, 30)) or b"x"))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DamagedRecords, TooManyBytes):
        assert len(read(IDS[name], bytes(damaged), 50_000)) <= 50_000


MIB = 1024 * 1024
GARBAGE = (b"\0", b"\0" * 9, b"garbage", b"\x1f", b"\x04\x22", b"\xff" * 70)


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


def test_snappy_in_blocks_of_one_byte_costs_no_more_than_its_size() -> None:
    """20 MB took 1 GB and 12 s."""
    compressed = xerial(*[b"x"] * 300_000)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedRecords, match="hardly any content"):
            read(SNAPPY, compressed, 128 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MIB
    assert read(SNAPPY, xerial(*[b"x"] * 900)) == b"x" * 900
    assert read(SNAPPY, xerial(*[b"x" * 64] * 5_000)) == b"x" * 64 * 5_000


@pytest.mark.parametrize("codec_id", [GZIP, SNAPPY, LZ4, ZSTD])
def test_content_is_in_memory_once(codec_id: int) -> None:
    """Pieces that were joined took twice their size."""
    content = bytes(64 * MIB)
    compressed = {
        GZIP: lambda: gzip.compress(content, 1),
        SNAPPY: lambda: xerial(*[content[: 4 * MIB]] * 16),
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
