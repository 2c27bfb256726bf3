"""The header against kafka-python: its writer makes the same bytes, its reader takes CRC and fields.

For both implementations; without the compiled kernel, or on a processor that it cannot compute CRCs on, for one.
"""

from __future__ import annotations

import random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records.kernel import Kernel
from kafka_sink.records.outline import outline
from kafka_sink.records.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, first_offset
from kernels import COMPILED, KERNELS, needs_kernel
from record_sets import plain

if COMPILED is not None:
    from kafka_sink.records import _kernel

BOTH = pytest.mark.parametrize("kernel", KERNELS)

RECORDS = [(1_700_000_000_123, b"k", b"v"), (1_700_000_000_007, None, b"w" * 300)]


def kafka_python_batch(*, is_transactional: bool) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, is_transactional, 2**40 + 1, 32767, 2**31 - 1, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def rewritten(kernel: Kernel, batch: bytes, *, is_transactional: bool = False, knows_crc: bool = False) -> bytearray:
    """The same records under a header of ours; whatever stood in the header's place is overwritten."""
    buffer = bytearray(b"\xff" * HEADER_BYTES + batch[HEADER_BYTES:])
    crc = crc32c.crc32c(batch[HEADER_BYTES:]) if knows_crc else None
    attributes = TRANSACTIONAL_BIT if is_transactional else 0
    timestamp = RECORDS[0][0]
    numbers = (attributes, timestamp, timestamp, 2**40 + 1, 32767, 2**31 - 1, len(RECORDS))
    kernel.write_header(memoryview(buffer), crc, *numbers)
    return buffer


@BOTH
@pytest.mark.parametrize("knows_crc", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_same_bytes_as_kafka_python(kernel: Kernel, is_transactional: bool, knows_crc: bool) -> None:
    expected = bytearray(kafka_python_batch(is_transactional=is_transactional))
    ours = rewritten(kernel, bytes(expected), is_transactional=is_transactional, knows_crc=knows_crc)
    # partition_leader_epoch, which the broker assigns and no CRC covers: -1 as in Java, 0 in kafka-python.
    assert ours[12:16] == b"\xff\xff\xff\xff"
    expected[12:16] = ours[12:16]
    assert ours == expected


@BOTH
def test_codec_and_fields_read_back(kernel: Kernel) -> None:
    buffer = bytearray(HEADER_BYTES + 7)
    codec_id, base_timestamp, max_timestamp, no_producer = 4, -5, -1, (-1, -1, -1)
    attributes = codec_id | TRANSACTIONAL_BIT
    kernel.write_header(memoryview(buffer), None, attributes, base_timestamp, max_timestamp, *no_producer, 9)
    batch = MemoryRecords(bytes(buffer)).next_batch()
    assert batch.validate_crc()
    assert batch.size_in_bytes == len(buffer)
    assert (batch.magic, batch.base_offset, batch.compression_type, batch.timestamp_type) == (2, 0, 4, 0)
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.first_timestamp, batch.max_timestamp) == (-5, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.last_offset_delta, batch.records_count) == (8, 9)


@BOTH
@pytest.mark.parametrize("position", [21, 23, 43, 57, HEADER_BYTES, -1])
def test_crc_covers_attributes_to_the_last_record(kernel: Kernel, position: int) -> None:
    buffer = rewritten(kernel, kafka_python_batch(is_transactional=False))
    assert MemoryRecords(bytes(buffer)).next_batch().validate_crc()
    buffer[position] ^= 0x40
    assert not MemoryRecords(bytes(buffer)).next_batch().validate_crc()


@BOTH
@given(
    size=st.one_of(st.integers(0, 3_000), st.sampled_from([2**16, 2**20 + 1])),
    seed=st.integers(0, 2**32),
    knows_crc=st.booleans(),
)
def test_the_crc_is_right_whatever_the_length(kernel: Kernel, size: int, seed: int, knows_crc: bool) -> None:
    buffer = bytearray(HEADER_BYTES) + random.Random(seed).randbytes(size)
    crc = crc32c.crc32c(buffer[HEADER_BYTES:]) if knows_crc else None
    kernel.write_header(memoryview(buffer), crc, 0, 1, 2, 3, 4, 5, 6)
    assert int.from_bytes(buffer[17:21], "big") == crc32c.crc32c(buffer[21:])


@needs_kernel
def test_what_is_no_record_batch_is_refused() -> None:
    numbers = (0, 1, 2, 3, 4, 5, 6)
    for batch in (bytearray(HEADER_BYTES - 1), bytearray(0)):
        with pytest.raises(ValueError, match="61 bytes"):
            _kernel.write_header(memoryview(batch), None, *numbers)
    with pytest.raises(BufferError):
        _kernel.write_header(memoryview(bytes(HEADER_BYTES)), None, *numbers)
    batch = memoryview(bytearray(HEADER_BYTES))
    with pytest.raises(OverflowError):
        _kernel.write_header(batch, None, *numbers[:-1], 2**63)
    with pytest.raises(OverflowError):
        _kernel.write_header(batch, -1, *numbers)
    with pytest.raises(TypeError):
        _kernel.write_header(batch, None, *numbers[:-1], None)
    with pytest.raises(TypeError):
        _kernel.write_header(batch, None, *numbers[:-1])


# --- the offset after a record set ------------------------------------------------------------------------------------


def next_offset(records: memoryview) -> int | None:
    found = outline(records, 0, 2**63 - 1)
    return None if found is None else found.following


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 200))
def test_the_next_offset_is_behind_the_last_whole_batch(sizes: list[int], cut_bytes: int) -> None:
    batches, following = b"", 7
    for size in sizes:
        batches += bytes(plain(*(b"v",) * size, base_offset=following))
        following += size
    more = bytes(plain(b"cut off", base_offset=following))
    records = batches + more[: min(cut_bytes, len(more) - 1)]
    assert next_offset(memoryview(records)) == (following if sizes else None)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"k", b"v" * 100)])
def test_a_record_of_an_older_format_counts_as_a_batch_however_small(
    magic: int, key: bytes | None, value: bytes | None
) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1_000_000)
    for offset in range(5):
        assert builder.append(offset, timestamp=1, key=key, value=value) is not None
    records = bytes(builder.build())
    assert next_offset(memoryview(records)) == 5
    assert next_offset(memoryview(records[:-1])) == 4
    assert next_offset(memoryview(records[: len(records) // 5])) == 1
    for end in range(len(records) // 5):
        assert next_offset(memoryview(records[:end])) is None


@given(st.binary(max_size=200))
def test_any_bytes_have_a_next_offset_or_none(records: bytes) -> None:
    found = next_offset(memoryview(records))
    assert found is None or isinstance(found, int)
    assert first_offset(memoryview(records)) in (None, int.from_bytes(records[:8], "big", signed=True))


def test_where_a_record_set_begins() -> None:
    records = bytes(plain(b"a", b"b", base_offset=70)) + bytes(plain(b"c", base_offset=90))
    assert first_offset(memoryview(records)) == 70


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_that_is_cut_off_or_of_an_older_format_tells_no_beginning(magic: int) -> None:
    records = bytearray(bytes(plain(b"a", base_offset=70)))
    for end in range(len(records)):
        assert first_offset(memoryview(records)[:end]) is None
    records[16] = magic
    assert first_offset(memoryview(records)) is None
