"""Compression codecs: an object per Kafka codec that compresses the records of a batch, and one that decompresses what
any client has written.

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

import functools
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import zstandard


class Codec(Protocol):
    @property
    def id(self) -> int:
        """Bits 0 to 2 of a record batch's attributes."""

    def compress(self, records: memoryview) -> bytes | memoryview:
        """Return all of `records` (contiguous bytes) compressed. The caller must check if the result is smaller."""


class NoCompression:
    id = 0

    def compress(self, records: memoryview) -> memoryview:
        return records


class Gzip:
    """`level`: 1 to 9, or -1 for zlib's default, which is 6. (Arrow's own default is 9: a third of the speed for a size
    that is a few percent smaller.)"""

    id = 1
    ZLIB_DEFAULT_LEVEL = 6

    def __init__(self, level: int = -1) -> None:
        self._codec = pa.Codec("gzip", compression_level=self.ZLIB_DEFAULT_LEVEL if level == -1 else level)

    def compress(self, records: memoryview) -> bytes:
        compressed: bytes = self._codec.compress(records, asbytes=True)
        return compressed


class Snappy:
    """Source: org.xerial.snappy.SnappyOutputStream, SnappyCodec."""

    id = 2
    # Magic, the format's version, and the oldest version that can read it.
    HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    BLOCK_BYTES = 32 * 1024  # as snappy-java; 64 KB, snappy's largest window, is slower and 3 % smaller
    BLOCK_LENGTH = struct.Struct(">i")

    def __init__(self) -> None:
        self._codec = pa.Codec("snappy")

    def compress(self, records: memoryview) -> bytes:
        parts = [self.HEADER]
        for block in _blocks(records, self.BLOCK_BYTES):
            compressed = self._codec.compress(block, asbytes=True)
            parts += (self.BLOCK_LENGTH.pack(len(compressed)), compressed)
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


def _blocks(records: memoryview, block_bytes: int) -> Iterator[memoryview]:
    """Return slices of `block_bytes`, the last one shorter. One Python step per block, which is hundreds of rows."""
    return (records[start : start + block_bytes] for start in range(0, len(records), block_bytes))


# Codec name -> its constructor. options/config.py knows which codecs have a level, and its range.
CODECS: Mapping[str, Callable[..., Codec]] = MappingProxyType(
    {"none": NoCompression, "gzip": Gzip, "snappy": Snappy, "lz4": Lz4, "zstd": Zstd}
)


def codec_for(name: str, level: int | None = None) -> Codec:
    """Return a new codec of the `compression.type` `name`. `level` None: the codec's default, or no level."""
    return CODECS[name]() if level is None else CODECS[name](level)


# --- decompression ----------------------------------------------------------------------------------------------------

# Content is read in pieces, of which the first is as large as content usually is.
_USUAL_RATIO = 4
_LEAST_PIECE_BYTES = 64 * 1024
_MOST_PIECE_BYTES = 4 * 1024 * 1024
# More than records of usual rows are compressed by.
_ZSTD_HIGH_RATIO = 16
_SNAPPY_MAGIC = Snappy.HEADER[:8]
# A raw block begins with the length of its content, as a varint of 32 bits.
_SNAPPY_CONTENT_LENGTH_BYTES = 5
# snappy-java has blocks of 1 KiB or more, except where somebody flushes.
_SNAPPY_MOST_SMALL_BLOCKS = 1_000
_SNAPPY_LEAST_MEAN_BYTES = 64
# The longest copy is 64 bytes and takes three. A block that claims more is damaged.
_SNAPPY_MOST_RATIO = 64
# Of a block that is one byte, repeated.
_ZSTD_RLE = 1
_ZSTD_MAGIC, _ZSTD_LEAST_HEADER_BYTES = b"\x28\xb5\x2f\xfd", 6
_LZ4_MAGIC, _LZ4_LEAST_HEADER_BYTES = b"\x04\x22\x4d\x18", 7
# Frames of anything else, with magic 0x184D2A50 to 5F.
_SKIPPED_MAGIC = b"\x2a\x4d\x18"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS  # makes zlib use gzip's header

Content = bytes | bytearray


class DamagedRecords(ValueError):
    """The bytes are not what the codec writes, or they end too early."""


