"""The table that describes record batches while they are decoded: a row of int64 for each batch.

Scope: the numbers that `_decoder.c` and record_walk.py share. Both write and read them, so one decodes what the other
has scanned.

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
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20


def new_table(row_count: int) -> Int64s:
    """Return int64[row_count, columns], undefined."""
    return np.empty((row_count, len(Column)), np.int64)
