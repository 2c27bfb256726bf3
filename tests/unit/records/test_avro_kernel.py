"""The kernel's decoder of Avro: it refuses programs and rows that are not sound, and gives the interpreter to others.

What it does right, registry/test_avro_program.py shows.
"""

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import assert_lets_others_run

try:
    from kafka_sink.records import _kernel
except ImportError:
    pytest.skip("the kernel was not compiled", allow_module_level=True)

KINDS = 19
RECORD, UNION, ARRAY, MAP, NOTHING, TEXT, INT64 = 16, 15, 17, 18, 0, 11, 2


def column_of(records: list[bytes | None]) -> Any:
    array = pa.array(records, pa.binary())
    validity, offsets, data = array.buffers()
    return validity, offsets, data, 4, 0, len(array)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """A tree of ops, whose numbers are right but for some of them, and how many columns it has."""
    ops: list[list[int]] = []
    columns = 0

    def add(depth: int) -> None:
        nonlocal columns
        kind = draw(st.integers(0, KINDS - 1) if depth < 4 else st.integers(0, UNION - 1))
        column = -1
        if kind not in (NOTHING, UNION) and draw(st.booleans()):
            column, columns = columns, columns + 1
        least = {UNION: 1, ARRAY: 1, MAP: 2}.get(kind, 0)
        children = draw(st.integers(least, least + 2)) if kind in (UNION, RECORD) else least
        op = [kind, column, draw(st.integers(0, 1)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), children, 0]
        ops.append(op)
        for _ in range(children):
            add(depth + 1)
        op[-1] = len(ops)

    add(0)
    for _ in range(draw(st.integers(0, 2))):
        op = draw(st.sampled_from(ops))
        op[draw(st.integers(0, 6))] = draw(st.integers(-2, 20) | st.sampled_from([2**31, 2**63 - 1, -(2**63)]))
    return ops, draw(st.sampled_from([columns, columns, columns, columns + 1, 0, -1]))


RECORDS = st.lists(
    st.none()
    | st.binary(max_size=30)
    | st.lists(st.sampled_from([b"\0", b"\1", b"\2", b"\4", b"\xff", b"a"]), max_size=30).map(b"".join),
    max_size=8,
)
ROWS = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 31)), max_size=10)


@given(programs(), RECORDS, ROWS)
def test_no_program_and_no_bytes_lead_out_of_the_buffers(
    program: tuple[list[list[int]], int], records: list[bytes | None], rows: list[tuple[int, int]]
) -> None:
    ops, count = program
    members, starts = (np.array([each[i] for each in rows], np.int64) for i in range(2))
    numbers = np.array(ops, np.int64).reshape(-1)
    is_read = np.zeros(len(rows), np.uint8)
    with contextlib.suppress(ValueError):
        found = _kernel.decode_avro(numbers, count, column_of(records), members, starts, is_read)
        assert len(found) == count and set(is_read) <= {0, 1}


LONG = np.array([INT64, 0, 0, 1, 1, 0, 1], np.int64)
ROW = np.zeros(1, np.int64)


@pytest.mark.parametrize(("program", "columns"), [
    (LONG[:-1], 1), (LONG[:0], 1), (LONG, 0), (LONG, 2), (LONG, -1), (np.tile(LONG, 2), 1),
    (np.array([UNION, -1, 0, 1, 1, 2, 3, INT64, 0, 0, 1, 1, 0, 2, INT64, 1, 0, 1, 1, 0, 3]), 2),
    (np.array([UNION, -1, 0, 1, 1, 2, 3, INT64, 0, 0, 1, 1, 0, 2, TEXT, -1, 0, 1, 1, 0, 3]), 1),
    (np.array([ARRAY, -1, 0, 1, 1, 1, 2, INT64, 0, 0, 1, 1, 0, 2]), 1),
    (np.array([MAP, 0, 0, 1, 1, 2, 3, TEXT, -1, 0, 1, 1, 0, 2, INT64, 1, 0, 1, 1, 0, 3]), 2),
    (np.array([RECORD, -1, 0, 1, 1, 2, 3, INT64, 0, 0, 1, 1, 0, 2, INT64, 0, 0, 1, 1, 0, 3]), 1),
])  # fmt: skip
def test_a_program_that_would_not_give_each_column_one_value_is_refused(program: Any, columns: int) -> None:
    with pytest.raises(ValueError, match="the program is not one"):
        _kernel.decode_avro(program, columns, column_of([b"\0\0\0"]), ROW, ROW, bytearray(1))


