"""A batch's header against kafka-python; its fields that no CRC covers, flipped: no row is left out in silence."""

import random
from collections.abc import Sequence

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records.batch_table import Fault
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.outline import headers, is_damaged_length, outline
from kafka_sink.records.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, first_offset
from kafka_sink.records.undecodable import CorruptBatch, Undecodable
from kernels import COMPILED, KERNELS, needs_kernel
from record_sets import plain, rows_of

if COMPILED is not None:
    from kafka_sink.records import _kernel

BOTH = pytest.mark.parametrize("kernel", KERNELS)

RECORDS = [(1_700_000_000_123, b"k", b"v"), (1_700_000_000_007, None, b"w" * 300)]
ROWS_A_BATCH, BATCH_COUNT = 20, 5
END = ROWS_A_BATCH * BATCH_COUNT
BATCHES = [bytes(plain(*(b"v" * 9,) * ROWS_A_BATCH, base_offset=ROWS_A_BATCH * batch)) for batch in range(BATCH_COUNT)]


@BOTH
@pytest.mark.parametrize("knows_crc", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_same_bytes_as_kafka_python(kernel: Kernel, is_transactional: bool, knows_crc: bool) -> None:
    producer = (2**40 + 1, 32767, 2**31 - 1)
    builder = DefaultRecordBatchBuilder(2, 0, is_transactional, *producer, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, [])
    expected = builder.build()
    # Whatever stood in the header's place is overwritten.
    ours = bytearray(b"\xff" * HEADER_BYTES + expected[HEADER_BYTES:])
    crc = crc32c.crc32c(bytes(expected[HEADER_BYTES:])) if knows_crc else None
    attributes, base = TRANSACTIONAL_BIT if is_transactional else 0, RECORDS[0][0]
    kernel.write_header(memoryview(ours), crc, attributes, base, base, *producer, len(RECORDS))
    # partition_leader_epoch, which the broker assigns and no CRC covers: -1 as in Java, 0 in kafka-python.
    assert ours[12:16] == b"\xff\xff\xff\xff"
    assert ours == expected[:12] + ours[12:16] + expected[16:]


@BOTH
def test_codec_and_fields_read_back(kernel: Kernel) -> None:
    buffer = bytearray(HEADER_BYTES + 7)
    codec_id, base_timestamp, max_timestamp, no_producer = 4, -5, -1, (-1, -1, -1)
    attributes = codec_id | TRANSACTIONAL_BIT
    kernel.write_header(memoryview(buffer), None, attributes, base_timestamp, max_timestamp, *no_producer, 9)
    batch = MemoryRecords(bytes(buffer)).next_batch()
    expected = {
        "size_in_bytes": len(buffer), "magic": 2, "base_offset": 0, "compression_type": 4, "timestamp_type": 0,
        "is_transactional": True, "is_control_batch": False, "first_timestamp": -5, "max_timestamp": -1,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "last_offset_delta": 8, "records_count": 9,
    }  # fmt: skip
    assert batch.validate_crc() and {name: getattr(batch, name) for name in expected} == expected


@BOTH
@given(st.one_of(st.integers(0, 3_000), st.sampled_from([2**16, 2**20 + 1])), st.integers(0, 2**32), st.booleans())
def test_the_crc_is_right_whatever_the_length(kernel: Kernel, size: int, seed: int, knows_crc: bool) -> None:
    buffer = bytearray(HEADER_BYTES) + random.Random(seed).randbytes(size)
    crc = crc32c.crc32c(buffer[HEADER_BYTES:]) if knows_crc else None
    kernel.write_header(memoryview(buffer), crc, 0, 1, 2, 3, 4, 5, 6)
    assert int.from_bytes(buffer[17:21], "big") == crc32c.crc32c(buffer[21:])


@needs_kernel
def test_what_is_no_record_batch_is_refused() -> None:
    numbers, whole = (0, 1, 2, 3, 4, 5, 6), bytearray(HEADER_BYTES)
    for batch, crc, arguments, error in (
        (bytearray(HEADER_BYTES - 1), None, numbers, ValueError), (bytearray(0), None, numbers, ValueError),
        (bytes(HEADER_BYTES), None, numbers, BufferError), (whole, None, (*numbers[:-1], 2**63), OverflowError),
        (whole, -1, numbers, OverflowError), (whole, None, (*numbers[:-1], None), TypeError),
        (whole, None, numbers[:-1], TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match="61 bytes" if error is ValueError else None):
            _kernel.write_header(memoryview(batch), crc, *arguments)


# --- the offset after a record set ------------------------------------------------------------------------------------


def next_offset(records: bytes) -> int | None:
    found = outline(memoryview(records), 0, 2**63 - 1)
    return None if found is None else found.following


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 200))
def test_the_next_offset_is_behind_the_last_whole_batch(sizes: list[int], cut_bytes: int) -> None:
    batches, following = b"", 7
    for size in sizes:
        batches += bytes(plain(*(b"v",) * size, base_offset=following))
        following += size
    more = bytes(plain(b"cut off", base_offset=following))
    assert next_offset(batches + more[: min(cut_bytes, len(more) - 1)]) == (following if sizes else None)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"k", b"v" * 100)])
def test_a_record_of_an_older_format_counts_as_a_batch(magic: int, key: bytes | None, value: bytes | None) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1_000_000)
    for offset in range(5):
        assert builder.append(offset, timestamp=1, key=key, value=value) is not None
    records = bytes(builder.build())
    first = len(records) // 5
    assert [next_offset(records[:end]) for end in (len(records), len(records) - 1, first)] == [5, 4, 1]
    assert {next_offset(records[:end]) for end in range(first)} == {None}


