"""What codecs write, read by others (Java, librdkafka: integration), and what peers write; limits and damage."""

import contextlib
import gzip
import re
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from kafka_sink.options.table import OPTIONS
from kafka_sink.records.compression import DamagedRecords, Decompressor, TooManyBytes, codec_for

RECORDS = b"rows rows rows " * 10_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
DECODERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    # Attribute bits: KIP-98; 4: KIP-110.
    "gzip": (GZIP, gzip_decode), "snappy": (SNAPPY, snappy_decode), "lz4": (LZ4, lz4_decode),
    "zstd": (ZSTD, zstd_decode),
}  # fmt: skip
NAMES = pytest.mark.parametrize("name", list(DECODERS))
# Blocks are where a frame of one's own goes wrong: whole, one byte less, one more, several.
SIZES = [1, 200_000, *(block + extra for block in (32 << 10, 64 << 10, 1 << 20) for extra in (-1, 0, 1))]
LEVELS = [
    *[("gzip", level) for level in (-1, *range(1, 10))], *[("lz4", level) for level in range(1, 18)],
    *[("zstd", level) for level in (-131072, -5, 0, 1, 3, 22)],
]  # fmt: skip
NOISE = np.random.default_rng(3).bytes(150_000)
# One for all tests: what it keeps of one batch must not show in the next.
DECOMPRESSOR = Decompressor()
LZ4_BLOCKS = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB}
LARGE_WINDOW = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
FOREIGN: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip of members": (GZIP, lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:])),
    "raw snappy": (SNAPPY, snappy.compress),
    "snappy of blocks": (SNAPPY, lambda content: xerial(content[:9], b"", content[9:])),
    "streams of snappy": (SNAPPY, lambda content: xerial(content[:9]) + xerial(content[9:])),
    "lz4 of linked blocks": (LZ4, lambda content: lz4.frame.compress(content, block_linked=True, **LZ4_BLOCKS)),
    "lz4 with checksums": (LZ4, lambda text: lz4.frame.compress(text, content_checksum=True, block_checksum=True)),
    "frames of lz4": (LZ4, lambda content: lz4.frame.compress(content[:9]) + lz4.frame.compress(content[9:])),
    "zstd without a size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    "zstd with a checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "frames of zstd": (ZSTD, lambda content: compress("zstd", content[:9]) + compress("zstd", content[9:])),
    "zstd with a large window": (ZSTD, zstandard.ZstdCompressor(compression_params=LARGE_WINDOW).compress),
}
# Magic, a single segment with a size of 8 bytes, and that size, which is compared with the limit first.
CLAIM = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 2**62)
GARBAGE = (b"\0", b"\0" * 9, b"garbage", b"\x1f", b"\x04\x22", b"\xff" * 70)


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
    none, view = codec_for("none"), memoryview(RECORDS)
    assert none.id == 0 and none.compress(view) is view


@NAMES
@given(st.binary(max_size=300), st.integers(0, 1500), st.integers(0, 100_000))
def test_any_mix_of_text_and_noise_reads_back(name: str, text: bytes, repeats: int, random_bytes: int) -> None:
    records = text * repeats + noise(random_bytes) + text + b"!"  # a batch is never empty
    assert DECODERS[name][1](compress(name, records)) == records


@NAMES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compressible", [True, False])
def test_bounds_of_blocks(name: str, size: int, compressible: bool) -> None:
    records = (RECORDS * 8)[:size] if compressible else noise(size)
    assert len(records) == size
    compressed = compress(name, records)
    assert DECODERS[name][1](compressed) == records
    assert read(DECODERS[name][0], compressed, size) == records


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_every_level_reads_back(name: str, level: int) -> None:
    assert DECODERS[name][1](compress(name, RECORDS, level)) == RECORDS