def test_rows_outside_of_the_column_are_refused() -> None:
    for row in (-1, 1, 2**62):
        with pytest.raises(ValueError, match="a row number lies outside"):
            _kernel.decode_avro(LONG, 1, column_of([b"\0"]), np.array([row]), ROW, bytearray(1))
    with pytest.raises(ValueError, match="is_read has a byte for each row"):
        _kernel.decode_avro(LONG, 1, column_of([b"\0"]), ROW, ROW, bytearray(2))


def test_it_gives_other_threads_the_interpreter() -> None:
    rows = np.arange(1_000_000) % 2
    column, is_read = column_of([b"\0", b"\2"]), np.empty(len(rows), np.uint8)
    assert_lets_others_run(lambda: _kernel.decode_avro(LONG, 1, column, rows, np.zeros_like(rows), is_read))


# --- encoding ---------------------------------------------------------------------------------------------------------

SOME = st.one_of(st.none(), st.binary(max_size=40))
INPUTS = st.lists(
    st.tuples(SOME, SOME, SOME, st.sampled_from([0, 1, 4, 8, 16, -1]), st.integers(-1, 4), st.integers(-1, 5)),
    max_size=5,
)


# Types with others within them first.
WRITTEN = [RECORD, UNION, ARRAY, MAP, 0, 1, 2, 3, 7, 9, 10, 11, 12, 13, 14, 19]


@st.composite
def written(draw: st.DrawFn) -> list[list[int]]:
    """A tree of ops for the encoder, whose numbers are right but for some of them."""
    ops: list[list[int]] = []

    def add(depth: int, kind: int) -> None:
        children = draw(st.integers(0, 3)) if kind == RECORD else {UNION: 1, ARRAY: 1, MAP: 2}.get(kind, 0)
        op = [kind, draw(st.integers(0, 4)), 0, draw(st.integers(-1, 3)), draw(st.integers(1, 3)), children, 0]
        ops.append(op)
        for _ in range(children):
            add(
                depth + 1,
                draw(st.sampled_from([0, 1, 2, 3, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19][: 15 - 4 * depth])),
            )
        op[-1] = len(ops)

    add(0, RECORD)
    for _ in range(draw(st.integers(0, 2))):
        op = draw(st.sampled_from(ops))
        op[draw(st.integers(0, 6))] = draw(st.integers(-2, 20) | st.sampled_from([2**31, 2**63 - 1, -(2**63)]))
    return ops


@given(written(), INPUTS, st.integers(0, 6))
def test_no_program_and_no_columns_lead_the_encoder_out_of_the_buffers(
    ops: list[list[int]], columns: list[Any], rows: int
) -> None:
    numbers = np.array(ops, np.int64).reshape(-1)
    with contextlib.suppress(ValueError):
        _kernel.encode_avro(numbers, tuple(columns), b"head", np.zeros(rows + 1, np.int32))


def long_column(count: int) -> tuple[Any, ...]:
    return (None, np.arange(count).tobytes(), None, 8, 0, count), (None, None, None, 0, 0, count)


WRITE_LONG = np.array([RECORD, 1, 0, 1, 1, 1, 2, INT64, 0, 0, 1, 1, 0, 2], np.int64)


def test_the_encoder_writes_each_row_behind_its_head_and_gives_other_threads_the_interpreter() -> None:
    ends = np.zeros(4, np.int32)
    assert _kernel.encode_avro(WRITE_LONG, long_column(3), b"h", ends) == b"h\0h\2h\4" and list(ends) == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="an end for each row"):
        _kernel.encode_avro(WRITE_LONG, long_column(3), b"h", np.zeros(3, np.int32))
    many, out = long_column(1_000_000), np.zeros(1_000_001, np.int32)
    assert_lets_others_run(lambda: _kernel.encode_avro(WRITE_LONG, many, b"h", out))
