"""The header against kafka-python: its writer makes the same bytes, its reader takes CRC and fields."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records.record_batch import HEADER_BYTES, write_header

RECORDS = [(1_700_000_000_123, b"k", b"v"), (1_700_000_000_007, None, b"w" * 300)]


def kafka_python_batch(*, is_transactional: bool) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=2**40 + 1,
        producer_epoch=32767,
        base_sequence=2**31 - 1,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def rewritten(batch: bytes, *, is_transactional: bool) -> bytearray:
    """The same records under a header of ours; whatever stood in the header's place is overwritten."""
    buffer = bytearray(b"\xff" * HEADER_BYTES + batch[HEADER_BYTES:])
    write_header(
        memoryview(buffer),
        codec_id=0,
        is_transactional=is_transactional,
        base_timestamp=RECORDS[0][0],
        max_timestamp=RECORDS[0][0],
        producer_id=2**40 + 1,
        producer_epoch=32767,
        base_sequence=2**31 - 1,
        record_count=len(RECORDS),
    )
    return buffer


@pytest.mark.parametrize("is_transactional", [False, True])
def test_same_bytes_as_kafka_python(is_transactional: bool) -> None:
    expected = bytearray(kafka_python_batch(is_transactional=is_transactional))
    ours = rewritten(bytes(expected), is_transactional=is_transactional)
    # partition_leader_epoch, which the broker assigns and no CRC covers: -1 as in Java, 0 in kafka-python.
    assert ours[12:16] == b"\xff\xff\xff\xff"
    expected[12:16] = ours[12:16]
    assert ours == expected


def test_codec_and_fields_read_back() -> None:
    buffer = bytearray(HEADER_BYTES + 7)
    write_header(
        memoryview(buffer),
        codec_id=4,
        is_transactional=True,
        base_timestamp=-5,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=9,
    )
    batch = MemoryRecords(bytes(buffer)).next_batch()
    assert batch.validate_crc()
    assert batch.size_in_bytes == len(buffer)
    assert (batch.magic, batch.base_offset, batch.compression_type, batch.timestamp_type) == (2, 0, 4, 0)
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.first_timestamp, batch.max_timestamp) == (-5, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.last_offset_delta, batch.records_count) == (8, 9)


@pytest.mark.parametrize("position", [21, 23, 43, 57, HEADER_BYTES, -1])
def test_crc_covers_attributes_to_the_last_record(position: int) -> None:
    buffer = rewritten(kafka_python_batch(is_transactional=False), is_transactional=False)
    assert MemoryRecords(bytes(buffer)).next_batch().validate_crc()
    buffer[position] ^= 0x40
    assert not MemoryRecords(bytes(buffer)).next_batch().validate_crc()