class TooManyBytes(ValueError):
    """The content is larger than the limit."""


class Decompressor:
    """Decompresses one batch after the other. It is not thread-safe, because zstd keeps its work area between calls.

        gzip    one member, or several; other bytes behind them are left out, as Java does
        snappy  the stream of snappy-java, or one raw block, as librdkafka writes
        lz4     frames, also with linked blocks, which Java cannot read and librdkafka can; other bytes are left out
        zstd    frames, with or without the size of their content, and nothing else, as for Java

    What is left out has no record that counts: the decoder compares the number of records with the batch's header.

    No result is larger than the limit. No size that the input claims is allocated before it was compared with the
    limit. zstd takes up to 128 MiB more for its window, the most that Java allows too.

    Source: SnappyInputStream of snappy-java; Lz4BlockInputStream, java.util.zip.GZIPInputStream (readTrailer); RFC
    8878; lz4_Frame_format.md; RecordBatch attributes: KIP-98, KIP-110.
    """

    def __init__(self) -> None:
        # Only who reads or uses the codec needs it: the import takes some milliseconds.
        import zstandard

        self._library = zstandard
        self._decompressors: Mapping[int, Callable[[memoryview, int], Content]] = {
            1: _gzip,
            2: self._snappy,
            3: _lz4,
            4: self._zstd,
        }

    def decompress(self, codec_id: int, compressed: memoryview, most_bytes: int) -> Content:
        """Return the records of a batch with this codec, at most `most_bytes`.

        Raises TooManyBytes if there are more, and DamagedRecords if the codec cannot read them, or is none of Kafka's.
        """
        decompressor = self._decompressors.get(codec_id)
        if decompressor is None:
            raise DamagedRecords(f"{codec_id} is no codec of Kafka's")
        try:
            return decompressor(compressed, most_bytes)
        except (OSError, EOFError, zlib.error, self._library.ZstdError, pa.ArrowException) as error:
            raise DamagedRecords(str(error)) from error

    @functools.cached_property
    def _zstandard(self) -> zstandard.ZstdDecompressor:
        return self._library.ZstdDecompressor()

    def _zstd(self, compressed: memoryview, most_bytes: int) -> Content:
        """One frame in one step is twice as fast as a stream. python-zstandard returns only the first one of several if
        its content has no size, or none (0)."""
        unknown = -1
        claimed = self._library.frame_content_size(compressed)
        room = min(_ZSTD_HIGH_RATIO * len(compressed), most_bytes) if claimed == unknown else claimed
        if room <= most_bytes and _zstd_frame_bytes(compressed) == len(compressed):
            try:
                return self._zstandard.decompress(compressed, max_output_size=room, allow_extra_data=False)
            except self._library.ZstdError:
                pass  # There is more content than was expected, or damage.
        return _streamed("zstd", compressed, most_bytes)

    @functools.cached_property
    def _snappy_codec(self) -> pa.Codec:
        return pa.Codec("snappy")

    def _snappy(self, compressed: memoryview, most_bytes: int) -> Content:
        content = _Content(most_bytes)
        for count, block in enumerate(_snappy_blocks(compressed)):
            length = _snappy_content_length(block)
            if count > _SNAPPY_MOST_SMALL_BLOCKS and len(content.found) < count * _SNAPPY_LEAST_MEAN_BYTES:
                raise EOFError("the blocks have hardly any content")
            content.check(length)
            content.add(self._snappy_codec.decompress(block, length, asbytes=True))
        return content.found


