"""Where each of many open batches stands: what an encoder needs to know to go on with them, as columns.

A write with thousands of partitions has thousands of open batches and a few rows of each Arrow batch for each of them.
Their numbers lie in places of five arrays rather than in objects, and their bytes in one memory, so that one call
without the interpreter's lock can read and move them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBatches:
    """`memory`: uint8, writable. The rest int64[p], a place a batch: `end`, the position in `memory` one past the last
    byte of the batch's records; `limit`, one past its last byte; `record_count`, the records before `end`;
    `base_timestamp` (ms), what the records' timestamps are told from; `max_timestamp` (ms), the latest of them;
    `records_crc`, their CRC-32C, or None where nobody wants it of the encoder. What lies between `end` and `limit`
    means nothing, and neither does a place without a batch.
    """

    memory: UInt8s
    base_timestamp: Int64s
    end: Int64s
    limit: Int64s
    record_count: Int64s
    max_timestamp: Int64s
    records_crc: Int64s | None
