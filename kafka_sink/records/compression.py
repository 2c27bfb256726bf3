"""Compression codecs: an object per Kafka codec that compresses the records of a batch. It also decompresses them if a
broker refuses the batch for its size.

Only the bytes after the header of 61 bytes are compressed, in one stream per record batch (KIP-98; levels: KIP-390;
zstd: KIP-110). zstd comes from zstandard, the other three from Arrow. All release the GIL. For two codecs Arrow has no
frames that Java writes or reads:

    snappy  the stream of snappy-java: a header, then blocks, each preceded by its length.
    lz4     the standard frame, with *independent* blocks. Arrow's own "lz4" links the blocks if there are two or
            more. Java then fails with "Dependent block stream is unsupported"; librdkafka and kafka-python do not.
            So only batches over 64 KB, and only Java, show the problem. The header's checksum is the standard's.
            The wrong checksum that Kafka once wrote belongs to message formats before v2 (KIP-57).

A codec object is created once and reused: a new zstd compressor costs 31 us, a reused one 2 us. It is NOT thread-safe,
because a compressor keeps its work area between calls. Use one object per thread, or one lock for all calls.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa


class Codec(Protocol):
    @property
    def id(self) -> int:
        """Bits 0 to 2 of a record batch's attributes."""

    def compress(self, records: memoryview) -> bytes | memoryview:
        """Return all of `records` (contiguous bytes) compressed. The caller must check if the result is smaller."""

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        """Return the records that `compress` made `compressed` of. Returns at most `size_bytes`, their size (at least
        1)."""


class NoCompression:
    id = 0

    def compress(self, records: memoryview) -> memoryview:
        return records

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        return bytes(compressed)


class Gzip:
    """`level`: 1 to 9, or -1 for zlib's default, which is 6. (Arrow's own default is 9: a third of the speed for a size
    that is a few percent smaller.)"""

    id = 1
    ZLIB_DEFAULT_LEVEL = 6
    GZIP_WBITS = 16 + zlib.MAX_WBITS  # makes zlib use gzip's header

    def __init__(self, level: int = -1) -> None:
        self._codec = pa.Codec("gzip", compression_level=self.ZLIB_DEFAULT_LEVEL if level == -1 else level)

    def compress(self, records: memoryview) -> bytes:
        compressed: bytes = self._codec.compress(records, asbytes=True)
        return compressed

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        return zlib.decompressobj(wbits=self.GZIP_WBITS).decompress(compressed, size_bytes)


class Snappy:
    """Source: org.xerial.snappy.SnappyOutputStream, SnappyCodec."""

    id = 2
    # Magic, the format's version, and the oldest version that can read it.
    HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    BLOCK_BYTES = 32 * 1024  # as snappy-java; 64 KB, snappy's largest window, is slower and 3 % smaller
    _BLOCK_LENGTH = struct.Struct(">i")

    def __init__(self) -> None:
        self._codec = pa.Codec("snappy")

    def compress(self, records: memoryview) -> bytes:
        parts = [self.HEADER]
        for block in _blocks(records, self.BLOCK_BYTES):
            compressed = self._codec.compress(block, asbytes=True)
            parts += (self._BLOCK_LENGTH.pack(len(compressed)), compressed)
        return b"".join(parts)

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        parts = []
        at = len(self.HEADER)
        for block_bytes in _block_sizes(size_bytes, self.BLOCK_BYTES):
            (length,) = self._BLOCK_LENGTH.unpack_from(compressed, at)
            at += self._BLOCK_LENGTH.size
            parts.append(self._codec.decompress(compressed[at : at + length], block_bytes, asbytes=True))
            at += length
        return b"".join(parts)