def test_a_level_reaches_the_compressor_and_defaults_are_those_of_the_options() -> None:
    words = np.random.default_rng(5).choice([b"order", b"created", b"42", b"amsterdam", b",", b"{"], 100_000)
    text = b"".join(words.tolist())
    for name, fast, small in (("gzip", 1, 9), ("lz4", 9, 12), ("lz4", 3, 12), ("zstd", -100, 19)):
        assert len(compress(name, text, small)) < len(compress(name, text, fast))
    defaults = {option.name: option.default for option in OPTIONS}
    for name in ("gzip", "lz4", "zstd"):
        assert compress(name, RECORDS) == compress(name, RECORDS, defaults[f"kafka.compression.{name}.level"])
    for level in (1, 3, 19):
        assert compress("zstd", RECORDS, level) == zstandard.ZstdCompressor(level=level).compress(RECORDS)


def test_without_a_level_zstd_is_about_kafkas_with_a_window_of_256_kib() -> None:
    # 1 MiB of JSON around numbers that differ.
    order = b'{"order": %d, "customer": %d, "amount": %d, "status": "paid", "currency": "EUR"}'
    numbers = np.random.default_rng(7).integers(0, 10**6, (10_000, 3)).tolist()
    orders = b"".join(order % tuple(each) for each in numbers)
    fast, kafkas, ours = (len(compress("zstd", orders, level)) for level in (-1, 3, None))
    assert 0.9 < kafkas / ours < 1.1
    assert ours < 0.95 * fast
    records = noise(200_000)
    near, far = (len(compress("zstd", records + bytes(between) + records)) for between in (10_000, 100_000))
    assert near < 210_000 < 390_000 < far


def test_frames_of_lz4_and_gzip_say_what_java_insists_on_and_no_time_or_name() -> None:
    info = lz4.frame.get_frame_info(compress("lz4", RECORDS))
    names = ("block_linked", "block_size", "content_checksum", "block_checksum", "content_size")
    assert [info[name] for name in names] == [False, 64 * 1024, False, False, 0]
    assert compress("gzip", RECORDS)[:8] == gzip.compress(RECORDS, mtime=0)[:8]


def test_snappy_stream_is_that_of_snappy_java() -> None:
    compressed = compress("snappy", RECORDS)
    assert re.match(rb"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", compressed)
    at, sizes = 16, []
    while at < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, at)
        sizes.append(len(snappy_decode(compressed[at + 4 : at + 4 + length])))
        at += 4 + length
    assert sizes == [32 * 1024] * 4 + [len(RECORDS) - 4 * 32 * 1024]


def read(codec_id: int, compressed: bytes, most_bytes: int = 2**20) -> bytes:
    return DECOMPRESSOR.decompress(codec_id, memoryview(compressed), most_bytes)


def xerial(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in map(snappy.compress, blocks))


