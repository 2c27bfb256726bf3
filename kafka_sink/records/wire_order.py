"""The order in which rows go on the wire: those of one destination side by side, in the order they came in.

A kernel's part is the counting sort that this is; without one, numpy's stable sort comes nearest: a radix sort
for numbers of up to 16 bits, ten times slower for longer ones. So destinations are sorted in as few as they take.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def wire_order(destination: Int64s, destination_count: int) -> tuple[Int64s, Int64s]:
    """int64[n], the rows sorted by `destination` (int64[n], each 0 <= d < `destination_count`), and
    int64[destination_count], how many rows each destination has."""
    narrow = destination.astype(np.min_scalar_type(destination_count), copy=False)
    order = np.argsort(narrow, kind="stable").astype(np.int64, copy=False)
    return order, np.bincount(destination, minlength=destination_count).astype(np.int64, copy=False)
