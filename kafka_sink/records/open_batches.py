"""The state of many open batches, as columns: what an encoder needs to continue to fill them.

A write with thousands of partitions has thousands of open batches, and each Arrow batch has a few rows for each. The
batches' numbers are in arrays instead of objects, and their bytes in one memory. So one call can read and advance all
of them without the GIL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBatches:
    """The numbers of the open batches.

    `memory`: uint8, writable. All others are int64[p], one place per batch:
    `end`: the position in `memory` one past the batch's last record.
    `limit`: the position one past the last byte that the batch may use.
    `record_count`: the records before `end`.
    `base_timestamp` (ms): the records' timestamps are differences to it.
    `max_timestamp` (ms): the latest timestamp.
    `records_crc`: the CRC-32C of the records, or None if the encoder does not compute it.
    The bytes between `end` and `limit`, and places without a batch, are undefined.
    """

    memory: UInt8s
    base_timestamp: Int64s
    end: Int64s
    limit: Int64s
    record_count: Int64s
    max_timestamp: Int64s
    records_crc: Int64s | None
