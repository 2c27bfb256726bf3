"""Record sets from which the fuzzer begins: each codec, transactions with their markers, an empty batch, and harm."""

from collections.abc import Iterator, Sequence

import crc32c
import zstandard
from kafka.record.default_records import DefaultRecordBatchBuilder

from model.record_batches import EndTransactionMarker, changed_attributes, encode_marker

_PRODUCER_IDS = (1, 2)
_LOG_APPEND_TIME = 0b1000


def record_set() -> Iterator[bytes]:
    """Yield batches whose offsets follow one another."""
    offset = 0
    for codec in range(5):
        yield _at(offset, _batch(codec, producer_id=-1))
        offset += 3
    for producer_id, is_commit in zip(_PRODUCER_IDS, (False, True), strict=True):
        yield _at(offset, _batch(0, producer_id))
        yield _at(offset + 3, encode_marker(EndTransactionMarker(producer_id, 0, is_commit, 0), timestamp_ms=5))
        offset += 4
    yield _at(offset, changed_attributes(_batch(0, producer_id=-1), _LOG_APPEND_TIME))
    # What compaction leaves.
    yield _at(offset + 3, _batch(0, producer_id=-1, records=()))


def zstd_of_frames() -> bytes:
    """A batch whose records are in two frames without the size of their content, as a stream writes them."""
    whole = _batch(0, producer_id=-1)
    compress = zstandard.ZstdCompressor(write_content_size=False).compress
    records = compress(whole[61:90]) + compress(whole[90:])
    header = bytearray(changed_attributes(whole, 4)[:61])
    header[8:12] = (61 - 12 + len(records)).to_bytes(4, "big")
    covered = bytes(header[21:]) + records
    return bytes(header[:17]) + crc32c.crc32c(covered).to_bytes(4, "big") + covered


def set_with_a_gap() -> bytes:
    """Batches of which compaction has removed one, and the last is cut off."""
    batches = _plain_batches()
    return b"".join((batches[0], *batches[2:]))[:-20]


def harmed_record_sets() -> Iterator[bytes]:
    """Yield record sets in which a bit of a base offset, a length or a format is wrong. No CRC covers these."""
    for byte, bit in ((0, 7), (0, 0), (5, 0), (6, 1), (7, 2), (10, 0), (11, 6), (16, 1), (16, 0)):
        batches = _plain_batches()
        batches[1][byte] ^= 1 << bit
        yield b"".join(batches)


def _plain_batches() -> list[bytearray]:
    return [bytearray(_at(3 * number, _batch(0, producer_id=-1))) for number in range(4)]


# Key, value, headers.
_Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
_RECORDS: tuple[_Record, ...] = (
    (b"key", b"value" * 20, [("header", b"value"), ("header", None)]),
    (None, None, []),
    (b"", b"", [("", b"")]),
)


def _batch(codec: int, producer_id: int, records: Sequence[_Record] = _RECORDS) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=producer_id >= 0, producer_id=producer_id, producer_epoch=0,
        base_sequence=-1, batch_size=10**4,
    )  # fmt: skip
    for offset, (key, value, headers) in enumerate(records):
        builder.append(offset, timestamp=1_700_000_000_000 + offset, key=key, value=value, headers=headers)
    return bytes(builder.build())


def _at(offset: int, batch: bytes) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]
