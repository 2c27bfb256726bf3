"""Decompresses the records of a batch that anybody may have written, within a limit.

Scope: bytes to bytes, by codec id. compression.py writes what only this project wrote; this module reads what every
client writes and what a broker may send:

    gzip    one member, or several
    snappy  the stream of snappy-java, or one raw block, as librdkafka writes
    lz4     frames, also with linked blocks, which Java cannot read and librdkafka can
    zstd    frames, with or without the size of their content

No result is larger than the limit. No size that the input claims is allocated before it was compared with the limit.
zstd takes up to 128 MiB more for its window, the most that Java allows too.

Source: SnappyInputStream of snappy-java; RecordBatch attributes: KIP-98, KIP-110.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping

import pyarrow as pa
import zstandard

from kafka_sink.records.compression import Snappy

# Content is read in pieces, of which the first is as large as content usually is.
_USUAL_RATIO = 4
_LEAST_PIECE_BYTES = 64 * 1024
_MOST_PIECE_BYTES = 4 * 1024 * 1024
# More than records of usual rows are compressed by.
_ZSTD_HIGH_RATIO = 16
_SNAPPY_MAGIC = Snappy.HEADER[:8]
_SNAPPY_LENGTH = struct.Struct(">i")
# A raw block begins with the length of its content, as a varint of 32 bits.
_SNAPPY_CONTENT_LENGTH_BYTES = 5
# The longest copy is 64 bytes and takes three. A block that claims more is damaged.
_SNAPPY_MOST_RATIO = 64


class DamagedRecords(ValueError):
    """The bytes are not what the codec writes, or they end too early."""


class TooManyBytes(ValueError):
    """The content is larger than the limit."""


class Decompressor:
    """Decompresses one batch after the other. It is not thread-safe, because zstd keeps its work area between calls."""

    def __init__(self) -> None:
        self._decompressors: Mapping[int, Callable[[memoryview, int], bytes]] = {
            1: functools.partial(_streamed, "gzip"),
            2: self._snappy,
            3: functools.partial(_streamed, "lz4"),
            4: self._zstd,
        }

    def decompress(self, codec_id: int, compressed: memoryview, most_bytes: int) -> bytes:
        """Return the records of a batch with this codec, at most `most_bytes`.

        Raises TooManyBytes if there are more, and DamagedRecords if the codec cannot read them, or is none of Kafka's.
        """
        decompressor = self._decompressors.get(codec_id)
        if decompressor is None:
            raise DamagedRecords(f"{codec_id} is no codec of Kafka's")
        try:
            return decompressor(compressed, most_bytes)
        except (OSError, EOFError, zstandard.ZstdError, pa.ArrowException) as error:
            raise DamagedRecords(str(error)) from error

    @functools.cached_property
    def _zstandard(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor()

    def _zstd(self, compressed: memoryview, most_bytes: int) -> bytes:
        """One frame in one step is twice as fast as a stream."""
        unknown = -1
        claimed = zstandard.frame_content_size(compressed)
        room = min(_ZSTD_HIGH_RATIO * len(compressed), most_bytes) if claimed == unknown else claimed
        if room <= most_bytes:
            try:
                return self._zstandard.decompress(compressed, max_output_size=room, allow_extra_data=False)
            except zstandard.ZstdError:
                pass  # There are several frames, or more content than was expected, or damage.
        return _streamed("zstd", compressed, most_bytes)

    @functools.cached_property
    def _snappy_codec(self) -> pa.Codec:
        return pa.Codec("snappy")

    def _snappy(self, compressed: memoryview, most_bytes: int) -> bytes:
        content = _Content(most_bytes)
        for block in _snappy_blocks(compressed):
            length = _snappy_content_length(block)
            content.check(length)
            content.add(self._snappy_codec.decompress(block, length, asbytes=True))
        return content.joined()


def _streamed(name: str, compressed: memoryview, most_bytes: int) -> bytes:
    """The standard frames of a codec, one after the other. Arrow raises OSError where the last one is cut off."""
    content = _Content(most_bytes)
    piece_bytes = min(max(_USUAL_RATIO * len(compressed), _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)
    with pa.CompressedInputStream(pa.BufferReader(compressed), name) as stream:
        # One byte more than there may be shows that there are more.
        while piece := stream.read(min(piece_bytes, content.room_bytes + 1)):
            content.add(piece)
    return content.joined()


def _snappy_blocks(compressed: memoryview) -> list[memoryview]:
    if compressed[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        return [compressed]
    blocks = []
    at = 0
    while at < len(compressed):
        # A stream that was appended to another one begins with a header of its own.
        if compressed[at : at + len(_SNAPPY_MAGIC)] == _SNAPPY_MAGIC:
            at += len(Snappy.HEADER)
            continue
        if len(compressed) - at < _SNAPPY_LENGTH.size:
            raise EOFError("the length of a block is cut off")
        (length,) = _SNAPPY_LENGTH.unpack_from(compressed, at)
        at += _SNAPPY_LENGTH.size
        if not 0 <= length <= len(compressed) - at:
            raise EOFError("a block is cut off")
        blocks.append(compressed[at : at + length])
        at += length
    return blocks


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
    """Pieces of content, together at most `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self.room_bytes = most_bytes
        self._pieces: list[bytes] = []

    def check(self, more_bytes: int) -> None:
        if more_bytes > self.room_bytes:
            raise TooManyBytes

    def add(self, piece: bytes) -> None:
        self.check(len(piece))
        self.room_bytes -= len(piece)
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
