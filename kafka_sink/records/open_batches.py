"""Where each of several open batches stands: what an encoder needs to know to go on with them, as columns.

The numbers of `k` batches lie in k places of five arrays rather than in k objects, so that one call without the
interpreter's lock can read and move them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBatches:
    """`buffers`: k writable uint8 arrays. The rest int64[k]: `end`, one past the last byte of the records in the
    buffer; `record_count`, the records before it; `base_timestamp` (ms), what the records' timestamps are told
    from; `max_timestamp` (ms), the latest of them. What lies behind `end` in a buffer means nothing.
    """

    buffers: Sequence[UInt8s]
    base_timestamp: Int64s
    end: Int64s
    record_count: Int64s
    max_timestamp: Int64s

    def room_bytes(self) -> Int64s:
        """int64[k]: bytes that each buffer has left."""
        return np.fromiter(map(len, self.buffers), np.int64, len(self.buffers)) - self.end