class Lz4:
    """`level`: 1 to 17 as in Kafka. 9, Kafka's default, is lz4's fast mode. Any other is the high-compression mode of
    that level. In lz4 itself 1 is also fast, and 12 is the highest level.

    Source: org.apache.kafka.common.compress.Lz4BlockOutputStream; the frame: lz4_Frame_format.md.
    """

    id = 3
    FAST_LEVEL = 9
    # Magic; flags: version 1, independent blocks, no checksums; blocks up to 64 KB; second byte of the flags' xxHash32.
    # Block size as in Java: readers keep a buffer of this size. Larger blocks gain no speed and 0 to 7 % of size.
    HEADER = bytes.fromhex("04224d18604082")
    BLOCK_BYTES = 64 * 1024
    END_MARK = bytes(4)
    _BLOCK_LENGTH = struct.Struct("<I")
    _STORED = 1 << 31  # this bit of a length marks a block that is not compressed

    def __init__(self, level: int = FAST_LEVEL) -> None:
        self._codec = pa.Codec("lz4_raw", compression_level=None if level == self.FAST_LEVEL else level)

    def compress(self, records: memoryview) -> bytes:
        parts: list[bytes | memoryview] = [self.HEADER]
        for block in _blocks(records, self.BLOCK_BYTES):
            compressed = self._codec.compress(block, asbytes=True)
            # A compressed block must not be longer than the original: a reader's buffer ends there.
            if len(compressed) < len(block):
                parts += (self._BLOCK_LENGTH.pack(len(compressed)), compressed)
            else:
                parts += (self._BLOCK_LENGTH.pack(len(block) | self._STORED), block)
        return b"".join((*parts, self.END_MARK))

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        parts: list[bytes | memoryview] = []
        at = len(self.HEADER)
        for block_bytes in _block_sizes(size_bytes, self.BLOCK_BYTES):
            (word,) = self._BLOCK_LENGTH.unpack_from(compressed, at)
            at += self._BLOCK_LENGTH.size
            length = word & ~self._STORED
            block = compressed[at : at + length]
            stored = word & self._STORED
            parts.append(block if stored else self._codec.decompress(block, block_bytes, asbytes=True))
            at += length
        return b"".join(parts)


class Zstd:
    """`level`: -131072 to 22, as in zstd. None, the default, compresses about as well as level 3, Kafka's default, in
    less time.

    The records of a batch resemble the records shortly before them. Matches of five bytes among them are often
    accidental. So one table of 128 KiB, a window of 256 KiB and matches of at least six bytes find nearly as much as
    level 3, which uses two tables of 768 KiB in 2 MiB. More of the CPU cache remains for the encoder. Compared to level
    3, in batches of 1 MiB:

        rows                     speed    ratio       rows                     speed    ratio
        JSON with random hex     2.0      1.06        structs of numbers       1.7      0.97
        JSON orders              1.5      0.98        lines of source code     1.6      0.91
        JSON metrics             1.6      1.02        lines of prose           1.6      0.96
        web server logs          1.6      0.97        words drawn by chance    1.4      0.92

    Readers need no setting for this.
    """

    id = 4
    LEVEL_OF_FAST = 1  # gives all parameters not set below: zstd's strategy "fast"
    PARAMETERS: Mapping[str, int] = MappingProxyType({"hash_log": 15, "min_match": 6, "window_log": 18})

    def __init__(self, level: int | None = None) -> None:
        # Imported by those who use this codec.
        import zstandard

        if level is None:
            parameters = zstandard.ZstdCompressionParameters.from_level(self.LEVEL_OF_FAST, **self.PARAMETERS)
            self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        else:
            self._compressor = zstandard.ZstdCompressor(level=level)

    def compress(self, records: memoryview) -> bytes:
        return self._compressor.compress(records)

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(compressed).read(size_bytes)


def _blocks(records: memoryview, block_bytes: int) -> Iterator[memoryview]:
    """Return slices of `block_bytes`, the last one shorter. One Python step per block, which is hundreds of rows."""
    return (records[start : start + block_bytes] for start in range(0, len(records), block_bytes))


def _block_sizes(size_bytes: int, block_bytes: int) -> Iterator[int]:
    """Return the sizes of the slices that `_blocks` makes of `size_bytes`."""
    return (min(block_bytes, size_bytes - start) for start in range(0, size_bytes, block_bytes))


# Codec name -> its constructor. options/config.py knows which codecs have a level, and its range.
CODECS: Mapping[str, Callable[..., Codec]] = MappingProxyType(
    {"none": NoCompression, "gzip": Gzip, "snappy": Snappy, "lz4": Lz4, "zstd": Zstd}
)


def codec_for(name: str, level: int | None = None) -> Codec:
    """Return a new codec of the `compression.type` `name`. `level` None: the codec's default, or no level."""
    return CODECS[name]() if level is None else CODECS[name](level)
