"""The order of rows on the wire: rows of one destination together, in their original order.

The compiled kernel uses a counting sort. Without it, numpy's stable sort is the closest: it is a radix sort for numbers
of up to 16 bits, and ten times slower for longer ones. So destinations are sorted as the shortest type that fits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def wire_order(destination: Int64s, destination_count: int) -> tuple[Int64s, Int64s]:
    """Return int64[n], the rows sorted by `destination` (int64[n], each 0 <= d < `destination_count`), and
    int64[destination_count], the number of rows of each destination."""
    narrow = destination.astype(np.min_scalar_type(destination_count), copy=False)
    order = np.argsort(narrow, kind="stable").astype(np.int64, copy=False)
    return order, np.bincount(destination, minlength=destination_count).astype(np.int64, copy=False)