@pytest.mark.parametrize(("codec_id", "compress"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("content", [
    RECORDS, NOISE, NOISE[:20], bytes(400_000),
], ids=["text", "noise", "little", "zeros"])  # fmt: skip
def test_a_byte_over_the_limit(codec_id: int, compress: Callable[[bytes], bytes], content: bytes) -> None:
    compressed = compress(content)
    assert read(codec_id, compressed, len(content)) == content
    for most_bytes in (len(content) - 1, 10, 1):
        with pytest.raises(TooManyBytes):
            read(codec_id, compressed, most_bytes)


@NAMES
def test_damage(name: str) -> None:
    codec_id, right = DECODERS[name][0], compress(name, RECORDS)
    # Bytes behind the end: below.
    for damaged in (b"\0" * 30, right[:-1], right[: len(right) // 2], right[1:], *([CLAIM] if name == "zstd" else [])):
        with pytest.raises(DamagedRecords):
            read(codec_id, damaged)
    for unknown in (0, 5, 6, 7):
        with pytest.raises(DamagedRecords, match=f"{unknown} is no codec"):
            read(unknown, right)


def test_lengths_of_snappy_that_cannot_be() -> None:
    for damaged in (
        b"", b"\xff\xff\xff", b"\x80\x80\x80\x80\x80", xerial(RECORDS)[:18], xerial(RECORDS)[:20],
        b"\xff\xff\xff\xff\x7f",  # a content of more than 32 bits
        b"\xff\xff\xff\x7f\0\0",  # 256 MiB of two bytes
        xerial(RECORDS)[:16] + struct.pack(">i", -1), xerial(RECORDS)[:16] + struct.pack(">i", 2**31 - 1) + b"x",
    ):  # fmt: skip
        with pytest.raises(DamagedRecords):
            read(SNAPPY, damaged, 2**31 - 1)


@NAMES
@given(content=st.binary(max_size=3000), data=st.data())
def test_whatever_comes_is_read_or_refused(name: str, content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(compress(name, content * data.draw(st.integers(1, 30)) or b"x"))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DamagedRecords, TooManyBytes):
        assert len(read(DECODERS[name][0], bytes(damaged), 50_000)) <= 50_000


def zstd(content: bytes, **given: bool) -> bytes:
    """With `write_content_size=False` as zstd-jni's stream writes, that of Java's producer."""
    return zstandard.ZstdCompressor(**given).compress(content)


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize("parts", [
    (b"a" * 9, b"b"), (b"", b"b" * 100), (b"", b"", b"c"), (b"a", b""), (b"x" * 70_000,) * 3,
])  # fmt: skip
def test_zstd_of_several_frames(parts: tuple[bytes, ...], has_checksum: bool, has_size: bool) -> None:
    frames = b"".join(zstd(part, write_content_size=has_size, write_checksum=has_checksum) for part in parts)
    assert read(ZSTD, frames) == b"".join(parts)


@pytest.mark.parametrize("more", GARBAGE)
def test_bytes_behind_gzip_and_lz4_are_left_out_and_behind_zstd_damage_as_for_java(more: bytes) -> None:
    content = b"content " * 5_000
    assert read(GZIP, gzip.compress(content) + more) == content
    assert read(GZIP, gzip.compress(content) + gzip.compress(b"second") + more) == content + b"second"
    skipped = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    for more_options in ({}, {"content_checksum": True}, {"block_checksum": True}, {"store_size": False}):
        frame = lz4.frame.compress(content, **LZ4_BLOCKS, **more_options)
        assert read(LZ4, frame + more) == content
        assert read(LZ4, frame + skipped + lz4.frame.compress(b"second") + more) == content + b"second"
    for has_size in (True, False):
        with pytest.raises(DamagedRecords):
            read(ZSTD, zstd(b"content", write_content_size=has_size) + more)


@contextlib.contextmanager
def at_most_bytes(most: float) -> Iterator[None]:
    """What is allocated, at its peak."""
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < most


def test_snappy_in_blocks_of_one_byte_costs_no_more_than_its_size() -> None:
    """20 MB took 1 GB and 12 s."""
    compressed = xerial(*[b"x"] * 300_000)
    with at_most_bytes(4 << 20), pytest.raises(DamagedRecords, match="hardly any content"):
        read(SNAPPY, compressed, 128 << 20)
    assert read(SNAPPY, xerial(*[b"x"] * 900)) == b"x" * 900
    assert read(SNAPPY, xerial(*[b"x" * 64] * 5_000)) == b"x" * 64 * 5_000


@pytest.mark.parametrize(("codec_id", "compressed"), [
    (GZIP, lambda content: gzip.compress(content, 1)), (SNAPPY, lambda content: xerial(*[content[: 4 << 20]] * 16)),
    (LZ4, lz4.frame.compress), (ZSTD, lambda content: zstd(content[: 1 << 20], write_content_size=False) * 64),
])  # fmt: skip
def test_content_is_in_memory_once(codec_id: int, compressed: Callable[[bytes], bytes]) -> None:
    """Pieces that were joined took twice their size."""
    content = bytes(64 << 20)
    whole = compressed(content)
    with at_most_bytes(1.4 * len(content)):
        assert len(read(codec_id, whole, 128 << 20)) == len(content)
