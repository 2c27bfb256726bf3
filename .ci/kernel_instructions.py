"""Counts the compiled kernel's instructions for each row with callgrind, and compares them with the figures below.

    python .ci/kernel_instructions.py

A count does not depend on the machine's load, and only a little on the compiler (figures: gcc 12, x86-64). The script
fails if a count is more than 10 % above its figure. It prints a note if a count is more than 10 % below, so that the
figure can be updated. Without valgrind it is skipped, which is no failure. It uses only the standard library, so that
valgrind has little to run.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from kafka_sink.records import _kernel

ROWS = 10_000
KEY_BYTES, VALUE_BYTES = 8, 100
TOLERANCE = 0.10

# Name: the function in _kernel.c or _decoder.c, and its instructions for each row. Those of `measure_records` and
# `fill_columns` come out 1 to 3 % higher since. That is no change of the sources: the kernel of the commit that wrote
# these figures (178a1c51) has the same counts today, to the tenth, as the one with the checks of batch headers, which
# are in `scan_batches`.
FIGURES = {
    "murmur2": ("kernel_murmur2", 58.3),
    "wire_order": ("kernel_wire_order", 28.4),
    "payload_sizes": ("kernel_payload_sizes", 62.5),
    "fill 4 batches": ("kernel_fill", 392.3),
    "fill 2,000 batches": ("kernel_fill", 425.5),
    "fill with headers": ("kernel_fill", 865.1),
    "sum_row_hashes": ("kernel_sum_row_hashes", 277.5),
    "sum_row_hashes of 1 KiB": ("kernel_sum_row_hashes", 1090.5),
    "scan_batches": ("kernel_scan_batches", 34.1),
    "measure_records": ("kernel_measure_records", 197.7),
    "measure with headers": ("kernel_measure_records", 321.7),
    "fill_columns": ("kernel_fill_columns", 272.4),
    "fill key and value": ("kernel_fill_columns", 251.4),
    "fill columns and headers": ("kernel_fill_columns", 509.8),
}


# --- the workload, run by valgrind ------------------------------------------------------------------------------------


def column(row_count: int, row_bytes: int) -> tuple[None, array[int], bytes, int, int, int]:
    data = random.Random(row_bytes).randbytes(row_count * row_bytes)
    return None, array("i", range(0, len(data) + 1, row_bytes)), data, 4, 0, row_count


def zeros(count: int) -> array[int]:
    return array("q", bytes(8 * count))


def fill(batch_count: int, *, headers: bool = False) -> None:
    rng = random.Random(1)
    destination = array("q", (rng.randrange(batch_count) for _ in range(ROWS)))
    order, counts = zeros(ROWS), zeros(batch_count)
    _kernel.wire_order(destination, order, counts)
    end_row = array("q", accumulate(counts))
    limit = array("q", (200 * end for end in end_row))
    next_row = array("q", (end - count for end, count in zip(end_row, counts, strict=True)))
    _kernel.fill(
        column(ROWS, VALUE_BYTES),
        column(ROWS, KEY_BYTES),
        (array("q", range(0, 2 * ROWS + 1, 2)), column(2 * ROWS, 6), column(2 * ROWS, 12)) if headers else None,
        order,
        array("q", range(1_700_000_000_000, 1_700_000_000_000 + ROWS)),
        array("q", range(batch_count)),
        next_row,
        end_row,
        bytearray(200 * ROWS),
        array("q", [1_700_000_000_000] * batch_count),
        array("q", (end - 200 * count for end, count in zip(limit, counts, strict=True))),
        limit,
        zeros(batch_count),
        zeros(batch_count),
        zeros(batch_count),
    )
    assert next_row == end_row


def wire_order() -> None:
    rng = random.Random(1)
    destination = array("q", (rng.randrange(2_000) for _ in range(ROWS)))
    _kernel.wire_order(destination, zeros(ROWS), zeros(2_000))


def sum_row_hashes(value_bytes: int) -> None:
    numbers = array("q", range(ROWS))
    keys = array("q", (random.Random(place).getrandbits(63) for place in range(128)))
    value, key = column(ROWS, value_bytes), column(ROWS, KEY_BYTES)
    _kernel.sum_row_hashes(value, key, None, None, numbers, numbers, keys, zeros(2))


# Columns of a table, of a state and of totals (batch_table.py).
TABLE_COLUMNS, STATE_NUMBERS, TOTALS = 11, 3, 13
NO_END = 2**63 - 1


def record_set(*, headers: bool) -> tuple[bytes, array[int]]:
    """Batches of 100 rows, as kafka_sink encodes them, and their table."""
    rows_a_batch = 100
    memory = bytearray()
    value, key, numbers = column(ROWS, VALUE_BYTES), column(ROWS, KEY_BYTES), array("q", range(ROWS))
    entries = (array("q", range(0, 2 * ROWS + 1, 2)), column(2 * ROWS, 6), column(2 * ROWS, 12)) if headers else None
    timestamps = array("q", range(1_700_000_000_000, 1_700_000_000_000 + ROWS))
    for first in range(0, ROWS, rows_a_batch):
        batch, end, next_row = bytearray(200 * rows_a_batch), array("q", [61]), array("q", [first])
        count, base = zeros(1), array("q", [1_700_000_000_000 + first])
        _kernel.fill(
            value,
            key,
            entries,
            numbers,
            timestamps,
            zeros(1),
            next_row,
            array("q", [first + rows_a_batch]),
            batch,
            base,
            end,
            array("q", [len(batch)]),
            count,
            array("q", base),
            None,
        )
        whole = memoryview(batch)[: end[0]]
        _kernel.write_header(whole, None, 0, base[0], base[0], -1, -1, -1, count[0])
        whole[:8] = first.to_bytes(8, "big")
        memory += whole
    return bytes(memory), zeros(TABLE_COLUMNS * (ROWS // rows_a_batch))


def decode(*, headers: bool = False, columns: bool = True) -> None:
    records, table = record_set(headers=headers)
    _kernel.scan_batches(records, zeros(STATE_NUMBERS), NO_END, len(records), True, table)
    totals = zeros(TOTALS)
    _kernel.measure_records((records,), table, 0, NO_END, ROWS, len(records), True, totals)

    def binary(rows: int, size: int) -> tuple[None, bytearray, bytearray]:
        return None, bytearray(4 * (rows + 1)), bytearray(size)

    numbers = (bytearray(8 * ROWS), bytearray(8 * ROWS), bytearray(4 * ROWS)) if columns else (None, None, None)
    entries = (None, bytearray(4 * (ROWS + 1)), binary(2 * ROWS, 12 * ROWS), binary(2 * ROWS, 24 * ROWS))
    key, value = binary(ROWS, KEY_BYTES * ROWS), binary(ROWS, VALUE_BYTES * ROWS)
    _kernel.fill_columns((records,), table, 0, NO_END, ROWS, ROWS, (key, value, *numbers, entries if headers else None))


WORKLOADS: dict[str, Callable[[], None]] = {
    "murmur2": lambda: _kernel.murmur2(column(ROWS, KEY_BYTES), array("i", bytes(4 * ROWS))),
    "wire_order": wire_order,
    "payload_sizes": lambda: _kernel.payload_sizes(
        column(ROWS, VALUE_BYTES), column(ROWS, KEY_BYTES), None, zeros(ROWS)
    ),
    "fill 4 batches": lambda: fill(4),
    "fill 2,000 batches": lambda: fill(2_000),
    "fill with headers": lambda: fill(4, headers=True),
    "sum_row_hashes": lambda: sum_row_hashes(VALUE_BYTES),
    "sum_row_hashes of 1 KiB": lambda: sum_row_hashes(1_024),
    "scan_batches": decode,
    "measure_records": decode,
    "measure with headers": lambda: decode(headers=True),
    "fill_columns": decode,
    "fill key and value": lambda: decode(columns=False),
    "fill columns and headers": lambda: decode(headers=True),
}


# --- the count --------------------------------------------------------------------------------------------------------


def instructions_a_row(name: str, function: str) -> float:
    """Return the instructions for each row in `function` and the functions that it calls."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--toggle-collect={function}"]
        subprocess.run(
            [*command, sys.executable, __file__, name],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            check=True,
            stderr=subprocess.DEVNULL,
            timeout=300,
        )
        totals = re.search(r"^totals: (\d+)$", out.read_text(), re.MULTILINE)
    if totals is None or int(totals[1]) == 0:
        raise SystemExit(f"callgrind saw no call of {function}: was the kernel stripped of its symbols?")
    return int(totals[1]) / ROWS


def main() -> int:
    if shutil.which("valgrind") is None:
        print("skipped: there is no valgrind here to count the kernel's instructions with")
        return 0
    worse = False
    for name, (function, figure) in FIGURES.items():
        counted = instructions_a_row(name, function)
        change = counted / figure - 1
        verdict = "WORSE" if change > TOLERANCE else "better: the new figure" if change < -TOLERANCE else "ok"
        worse |= change > TOLERANCE
        print(f"{name:25} {counted:7.1f} instructions a row, figure {figure:7.1f}, {change:+6.1%}  {verdict}")
    return int(worse)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        WORKLOADS[sys.argv[1]]()
    else:
        sys.exit(main())
