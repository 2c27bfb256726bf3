"""Fields of a batch's header that no CRC covers, flipped bit by bit: no row is left out in silence.

Base offset (bytes 0 to 7), length (8 to 11), leader epoch (12 to 15) and magic (16), for both kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_sink.records.batch_table import Fault
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.outline import headers, is_damaged_length, outline
from kafka_sink.records.undecodable import CorruptBatch, Undecodable
from kernels import KERNELS
from record_sets import plain, rows_of

BOTH = pytest.mark.parametrize("kernel", KERNELS)
ROWS_A_BATCH, BATCH_COUNT = 20, 5
END = ROWS_A_BATCH * BATCH_COUNT
BATCHES = [
    bytes(plain(*(b"v" * 9,) * ROWS_A_BATCH, base_offset=base)) for base in range(0, END, ROWS_A_BATCH)
]  # fmt: skip


def flipped(batches: Sequence[bytes], which: int, byte: int, bit: int) -> bytes:
    damaged = [bytearray(each) for each in batches]
    damaged[which][byte] ^= 1 << bit
    return b"".join(damaged)


def offsets(kernel: Kernel, records: bytes, first: int = 0, end: int = END, **given: Any) -> list[int]:
    reading = RecordSetDecoder(
        records, first_offset=first, end_offset=end, columns=("offset",), kernel=kernel, **given
    )  # fmt: skip
    return [each["offset"] for each in rows_of(reading)]


@BOTH
@pytest.mark.parametrize("which", range(BATCH_COUNT - 1))
@pytest.mark.parametrize("byte", [0, 5, 6, 7])
def test_a_base_offset_that_the_next_batch_contradicts(kernel: Kernel, byte: int, which: int) -> None:
    for bit in range(8):
        with pytest.raises(CorruptBatch) as raised:
            offsets(kernel, flipped(BATCHES, which, byte, bit))
        assert raised.value.fault is Fault.OFFSETS
        # Where the offsets are still those of the log.
        assert raised.value.base_offset in (which * ROWS_A_BATCH, which * ROWS_A_BATCH + ROWS_A_BATCH)


@BOTH
def test_the_next_batch_shows_it_also_behind_the_end(kernel: Kernel) -> None:
    with pytest.raises(CorruptBatch, match="at offset 20 has offsets that do not ascend"):
        offsets(kernel, flipped(BATCHES[:3], 1, 6, 7), end=60)


@BOTH
def test_a_gap_that_compaction_left_is_none_to_complain_of(kernel: Kernel) -> None:
    kept = BATCHES[0] + BATCHES[2] + BATCHES[4]
    assert offsets(kernel, kept, end=75) == [*range(20), *range(40, 60)]
    assert offsets(kernel, kept + BATCHES[4][:5], end=75) == [*range(20), *range(40, 60)]


@BOTH
@pytest.mark.parametrize("byte", [0, 8, 16, 30])
def test_no_batch_behind_the_range_stops_a_read_before_it(kernel: Kernel, byte: int) -> None:
    """Else nobody could read around a damaged batch."""
    for bit in range(8):
        assert offsets(kernel, flipped(BATCHES, 2, byte, bit), end=40) == list(range(40))


@BOTH
@pytest.mark.parametrize("byte", range(12, 16))
def test_the_leader_epoch_of_a_batch_has_no_part_in_a_read(kernel: Kernel, byte: int) -> None:
    for bit in range(8):
        assert offsets(kernel, flipped(BATCHES, 2, byte, bit)) == list(range(END))


@BOTH
def test_a_flipped_format_is_damage_and_not_an_older_format(kernel: Kernel) -> None:
    for bit in range(8):
        with pytest.raises(CorruptBatch) as raised:
            offsets(kernel, flipped(BATCHES, 2, 16, bit))
        assert (raised.value.fault, raised.value.base_offset) == (Fault.MAGIC, 40)


@BOTH
@pytest.mark.parametrize("byte", range(8, 12))
def test_a_length_is_an_error_or_cuts_the_record_set_off(kernel: Kernel, byte: int) -> None:
    """Who reads on meets it again, as the first batch."""
    for bit in range(8):
        records = flipped(BATCHES, 2, byte, bit)
        try:
            found = offsets(kernel, records)
        except Undecodable as error:
            assert error.base_offset == 40
        else:
            assert found == list(range(40))
            *_, last = headers(memoryview(records))
            assert (last.base_offset, last.is_whole) == (40, False)
            assert is_damaged_length(memoryview(records), last)


@pytest.mark.parametrize("left", [1, 16, 17, 60, 61, 200])
def test_a_batch_that_is_cut_off_in_peace_has_no_damaged_length(left: int) -> None:
    records = memoryview(BATCHES[0] + BATCHES[1][:left])
    *_, last = headers(records)
    assert not is_damaged_length(records, last)


@BOTH
def test_where_the_log_is_right_again_is_told(kernel: Kernel) -> None:
    for records in (flipped(BATCHES, 1, 6, 1), flipped(BATCHES, 1, 40, 1), flipped(BATCHES, 1, 16, 0)):
        with pytest.raises(CorruptBatch) as raised:
            offsets(kernel, records)
        assert (raised.value.base_offset, raised.value.next_offset) == (20, 40)
    with pytest.raises(CorruptBatch) as raised:
        offsets(kernel, flipped(BATCHES, 4, 40, 1))
    assert raised.value.next_offset is None


# --- the outline that the fetcher goes by -----------------------------------------------------------------------------


def test_an_outline_shows_the_gap_before_the_last_batch() -> None:
    found = outline(memoryview(flipped(BATCHES[:2], 1, 6, 0)), 0, 1_000)
    assert found is not None
    assert (found.gap, found.following, found.is_followed, found.ascends) == ((20, 276), 296, False, True)
    found = outline(memoryview(flipped(BATCHES[:3], 1, 6, 0)), 0, 1_000)
    assert found is not None and not found.ascends
