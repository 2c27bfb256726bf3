"""The table that describes record batches while they are decoded: a row of int64 for each batch.

Scope: the numbers that `_decoder.c` and fallback/decoder.py share, so that one decodes what the other has scanned. And
why a batch cannot be decoded, as facts: the caller knows topic and partition, and what a user can do.

    scan_batches     ->  a row for each batch: BASE_OFFSET to END
    measure_records  ->  TOTALS: what the records of these rows need, up to a limit
    fill_columns     ->  Arrow buffers; moves START, RECORD_COUNT and NEXT_OFFSET of the rows that it has read
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Column(IntEnum):
    """A column of the table. The records left to read are RECORD_COUNT records in the bytes START to END of a source.

    `BASE_OFFSET`, `LAST_OFFSET`, `ATTRIBUTES`, `BASE_TIMESTAMP`, `MAX_TIMESTAMP`, `PRODUCER_ID`: of the header.
    `NEXT_OFFSET`: the lowest offset that the next record may have.
    `SOURCE`: a place in the sources: the record set, or the decompressed records of one batch.
    """

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    NEXT_OFFSET = 2
    ATTRIBUTES = 3
    BASE_TIMESTAMP = 4
    MAX_TIMESTAMP = 5
    PRODUCER_ID = 6
    RECORD_COUNT = 7
    SOURCE = 8
    START = 9
    END = 10


class State(IntEnum):
    """Where a scan is. `POSITION`: in the record set, after the last whole batch. `NEXT_OFFSET`: all offsets below it
    are before the position, or do not exist. `FAULT`: what is wrong at the position."""

    POSITION = 0
    NEXT_OFFSET = 1
    FAULT = 2


class Total(IntEnum):
    """What `measure_records` writes. `RECORDS`: walked over. `ROWS`: wanted ones of them; the next nine numbers are
    about these. `FAULT` is what is wrong in the row `FAULT_BATCH` of the table; the other numbers then mean nothing."""

    RECORDS = 0
    ROWS = 1
    NULL_KEYS = 2
    KEY_BYTES = 3
    NULL_VALUES = 4
    VALUE_BYTES = 5
    NULL_HEADERS = 6
    HEADERS = 7
    HEADER_KEY_BYTES = 8
    NULL_HEADER_VALUES = 9
    HEADER_VALUE_BYTES = 10
    FAULT = 11
    FAULT_BATCH = 12


class Fault(IntEnum):
    """What is wrong with a batch. `OLD_FORMAT` and `TIMESTAMP` are no damage."""

    NONE = 0
    OLD_FORMAT = 1
    MAGIC = 2
    SIZE = 3
    CRC = 4
    OFFSETS = 5
    COUNT = 6
    RECORD = 7
    TIMESTAMP = 8


CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
CONTROL_BIT = 0x20


def new_table(row_count: int) -> Int64s:
    """Return int64[row_count, columns], undefined."""
    return np.empty((row_count, len(Column)), np.int64)


# --- why a record set cannot be decoded -------------------------------------------------------------------------------

# What is wrong with the batch; each completes the sentence "the record batch at offset N ...".
REASONS = {
    Fault.MAGIC: "has a format that Kafka does not have",
    Fault.SIZE: "has fewer bytes than the header of a batch",
    Fault.CRC: "has bytes that do not match its CRC-32C",
    Fault.OFFSETS: "has offsets that do not ascend, or are below 0",
    Fault.COUNT: "has more or fewer records than its header says",
    Fault.RECORD: "has a record whose lengths do not fit it",
}


class Undecodable(ValueError):
    """A batch of the record set cannot be decoded. All batches before it can. `base_offset`: the batch's own, or where
    it should begin. `next_offset`: where the log goes on behind it, None if that is not known."""

    def __init__(self, base_offset: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"the record batch at offset {base_offset} {reason}")
        self.base_offset, self.reason, self.next_offset = base_offset, reason, next_offset


class OldFormat(Undecodable):
    """The batch has message format 0 or 1, as Kafka wrote before 0.11. `base_offset` is that of its last message."""

    def __init__(self, base_offset: int, magic: int) -> None:
        super().__init__(base_offset, f"has message format {magic}, which this decoder does not read")
        self.magic = magic


class CorruptBatch(Undecodable):
    """The bytes of the batch are damaged, on the broker's disk or on their way. `fault` is None if its codec found
    it."""

    def __init__(self, base_offset: int, fault: Fault | None, next_offset: int | None = None) -> None:
        super().__init__(base_offset, "cannot be decompressed" if fault is None else REASONS[fault], next_offset)
        self.fault = fault


class BatchTooLarge(Undecodable):
    """The records of the batch are larger than `most_bytes` after decompression."""

    def __init__(self, base_offset: int, most_bytes: int, next_offset: int | None = None) -> None:
        super().__init__(base_offset, f"has more than {most_bytes} bytes of records after decompression", next_offset)
        self.most_bytes = most_bytes


class TooManyHeaders(Undecodable):
    """The records of the batch have more than `most_headers` headers."""

    def __init__(self, base_offset: int, most_headers: int, next_offset: int) -> None:
        super().__init__(base_offset, f"has more than {most_headers} headers", next_offset)
        self.most_headers = most_headers


class TimestampOutOfRange(Undecodable):
    """The timestamp of the record at `offset`, in milliseconds, does not fit into 64 bits as microseconds."""

    def __init__(self, base_offset: int, offset: int, timestamp_ms: int) -> None:
        super().__init__(base_offset, "has a timestamp whose microseconds do not fit into 64 bits")
        self.offset, self.timestamp_ms = offset, timestamp_ms