@given(st.binary(max_size=200))
def test_any_bytes_have_a_next_offset_or_none(records: bytes) -> None:
    found = next_offset(records)
    assert found is None or isinstance(found, int)
    assert first_offset(memoryview(records)) in (None, int.from_bytes(records[:8], "big", signed=True))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_that_is_cut_off_or_of_an_older_format_tells_no_beginning(magic: int) -> None:
    records = bytearray(bytes(plain(b"a", base_offset=70)))
    assert first_offset(memoryview(records + bytes(plain(b"c", base_offset=90)))) == 70
    assert {first_offset(memoryview(records)[:end]) for end in range(len(records))} == {None}
    records[16] = magic
    assert first_offset(memoryview(records)) is None


def flipped(which: int, byte: int, bit: int, batches: Sequence[bytes] = BATCHES) -> bytes:
    damaged = [bytearray(each) for each in batches]
    damaged[which][byte] ^= 1 << bit
    return b"".join(damaged)


def read(kernel: Kernel, records: bytes, end: int = END) -> list[int]:
    reading = RecordSetDecoder(records, first_offset=0, end_offset=end, columns=("offset",), kernel=kernel)
    return [each["offset"] for each in rows_of(reading)]


def corrupt(kernel: Kernel, records: bytes) -> CorruptBatch:
    with pytest.raises(CorruptBatch) as raised:
        read(kernel, records)
    return raised.value


@BOTH
@pytest.mark.parametrize("which", range(BATCH_COUNT - 1))
@pytest.mark.parametrize("byte", [0, 5, 6, 7])
def test_a_base_offset_that_the_next_batch_contradicts(kernel: Kernel, byte: int, which: int) -> None:
    for bit in range(8):
        error = corrupt(kernel, flipped(which, byte, bit))
        assert error.fault is Fault.OFFSETS
        # Where the offsets are still those of the log.
        assert error.base_offset in (which * ROWS_A_BATCH, which * ROWS_A_BATCH + ROWS_A_BATCH)


@BOTH
def test_the_next_batch_shows_it_also_behind_the_end(kernel: Kernel) -> None:
    with pytest.raises(CorruptBatch, match="at offset 20 has offsets that do not ascend"):
        read(kernel, flipped(1, 6, 7, BATCHES[:3]), 60)


@BOTH
def test_a_gap_that_compaction_left_is_none_to_complain_of(kernel: Kernel) -> None:
    kept = BATCHES[0] + BATCHES[2] + BATCHES[4]
    for records in (kept, kept + BATCHES[4][:5]):
        assert read(kernel, records, 75) == [*range(20), *range(40, 60)]


@BOTH
@pytest.mark.parametrize("byte", [0, 8, 16, 30])
def test_no_batch_behind_the_range_stops_a_read_before_it(kernel: Kernel, byte: int) -> None:
    """Else nobody could read around a damaged batch."""
    for bit in range(8):
        assert read(kernel, flipped(2, byte, bit), 40) == list(range(40))


@BOTH
@pytest.mark.parametrize("byte", range(12, 16))
def test_the_leader_epoch_of_a_batch_has_no_part_in_a_read(kernel: Kernel, byte: int) -> None:
    for bit in range(8):
        assert read(kernel, flipped(2, byte, bit)) == list(range(END))


@BOTH
def test_a_flipped_format_is_damage_and_not_an_older_format(kernel: Kernel) -> None:
    for bit in range(8):
        error = corrupt(kernel, flipped(2, 16, bit))
        assert (error.fault, error.base_offset) == (Fault.MAGIC, 40)


@BOTH
@pytest.mark.parametrize("byte", range(8, 12))
def test_a_length_is_an_error_or_cuts_the_record_set_off(kernel: Kernel, byte: int) -> None:
    """Who reads on meets it again, as the first batch."""
    for bit in range(8):
        records = flipped(2, byte, bit)
        try:
            found = read(kernel, records)
        except Undecodable as error:
            assert error.base_offset == 40
        else:
            *_, last = headers(memoryview(records))
            assert (found, last.base_offset, last.is_whole) == (list(range(40)), 40, False)
            assert is_damaged_length(memoryview(records), last)


@pytest.mark.parametrize("left", [1, 16, 17, 60, 61, 200])
def test_a_batch_that_is_cut_off_in_peace_has_no_damaged_length(left: int) -> None:
    records = memoryview(BATCHES[0] + BATCHES[1][:left])
    *_, last = headers(records)
    assert not is_damaged_length(records, last)


@BOTH
def test_where_the_log_is_right_again_is_told(kernel: Kernel) -> None:
    for records in (flipped(1, 6, 1), flipped(1, 40, 1), flipped(1, 16, 0)):
        error = corrupt(kernel, records)
        assert (error.base_offset, error.next_offset) == (20, 40)
    assert corrupt(kernel, flipped(4, 40, 1)).next_offset is None


# --- the outline that the fetcher goes by -----------------------------------------------------------------------------


def test_an_outline_shows_the_gap_before_the_last_batch() -> None:
    """The fetcher goes by it."""
    found, longer = (outline(memoryview(flipped(1, 6, 0, BATCHES[:count])), 0, 1_000) for count in (2, 3))
    assert found is not None and longer is not None
    assert (found.gap, found.following, found.is_followed, found.ascends) == ((20, 276), 296, False, True)
    assert not longer.ascends