def _streamed(name: str, compressed: memoryview, most_bytes: int) -> Content:
    """The standard frames of a codec, one after the other. Arrow raises OSError where the last one is cut off."""
    content = _Content(most_bytes)
    piece_bytes = min(max(_USUAL_RATIO * len(compressed), _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)
    with pa.CompressedInputStream(pa.BufferReader(compressed), name) as stream:
        # One byte more than there may be shows that there are more.
        while piece := stream.read(min(piece_bytes, content.room_bytes + 1)):
            content.add(piece)
    return content.found


def _gzip(compressed: memoryview, most_bytes: int) -> Content:
    try:
        return _streamed("gzip", compressed, most_bytes)
    except OSError:
        return _gzip_members(compressed, most_bytes)


def _gzip_members(compressed: memoryview, most_bytes: int) -> Content:
    """Members up to what is none. Raises zlib.error, EOFError."""
    content, rest = _Content(most_bytes), bytes(compressed)
    is_first = True
    while is_first or rest[: len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            piece = member.decompress(rest, min(_MOST_PIECE_BYTES, content.room_bytes + 1))
            rest = member.unused_data if member.eof else member.unconsumed_tail
            content.add(piece)
            if not (piece or rest or member.eof):
                raise EOFError("a member is cut off")
        is_first = False
    return content.found


def _lz4(compressed: memoryview, most_bytes: int) -> Content:
    return _streamed("lz4", compressed[: _lz4_frames_bytes(compressed)], most_bytes)


def _lz4_frames_bytes(compressed: memoryview) -> int:
    """Return the bytes of the whole frames that come first; all bytes if the first one is not whole."""
    end = 0
    while size := _lz4_frame_bytes(compressed[end:]):
        end += size
    return end or len(compressed)


def _lz4_frame_bytes(frame: memoryview) -> int:
    """Return the bytes of a frame by its blocks' sizes, 0 if it is none or not whole."""
    if len(frame) < _LZ4_LEAST_HEADER_BYTES:
        return 0
    if frame[1:4] == _SKIPPED_MAGIC and frame[0] >> 4 == 5:
        size = 8 + int.from_bytes(frame[4:8], "little")
        return size if size <= len(frame) else 0
    if frame[:4] != _LZ4_MAGIC:
        return 0
    flags = frame[4]
    at = _LZ4_LEAST_HEADER_BYTES + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block_checksum = 4 if flags & 0x10 else 0
    while at + 4 <= len(frame):
        size = int.from_bytes(frame[at : at + 4], "little") & 0x7FFFFFFF
        at += 4
        if size == 0:
            at += 4 if flags & 0x04 else 0
            return at if at <= len(frame) else 0
        at += size + block_checksum
    return 0


def _zstd_frame_bytes(compressed: memoryview) -> int:
    """Return the bytes of the first frame by its blocks' sizes, 0 if it is not whole or another one."""
    if compressed[:4] != _ZSTD_MAGIC or len(compressed) < _ZSTD_LEAST_HEADER_BYTES:
        return 0
    descriptor = compressed[4]
    is_single = descriptor & 0x20
    size_bytes = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    at = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 0x03] + size_bytes
    while at + 3 <= len(compressed):
        header = int.from_bytes(compressed[at : at + 3], "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if is_last:
            at += 4 if descriptor & 0x04 else 0
            return at if at <= len(compressed) else 0
    return 0


def _snappy_blocks(compressed: memoryview) -> Iterator[memoryview]:
    if compressed[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        yield compressed
        return
    at = 0
    while at < len(compressed):
        # A stream that was appended to another one begins with a header of its own.
        if compressed[at : at + len(_SNAPPY_MAGIC)] == _SNAPPY_MAGIC:
            at += len(Snappy.HEADER)
            continue
        if len(compressed) - at < Snappy.BLOCK_LENGTH.size:
            raise EOFError("the length of a block is cut off")
        (length,) = Snappy.BLOCK_LENGTH.unpack_from(compressed, at)
        at += Snappy.BLOCK_LENGTH.size
        if not 0 <= length <= len(compressed) - at:
            raise EOFError("a block is cut off")
        yield compressed[at : at + length]
        at += length


def _snappy_content_length(block: memoryview) -> int:
    length = 0
    for place, byte in enumerate(block[:_SNAPPY_CONTENT_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise EOFError("the length of a block's content is cut off")
    if length > _SNAPPY_MOST_RATIO * len(block):
        raise EOFError("a block claims more content than it can have")
    return length


class _Content:
    """Content that grows in its place, up to `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self.room_bytes = most_bytes
        self.found: Content = b""

    def check(self, more_bytes: int) -> None:
        if more_bytes > self.room_bytes:
            raise TooManyBytes

    def add(self, piece: bytes) -> None:
        self.check(len(piece))
        self.room_bytes -= len(piece)
        if not self.found:
            # Often the only piece.
            self.found = piece
            return
        if isinstance(self.found, bytes):
            self.found = bytearray(self.found)
        self.found += piece
