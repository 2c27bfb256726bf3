"""The decoder's functions in the compiled kernel: what they refuse, and that they give other threads the interpreter.

What they do right, test_decoder.py shows for both kernels.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.batch_table import Column, State, Total, new_table
from kernels import assert_lets_others_run
from record_cases import int64s
from record_sets import NO_END, plain, row
from record_sets import Batch as Made

try:
    from kafka_sink.records import _kernel
except ImportError:
    pytest.skip("the kernel was not compiled", allow_module_level=True)

# Three records with keys, nulls, and a header of one byte each.
RECORDS = bytes(
    Made(rows=[(0, row(b"abc", b"k")), (1, row(None, None, 0, (b"h", None))), (2, row(b"d", b"", 0, (b"i", b"w")))])
)
NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, -(2**63)]))
BUFFERS = st.one_of(st.none(), st.integers(0, 40).map(bytearray))
COLUMNS = st.one_of(st.none(), st.tuples(BUFFERS, BUFFERS, BUFFERS))
HEADERS = st.one_of(st.none(), st.tuples(BUFFERS, BUFFERS, COLUMNS, COLUMNS))


def scanned() -> Any:
    state, table = np.zeros(len(State), np.int64), new_table(1)
    assert _kernel.scan_batches(RECORDS, state, NO_END, 1, True, table) == 1
    return table


def scan_arguments() -> dict[str, Any]:
    """Those of `scan_batches`, in their order."""
    state = np.zeros(len(State), np.int64)
    return {
        "records": RECORDS, "state": state, "end_offset": NO_END, "most_bytes": 1000, "checks_crc": True,
        "table": new_table(2),
    }  # fmt: skip


def measure_arguments() -> dict[str, Any]:
    """Those of `measure_records`, in their order."""
    return {
        "sources": (RECORDS,), "table": scanned(), "first_offset": 0, "end_offset": NO_END, "most_rows": 1000,
        "most_bytes": 1000, "checks_timestamps": True, "totals": np.zeros(len(Total), np.int64),
    }  # fmt: skip


def column(rows: int, size: int, validity: int | None = None) -> tuple[Any, Any, Any]:
    """Buffers of exactly these sizes, so that AddressSanitizer sees a byte beyond them."""
    return None if validity is None else bytearray(validity), bytearray(4 * (rows + 1)), bytearray(size)


def fill_arguments() -> dict[str, Any]:
    """Those of `fill_columns`, in their order, with the columns apart."""
    return {
        "sources": (RECORDS,), "table": scanned(), "first_offset": 0, "end_offset": NO_END, "record_count": 3,
        "row_count": 3, "key": column(3, 1, 1), "value": column(3, 4, 1), "offset": bytearray(24),
        "timestamp": bytearray(24), "timestamp_type": bytearray(12),
        "headers": (bytearray(1), bytearray(16), column(2, 2), column(2, 1, 1)),
    }  # fmt: skip


def scan(given: dict[str, Any]) -> None:
    _kernel.scan_batches(*given.values())


def measure(given: dict[str, Any]) -> None:
    _kernel.measure_records(*given.values())


def fill(given: dict[str, Any]) -> None:
    *others, key, value, offset, timestamp, timestamp_type, headers = given.values()
    _kernel.fill_columns(*others, (key, value, offset, timestamp, timestamp_type, headers))


Call = Callable[[dict[str, Any]], None]
ARGUMENTS: dict[Call, Callable[[], dict[str, Any]]] = {
    scan: scan_arguments, measure: measure_arguments, fill: fill_arguments,
}  # fmt: skip


def test_what_is_made_hostile_below_is_right_as_it_is() -> None:
    scan(scan_arguments())
    measured = measure_arguments()
    measure(measured)
    totals = {total.name: number for total, number in zip(Total, measured["totals"].tolist(), strict=True)}
    assert totals == {
        "RECORDS": 3, "ROWS": 3, "NULL_KEYS": 1, "KEY_BYTES": 1, "NULL_VALUES": 1, "VALUE_BYTES": 4, "NULL_HEADERS": 1,
        "HEADERS": 2, "HEADER_KEY_BYTES": 2, "NULL_HEADER_VALUES": 1, "HEADER_VALUE_BYTES": 1, "FAULT": 0,
        "FAULT_BATCH": 0,
    }  # fmt: skip
    filled = fill_arguments()
    fill(filled)
    assert bytes(filled["value"][2]) == b"abcd" and bytes(filled["headers"][2][2]) == b"hi"
    assert filled["table"][0, Column.RECORD_COUNT] == 0
    assert filled["table"][0, Column.NEXT_OFFSET] == 3
    assert filled["table"][0, Column.START] == filled["table"][0, Column.END] == len(RECORDS)


def with_numbers(**numbers: int) -> Any:
    table = scanned()
    for name, number in numbers.items():
        table[0, Column[name]] = number
    return table


CORRUPT_TABLES = {
    "source below 0": with_numbers(SOURCE=-1), "no such source": with_numbers(SOURCE=1),
    "start below 0": with_numbers(START=-1), "start behind the end": with_numbers(START=len(RECORDS) + 1),
    "start far behind the end": with_numbers(START=2**63 - 1),
    "end behind the source": with_numbers(END=len(RECORDS) + 1),
    "end far behind the source": with_numbers(END=2**63 - 1), "end below 0": with_numbers(END=-(2**63)),
    "records below 0": with_numbers(RECORD_COUNT=-1), "half a row": scanned()[0, :5], "read-only": scanned(),
    "of 32 bits": scanned().astype(np.int32),
}  # fmt: skip
CORRUPT_TABLES["read-only"].flags.writeable = False


@pytest.mark.parametrize("corrupt", CORRUPT_TABLES.values(), ids=CORRUPT_TABLES)
def test_a_corrupt_table_is_a_value_error(corrupt: Any) -> None:
    if corrupt.flags.writeable:
        with pytest.raises(ValueError):
            measure(measure_arguments() | {"table": corrupt})
    with pytest.raises(ValueError):
        fill(fill_arguments() | {"table": corrupt})


WRONG: list[tuple[Call, dict[str, Any]]] = [
    (scan, {"state": int64s([-1, 0, 0])}), (scan, {"state": int64s([len(RECORDS) + 1, 0, 0])}),
    (scan, {"state": int64s([2**63 - 1, 0, 0])}), (scan, {"state": int64s([0, 0])}),
    (scan, {"state": np.zeros(3, np.int32)}), (scan, {"table": int64s([0] * 12)}),
    (scan, {"table": np.zeros((1, 11), np.int32)}), (scan, {"records": memoryview(RECORDS)[::2]}),
    (measure, {"totals": int64s([0] * 12)}), (measure, {"totals": bytes(8 * 13)}),
    (measure, {"most_rows": -1}), (measure, {"most_bytes": -(2**63)}),
    *((fill, {"record_count": count}) for count in (2, 4, -1)),
    (fill, {"row_count": 2, "offset": bytearray(16), "timestamp": bytearray(16), "timestamp_type": bytearray(8)}),
    (fill, {"row_count": 4, "offset": bytearray(32), "timestamp": bytearray(32), "timestamp_type": bytearray(16)}),
    (fill, {"row_count": -1}), (fill, {"row_count": 2**31}), (fill, {"first_offset": 1}), (fill, {"end_offset": 2}),
    *((fill, {"key": column(*sizes)}) for sizes in ((2, 1, 1), (4, 1, 1), (3, 0, 1), (3, 2, 1), (3, 1), (3, 1, 0))),
    (fill, {"key": (None, bytearray(0), bytearray(1))}), (fill, {"key": (None, None, bytearray(1))}),
    (fill, {"key": (None, bytes(16), bytearray(1))}),
    *((fill, {"value": column(*sizes)}) for sizes in ((3, 3, 1), (3, 20, 1), (3, 4))),
    (fill, {"offset": bytearray(23)}), (fill, {"offset": bytearray(25)}), (fill, {"timestamp": bytearray(16)}),
    (fill, {"timestamp_type": bytearray(24)}),
    (fill, {"headers": (None, bytearray(16), column(2, 2), column(2, 1, 1))}),
    *((fill, {"headers": (bytearray(1), bytearray(size), column(2, 2), column(2, 1, 1))}) for size in (12, 20, 0)),
    (fill, {"headers": (bytearray(1), bytearray(16), column(1, 2), column(2, 1, 1))}),
    (fill, {"headers": (bytearray(1), bytearray(16), column(2, 1), column(2, 1, 1))}),
    (fill, {"headers": (bytearray(1), bytearray(16), column(2, 2), column(2, 1))}),
    (fill, {"headers": (bytearray(1), bytearray(16), column(2, 2), column(3, 1, 1))}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "wrong"), WRONG, ids=[f"{call.__name__} {next(iter(wrong))}" for call, wrong in WRONG]
)
def test_wrong_arguments_are_value_errors(call: Call, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        call(ARGUMENTS[call]() | wrong)


def test_records_that_change_after_they_were_measured_are_a_value_error() -> None:
    for place in range(61, len(RECORDS)):
        for bit in range(8):
            changed = bytearray(RECORDS)
            changed[place] ^= 1 << bit
            with contextlib.suppress(ValueError):
                fill(fill_arguments() | {"sources": (bytes(changed),)})


@given(data=st.data())
def test_whatever_comes_is_decoded_or_refused(data: st.DataObject) -> None:
    """Right but for some arguments, so that the kernel goes on behind its first checks."""
    wrong_tables = st.builds(
        lambda name, number: with_numbers(**{name: number}), st.sampled_from([each.name for each in Column]), NUMBERS
    )
    sources = st.lists(st.one_of(st.just(RECORDS), st.binary(max_size=90)), max_size=2).map(tuple)
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "sources": sources, "records": st.one_of(st.binary(max_size=90), st.just(RECORDS * 2)), "table": wrong_tables,
        "state": st.lists(NUMBERS, max_size=4).map(int64s), "totals": st.just(int64s([1] * 13)),
        "checks_crc": st.booleans(), "checks_timestamps": st.booleans(), "key": COLUMNS, "value": COLUMNS,
        "offset": BUFFERS, "timestamp": BUFFERS, "timestamp_type": BUFFERS, "headers": HEADERS,
    }  # fmt: skip
    for call, arguments_of in ARGUMENTS.items():
        arguments = arguments_of()
        names = data.draw(st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=3))
        changed = {name: data.draw(strategies.get(name, NUMBERS)) for name in names}
        with contextlib.suppress(ValueError, TypeError):
            call(arguments | changed)


@pytest.mark.parametrize("function", ["scan_batches", "measure_records", "fill_columns"])
def test_other_threads_run_while_the_kernel_works(function: str) -> None:
    rows = 20_000
    records = bytes(plain(*[b"0123456789" * 10] * rows))
    state, table, totals = np.zeros(len(State), np.int64), new_table(1), np.zeros(len(Total), np.int64)
    _kernel.scan_batches(records, state, NO_END, 1, False, table)
    _kernel.measure_records((records,), table, 0, NO_END, rows, 2**30, False, totals)
    columns = (None, (None, bytearray(4 * (rows + 1)), bytearray(int(totals[Total.VALUE_BYTES]))), *[None] * 4)
    of_all, sources = (0, NO_END, rows), (records,)
    calls: dict[str, Callable[[], object]] = {
        "scan_batches": lambda: _kernel.scan_batches(records, state * 0, NO_END, 1, True, new_table(1)),
        "measure_records": lambda: _kernel.measure_records(sources, table, *of_all, 2**30, True, totals),
        "fill_columns": lambda: _kernel.fill_columns(sources, table.copy(), *of_all, rows, columns),
    }
    assert_lets_others_run(calls[function])
