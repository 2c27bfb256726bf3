"""The compiled kernel and the vectorised fallback: the same bytes, counts and ends; and what the kernel refuses.

Without the compiled kernel only the choice between the two is tested.
"""

import contextlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafka_sink
from kafka_sink.records import kernel
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import Kernel, OpenBatches, choose, fallback, warn_of_loss
from kafka_sink.records.row_hashes import KEYS
from kernels import COMPILED, KERNELS, assert_lets_others_run, needs_kernel
from record_cases import Case, Row, as_arrow, cases, int64s, scalar_record

Int64s = npt.NDArray[np.int64]

# validity, offsets, data, bytes an offset has, first row, rows
Column = tuple[bytes | None, npt.NDArray[np.signedinteger[Any]] | None, bytes | None, int, int, int]

if COMPILED is not None:
    from kafka_sink.records import _kernel

BOTH = pytest.mark.parametrize("implementation", KERNELS)
UNTOUCHED = 0xEE

# Years 1 to 9999 and, to wrap a difference around, the ends of int64.
BASES_MS = st.one_of(st.integers(-(2**47), 2**47), st.sampled_from([-(2**63), 2**63 - 1]))
# None at all, less than a record, some records, all of them; oversize rows come with `TEXT` of 8192.
ROOMS = st.one_of(st.integers(0, 8), st.integers(0, 300), st.just(200_000))
# Deltas of one to four bytes.
RECORDS_BEFORE = st.one_of(st.integers(0, 100), st.sampled_from([8_190, 2**20 - 2]))
# Numbers as they come, the wrong ones often near a bound.
NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, -(2**63)]))
NUMBER_ARRAYS = st.lists(NUMBERS, max_size=6).map(int64s)
SMALL = st.integers(-1, 9)
# Where 4 and 8 bytes end, and where a sum of two would go beyond.
BOUNDS = {
    np.int32: st.sampled_from([-(2**31), 2**31 - 1]),
    np.int64: st.sampled_from([-(2**63), -(2**31) - 1, 2**31, 2**32, 2**62, 2**63 - 1]),
}
# Mostly columns that are right, of rows that are a slice: else no row but the first of a call would ever be read.
RIGHT_COLUMNS = st.builds(
    lambda lengths, first, beyond, nulls, dtype: column(
        np.cumsum([0, *lengths]).tolist(), bytes(sum(lengths) + beyond), rows=max(len(lengths) - first, 0),
        first=min(first, len(lengths)), validity=nulls, dtype=dtype,
    ),
    st.lists(st.integers(0, 40), min_size=3, max_size=6), first=st.integers(0, 3), beyond=st.integers(0, 17),
    nulls=st.none() | st.binary(min_size=1, max_size=1), dtype=st.sampled_from([np.int32, np.int64]),
)  # fmt: skip
WRONG_COLUMNS = st.sampled_from([np.int32, np.int64]).flatmap(
    lambda dtype: st.builds(
        lambda offsets, data, **given: column(offsets, data, dtype=dtype, **given),
        st.lists(st.one_of(SMALL, SMALL, SMALL, BOUNDS[dtype]), max_size=8).flatmap(
            lambda some: st.sampled_from([some, sorted(some)])
        ),
        st.binary(max_size=12), rows=SMALL | st.sampled_from([2**31, 2**63 - 1]),
        first=SMALL | st.sampled_from([2**31, 2**63 - 1, -(2**63)]), validity=st.none() | st.binary(max_size=2),
    )
)  # fmt: skip
COLUMNS = st.one_of(RIGHT_COLUMNS, WRONG_COLUMNS)
HEADERS = st.one_of(st.none(), st.tuples(NUMBER_ARRAYS, COLUMNS, COLUMNS))


@needs_kernel
def test_the_compiled_kernel_is_taken_unless_it_is_switched_off() -> None:
    assert choose({}).name == choose({"PYKAFKA_REQUIRE_KERNEL": "1"}).name == "compiled"
    assert choose({"PYKAFKA_KERNEL": "off"}) is fallback()


def test_without_a_kernel_the_fallback_is_taken_and_warned_of_once_or_the_import_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_not_built() -> Kernel:
        raise ImportError("No module named '_kernel'")

    monkeypatch.setattr(kernel, "compiled_kernel", raise_not_built)
    lost = choose({})
    assert lost.name == fallback().name and lost.loss is not None
    assert "No module named '_kernel'" in lost.loss.reason
    for each in (choose({"PYKAFKA_KERNEL": "off"}), lost, lost, choose({})):
        warn_of_loss(each)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "not built" in record.getMessage() and "C compiler" in record.getMessage()
    with pytest.raises(ImportError, match=r"PYKAFKA_REQUIRE_KERNEL=1, but .*No module named '_kernel'"):
        choose({"PYKAFKA_REQUIRE_KERNEL": "1"})


def test_a_package_in_a_zip_says_why_it_has_no_kernel(tmp_path: Path) -> None:
    package = Path(kafka_sink.__file__).parent
    with zipfile.ZipFile(tmp_path / "sink.zip", "w") as made:
        for file in package.rglob("*.py"):
            made.write(file, Path(package.name) / file.relative_to(package))
    look = "from kafka_sink.records.kernel import KERNEL; print(KERNEL.name, KERNEL.loss)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "sink.zip"), "PYTHONSAFEPATH": "1"}
    for name in ("PYKAFKA_KERNEL", "PYKAFKA_REQUIRE_KERNEL"):
        environment.pop(name, None)
    said = subprocess.run([sys.executable, "-c", look], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout.startswith("vectorised Loss("), said.stderr
    assert "in a zip" in said.stdout and "--archives" in said.stdout


@needs_kernel
def test_with_the_compiled_kernel_nothing_of_the_fallback_is_imported() -> None:
    if not COMPILED.sums_records:
        pytest.skip("this processor does not compute CRC-32C, so the fallback has the functions that check it")
    script = (
        "import importlib, pkgutil, sys, kafka_sink.kafka.client, kafka_sink.kafka.reader, kafka_sink.records as here\n"
        "for module in pkgutil.iter_modules(here.__path__):\n"
        "    if not module.ispkg: importlib.import_module(f'kafka_sink.records.{module.name}')\n"
        "print(*(name for name in sys.modules if name.startswith('kafka_sink.records.fallback')))"
    )
    environment = {**os.environ, "PYKAFKA_KERNEL": ""}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


@dataclass(frozen=True)
class Placement:
    """Rows with destinations, and for each destination an open batch, some with records already."""

    case: Case
    destination: Int64s
    destination_count: int
    end: list[int]
    room: list[int]
    record_count: list[int]
    records_crc: list[int]
    base_timestamp: list[int]

    def open_batches(self) -> OpenBatches:
        """Side by side in one memory, with a byte between two that belongs to neither."""
        sizes = [end + room for end, room in zip(self.end, self.room, strict=True)]
        limit = np.cumsum(int64s(sizes) + 1) - 1
        return OpenBatches(
            memory=np.full(limit[-1] + 1, UNTOUCHED, np.uint8), base_timestamp=int64s(self.base_timestamp),
            end=limit - self.room, limit=limit, record_count=int64s(self.record_count),
            max_timestamp=int64s(self.base_timestamp), records_crc=int64s(self.records_crc),
        )  # fmt: skip


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    case = draw(cases())
    n, k = len(case.rows), draw(st.integers(1, 6))

    def each(strategy: st.SearchStrategy[int], count: int = k) -> list[int]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    return Placement(
        case=case, destination=int64s(each(st.integers(0, k - 1), n)), destination_count=k,
        end=each(st.integers(0, 100)), room=each(ROOMS), record_count=each(RECORDS_BEFORE),
        records_crc=each(st.integers(0, 2**32 - 1)), base_timestamp=each(BASES_MS),
    )  # fmt: skip


def fill(implementation: Kernel, placement: Placement) -> tuple[Int64s, Int64s, OpenBatches]:
    """Next rows, end rows, batches after one `fill` of all destinations that have rows."""
    order, counts = implementation.wire_order(placement.destination, placement.destination_count)
    end_row = np.cumsum(counts)
    next_row = end_row - counts
    batches = placement.open_batches()
    encoder = implementation.encoder(placement.case.columns, order)
    encoder.fill(np.flatnonzero(counts), next_row, end_row, batches)
    assert (batches.memory[batches.limit] == UNTOUCHED).all()
    return next_row, end_row, batches


def records(batches: OpenBatches) -> list[bytes]:
    """What is in each batch, and what was before it."""
    starts = [0, *(batches.limit[:-1] + 1).tolist()]
    return [batches.memory[start:end].tobytes() for start, end in zip(starts, batches.end.tolist(), strict=True)]


@needs_kernel
def test_the_crc_of_long_runs_and_of_none() -> None:
    values = [b"v" * length for length in (3_000, 10_000, 0, 1, 20_000, 8_000, 7)]
    columns = RecordColumns.from_arrow(pa.record_batch({"value": pa.array(values, pa.binary())}), now_ms=0)
    encoder = COMPILED.encoder(columns, np.arange(len(values)))
    summed, not_summed = one_batch(50_000, records_crc=0), one_batch(50_000)
    for batches in (summed, not_summed):
        encoder.fill(int64s([0]), int64s([0]), int64s([len(values)]), batches)
    assert summed.records_crc.tolist() == [crc32c.crc32c(records(summed)[0])]
    assert not_summed.records_crc is None
    assert records(summed) == records(not_summed)


@BOTH
@given(placement=placements())
def test_each_batch_gets_the_longest_prefix_of_its_rows_that_fits(implementation: Kernel, placement: Placement) -> None:
    next_row, end_row, batches = fill(implementation, placement)
    for i, got in enumerate(records(batches)):
        rows = [row for row, d in zip(placement.case.rows, placement.destination, strict=True) if d == i]
        base = placement.base_timestamp[i]
        encoded = [
            # The difference wraps around.
            scalar_record(row, placement.record_count[i] + at, (row.timestamp_ms - base + 2**63) % 2**64 - 2**63)
            for at, row in enumerate(rows)
        ]
        fit = next((n for n in range(len(rows)) if sum(map(len, encoded[: n + 1])) > placement.room[i]), len(rows))
        assert got == b"\xee" * placement.end[i] + b"".join(encoded[:fit])
        assert end_row[i] - next_row[i] == len(rows) - fit
        assert batches.record_count[i] == placement.record_count[i] + fit
        assert batches.max_timestamp[i] == max([base, *(row.timestamp_ms for row in rows[:fit])])
        if implementation.name == "compiled":  # Its CRC goes on with the records.
            assert batches.records_crc[i] == crc32c.crc32c(b"".join(encoded[:fit]), placement.records_crc[i])


@BOTH
@pytest.mark.parametrize("sums", [True, False])
def test_a_row_that_fits_to_the_byte_is_placed_and_with_a_byte_less_not(implementation: Kernel, sums: bool) -> None:
    """In a memory that ends where the batch does."""
    values = [None, *(b"v" * length for length in (0, 1, 15, 16, 17, 63, 64, 130))]
    rows = [Row(None, value, ((b"h", value),) * (i % 3), 0) for i, value in enumerate(values)]
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([as_arrow(row.headers) for row in rows], pa.list_(entry))
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "headers": headers})
    encoder = implementation.encoder(RecordColumns.from_arrow(batch, now_ms=0), np.arange(len(values)))
    ends = np.cumsum([len(scalar_record(row, i, 0)) for i, row in enumerate(rows)]).tolist()
    for room in range(ends[-1] + 2):
        batches, next_row = one_batch(room, **({"records_crc": 0} if sums else {})), int64s([0])
        encoder.fill(int64s([0]), next_row, int64s([len(values)]), batches)
        fit = sum(end <= room for end in ends)
        assert (next_row.tolist(), batches.end.tolist()) == ([fit], [[0, *ends][fit]])


@needs_kernel
@given(cases())
def test_payload_sizes_and_hashes_are_alike(case: Case) -> None:
    assert COMPILED.payload_sizes(case.columns).tolist() == fallback().payload_sizes(case.columns).tolist()
    # Also what lies under a null: both hash it.
    assert COMPILED.murmur2(case.columns.value).tolist() == fallback().murmur2(case.columns.value).tolist()


@BOTH
@given(rows=st.lists(st.integers(0, 300), max_size=60), more=st.integers(0, 3))
def test_wire_order_is_a_stable_sort(implementation: Kernel, rows: list[int], more: int) -> None:
    destination_count = max(rows, default=0) + 1 + more
    order, counts = implementation.wire_order(int64s(rows), destination_count)
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert counts.tolist() == [rows.count(d) for d in range(destination_count)]
    assert (order.dtype, counts.dtype) == (np.int64, np.int64)


@needs_kernel
def test_data_beyond_32_bits() -> None:
    """Two keys at the ends of 2^31 + 64 bytes, of which only the pages that are read exist."""
    size = 2**31 + 64
    data = np.zeros(size, np.uint8)
    data[-6:] = np.frombuffer(b"foobar", np.uint8)
    offsets = int64s([0, 2, size - 6, size])
    array = pa.Array.from_buffers(pa.large_binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    ends = array.slice(2)
    assert COMPILED.murmur2(ends).tolist() == [-790332482]  # UtilsTest.testMurmur2
    columns = RecordColumns.from_arrow(pa.record_batch({"value": array}), now_ms=5)
    assert COMPILED.payload_sizes(columns).tolist() == fallback().payload_sizes(columns).tolist()
    encoder = COMPILED.encoder(columns, int64s([2, 0, 1]))
    batches = one_batch(64)
    next_row = int64s([0])
    encoder.fill(int64s([0]), next_row, int64s([3]), batches)
    assert next_row.tolist() == [2]  # the third, of 2 GiB, has no room
    assert b"foobar" in records(batches)[0]


def one_batch(size: int, **numbers: int) -> OpenBatches:
    values = {"base_timestamp": 0, "end": 0, "limit": size, "record_count": 0, "max_timestamp": 0} | numbers
    columns: dict[str, Any] = {name: int64s([value]) for name, value in values.items()}
    return OpenBatches(np.zeros(size, np.uint8), **({"records_crc": None} | columns))


def column(
    offsets: list[int], data: bytes, *, rows: int, first: int = 0, validity: bytes | None = None,
    dtype: npt.DTypeLike = np.int32,
) -> Column:  # fmt: skip
    """Buffers of exactly these sizes, so that AddressSanitizer sees a byte read beyond them."""
    offset_buffer = np.array(offsets, dtype)
    return validity, offset_buffer, data, offset_buffer.itemsize, first, rows


def arguments() -> dict[str, Any]:
    """Those of `_kernel.fill`, in their order: three rows, of which the second has a header, for two batches."""
    return {
        "value": column([0, 1, 2, 3], b"abc", rows=3), "key": column([0, 1, 2, 3], b"klm", rows=3),
        "headers": (int64s([0, 0, 1, 1]), column([0, 1], b"h", rows=1), column([0, 1], b"v", rows=1)),
        "order": int64s([0, 1, 2]), "timestamp_ms": int64s([5, 6, 7]), "places": int64s([0, 1]),
        "next_row": int64s([0, 2]), "end_row": int64s([2, 3]), "memory": np.zeros(200, np.uint8),
        "base_timestamp": int64s([5, 5]), "end": int64s([0, 100]), "limit": int64s([100, 200]),
        "record_count": int64s([0, 0]), "max_timestamp": int64s([5, 5]), "records_crc": int64s([0, 0]),
    }  # fmt: skip


def fill_columns(given: dict[str, Any]) -> None:
    _kernel.fill(*given.values())


def sum_row_hashes(given: dict[str, Any]) -> None:
    _kernel.sum_row_hashes(*given.values())


@needs_kernel
def test_what_is_made_hostile_below_is_right_and_a_column_without_rows_may_have_no_buffers() -> None:
    given, hashed = arguments(), hash_arguments()
    fill_columns(given)
    sum_row_hashes(hashed)
    assert given["next_row"].tolist() == [2, 3] and hashed["sums"].all()
    for offset_bytes in (4, 8):
        empty = (None, None, None, offset_bytes, 0, 0)
        _kernel.murmur2(empty, np.zeros(0, np.int32))
        _kernel.payload_sizes(empty, empty, (int64s([0]), empty, empty), int64s([]))
        none = {"headers": (int64s([0]), empty, empty), "partition": int64s([]), "timestamp_ms": int64s([])}
        hashed = hash_arguments() | none | dict.fromkeys(("value", "key", "topic"), empty)
        sum_row_hashes(hashed)
        assert hashed["sums"].tolist() == [0, 0]


def hash_arguments() -> dict[str, Any]:
    """Those of `_kernel.sum_row_hashes`, in their order, with the rows of `arguments`."""
    given = arguments()
    return {
        **{name: given[name] for name in ("value", "key", "headers")}, "topic": column([0, 1, 2, 3], b"tuv", rows=3),
        "partition": int64s([0, 1, 2]), "timestamp_ms": int64s([5, 6, 7]), "keys": KEYS.view(np.int64),
        "sums": int64s([0, 0]),
    }  # fmt: skip


CORRUPT_COLUMNS = {
    "descending": column([0, 2, 1, 3], b"abc", rows=3),
    "negative": column([-1, 1, 2, 3], b"abc", rows=3),
    "beyond the data": column([0, 1, 2, 4], b"abc", rows=3),
    "far beyond the data": column([0, 1, 2, 2**63 - 1], b"abc", rows=3, dtype=np.int64),
    "far below the data": column([-(2**63), 1, 2, 3], b"abc", rows=3, dtype=np.int64),
    "one offset short": column([0, 1, 2], b"abc", rows=3),
    "no offsets": (None, None, b"abc", 4, 0, 3),
    "slice past the offsets": column([0, 1, 2, 3], b"abc", rows=3, first=1),
    "slice far past the offsets": column([0, 1, 2, 3], b"abc", rows=3, first=2**63 - 1),
    "negative slice": column([0, 1, 2, 3], b"abc", rows=3, first=-1),
    "negative rows": column([0, 1, 2, 3], b"abc", rows=-1),
    "rows that overflow": column([0, 1, 2, 3], b"abc", rows=2**63 - 1, first=1),
    "validity too short": column([0] * 7 + [1, 2, 3], b"abc", rows=3, first=6, validity=b"\xff"),
    "no validity": column([0, 1, 2, 3], b"abc", rows=3, validity=b""),
    "no data": (None, np.array([0, 1, 2, 3], np.int32), None, 4, 0, 3),
    "offsets of 2 bytes": column([0, 1, 2, 3], b"abc", rows=3, dtype=np.int16),
}


@needs_kernel
@pytest.mark.parametrize("place", ["value", "key", "header key", "header value", "topic"])
@pytest.mark.parametrize("corrupt", CORRUPT_COLUMNS.values(), ids=CORRUPT_COLUMNS.keys())
def test_a_corrupt_column_is_a_value_error(place: str, corrupt: Column) -> None:
    given = arguments()
    three, value = int64s([0, 1, 2, 3]), given["value"]
    headers = {"header key": (three, corrupt, value), "header value": (three, value, corrupt)}
    changed = {"headers": headers[place]} if place in headers else {place: corrupt}
    with pytest.raises(ValueError):
        _kernel.sum_row_hashes(*(hash_arguments() | changed).values())
    if place == "topic":
        return
    if place == "value" and corrupt[0] is None:  # Of validity no hash takes note.
        with pytest.raises(ValueError):
            _kernel.murmur2(corrupt, np.zeros(3, np.int32))
    given |= changed
    with pytest.raises(ValueError):
        _kernel.fill(*given.values())
    with pytest.raises(ValueError):
        _kernel.payload_sizes(given["value"], given["key"], given["headers"], int64s([0] * 3))


def read_only(array: Int64s) -> Int64s:
    array.flags.writeable = False
    return array


WRONG: list[tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = [
    *((fill_columns, {"order": wrong}) for wrong in (
        int64s([0, 3, 1]), int64s([0, -1, 1]), int64s([0, 1]), np.array([0, 1, 2], np.int32),
        np.array([0, 1, 2], np.float64), np.array([0, 1, 2], np.uint64), int64s([0, 0, 1, 1, 2, 2])[::2],
    )),
    *((fill_columns, {"next_row": wrong}) for wrong in (
        int64s([-1, 2]), int64s([3, 2]), int64s([0]), read_only(int64s([0, 2])), int64s([0, 0, 2, 0])[::2],
    )),
    *((fill_columns, {"end_row": int64s(wrong)}) for wrong in ([2, 4], [2, 2**63 - 1], [2, 3, 3])),
    *((fill_columns, {"places": int64s(wrong)}) for wrong in ([0, 2], [-1, 1], [0, 2**63 - 1])),
    *((fill_columns, {"end": int64s(wrong)})
      for wrong in ([-1, 100], [101, 100], [0, 2**63 - 1], [-(2**63), 100], [0])),
    *((fill_columns, {"limit": int64s(wrong)}) for wrong in ([100, 201], [-1, 200], [100, 2**63 - 1], [200])),
    *((fill_columns, {"record_count": int64s(wrong)}) for wrong in ([-1, 0], [0, 2**31 - 1], [0, 2**63 - 1])),
    *((fill_columns, {"memory": wrong})
      for wrong in (bytes(200), np.zeros(199, np.uint8), np.zeros((10, 40), np.uint8)[:, ::2], None)),
    *((fill_columns, {"headers": wrong}) for wrong in (
        (int64s([0, 0, 1]), *arguments()["headers"][1:]), (int64s([0, 0, 2, 1]), *arguments()["headers"][1:]),
        (int64s([0, 0, 2, 2]), column([0, 1, 1], b"h", rows=1), column([0, 1, 1], b"v", rows=1)),
        (int64s([0, 0, 1, 1]), column([0, 1], b"h", rows=1), column([0], b"", rows=0)),
    )),
    (fill_columns, {"timestamp_ms": int64s([5, 6])}), (fill_columns, {"places": np.array([0, 1], np.int32)}),
    (fill_columns, {"max_timestamp": int64s([5])}), (fill_columns, {"records_crc": int64s([0])}),
    (fill_columns, {"records_crc": read_only(int64s([0, 0]))}), (fill_columns, {"base_timestamp": int64s([])}),
    (fill_columns, {"key": column([0, 1, 2, 3], b"klm", rows=2)}),
    *((call, {"key": column([0, 1, 2], b"kl", rows=2)}) for call in (fill_columns, sum_row_hashes)),
    *((call, {"headers": (int64s(wrong), *arguments()["headers"][1:])})
      for wrong in ([-1, 0, 1, 1], [0, 0, 2**63 - 1, 1]) for call in (fill_columns, sum_row_hashes)),
    (sum_row_hashes, {"headers": (int64s([0, 0, 2, 2]), *arguments()["headers"][1:])}),
    (sum_row_hashes, {"topic": column([0, 1, 2], b"tu", rows=2)}),
    *((sum_row_hashes, {"partition": wrong}) for wrong in (int64s([0, 1]), np.zeros(3, np.int32))),
    *((sum_row_hashes, {"timestamp_ms": int64s(wrong)}) for wrong in ([5, 6, 7, 8], [5, 6])),
    (sum_row_hashes, {"timestamp_ms": int64s([5, 6, 7, 8, 9, 10])[::2]}),
    *((sum_row_hashes, {"keys": wrong}) for wrong in (KEYS.view(np.int64)[1:], KEYS)),
    *((sum_row_hashes, {"sums": wrong}) for wrong in (int64s([0]), bytes(16))),
]  # fmt: skip


@needs_kernel
@pytest.mark.parametrize(
    ("call", "wrong"), WRONG, ids=[f"{call.__name__} {next(iter(wrong))}" for call, wrong in WRONG]
)
def test_wrong_numbers_and_buffers_are_refused(call: Callable[[dict[str, Any]], None], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        call((arguments() if call is fill_columns else hash_arguments()) | wrong)


@needs_kernel
def test_wrong_destinations_and_places_of_hashes_are_value_errors() -> None:
    for destination, order_size, counts_size in (
        ([0, 2], 2, 2), ([0, -1], 2, 2), ([0, 2**63 - 1], 2, 2), ([0, -(2**63)], 2, 2), ([0], 2, 1), ([0, 0], 1, 1),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            _kernel.wire_order(int64s(destination), int64s([0] * order_size), int64s([0] * counts_size))
    for hashes in (np.zeros(2, np.int32), np.zeros(3, np.int64), np.zeros(3, np.float32)):
        with pytest.raises(ValueError):
            _kernel.murmur2(arguments()["key"], hashes)


def many_arguments() -> dict[str, Any]:
    """Forty rows of 0 to 39 bytes for eight batches: more than the kernel prefetches ahead."""
    rows, batches = 40, 8
    offsets = np.cumsum([0, *range(rows)]).tolist()
    return arguments() | {
        "value": column(offsets, bytes(offsets[-1]), rows=rows), "key": None, "headers": None,
        "order": np.arange(rows - 1, -1, -1), "timestamp_ms": np.full(rows, 5), "places": np.arange(batches),
        "next_row": np.arange(0, rows, 5), "end_row": np.arange(0, rows, 5) + 5,
        "memory": np.zeros(300 * batches, np.uint8), "base_timestamp": np.full(batches, 5),
        "end": 300 * np.arange(batches), "limit": 300 * np.arange(1, batches + 1),
        "record_count": np.zeros(batches, np.int64), "max_timestamp": np.full(batches, 5), "records_crc": None,
    }  # fmt: skip


@needs_kernel
@pytest.mark.parametrize("wrong", [-1, 2**40, -(2**40), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("name", ["value", "order", "places", "next_row", "end_row", "end", "limit"])
def test_what_is_wrong_ahead_is_a_value_error_in_its_turn(name: str, wrong: int) -> None:
    """What is to come is prefetched, so it is looked at before its turn, when it is checked, has come."""
    right = many_arguments()
    _kernel.fill(*right.values())
    assert right["next_row"].tolist() == right["end_row"].tolist()
    for batch in range(8):
        given = many_arguments()
        if name == "value":
            _, offsets, data, *_ = given["value"]
            wrong_offsets = [*offsets[: 5 * batch], wrong, *offsets[5 * batch + 1 :]]
            given["value"] = column(wrong_offsets, data, rows=40, dtype=np.int64)
        else:
            given[name][5 * batch if name == "order" else batch] = wrong
        with pytest.raises(ValueError):
            _kernel.fill(*given.values())


@needs_kernel
@pytest.mark.parametrize("call", [fill_columns, sum_row_hashes])
@given(data=st.data())
def test_whatever_comes_is_done_or_refused(call: Callable[[dict[str, Any]], None], data: st.DataObject) -> None:
    """A few arguments of a right call are replaced by wrong ones. That no byte beyond a buffer was touched,
    AddressSanitizer says (`make sanitize`)."""
    given = arguments() if call is fill_columns else hash_arguments()
    strategies: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(given, NUMBER_ARRAYS)
    strategies |= {"value": COLUMNS, "headers": HEADERS} | dict.fromkeys(("key", "topic"), st.none() | COLUMNS)
    strategies["memory"] = st.integers(0, 250).map(lambda n: np.zeros(n, np.uint8))
    for name in data.draw(st.lists(st.sampled_from(sorted(given)), min_size=1, max_size=3)):
        given[name] = data.draw(strategies[name])
    try:
        call(given)
    except ValueError:
        return
    for place in given["places"].tolist() if call is fill_columns else ():
        assert 0 <= given["end"][place] <= given["limit"][place] <= len(given["memory"])


@needs_kernel
@given(value=COLUMNS, key=st.one_of(st.none(), COLUMNS), headers=HEADERS, hashes=st.integers(-1, 7))
def test_whatever_comes_is_measured_or_refused(value: Any, key: Any, headers: Any, hashes: int) -> None:
    rows = max(0, min(value[-1], 9))
    with contextlib.suppress(ValueError):
        _kernel.payload_sizes(value, key, headers, np.zeros(rows, np.int64))
    with contextlib.suppress(ValueError):
        _kernel.murmur2(value, np.zeros(rows if hashes < 0 else hashes, np.int32))


@needs_kernel
@given(destination=NUMBER_ARRAYS, order_size=st.integers(0, 7), counts_size=st.integers(0, 14))
def test_whatever_comes_is_sorted_or_refused(destination: Int64s, order_size: int, counts_size: int) -> None:
    counts = np.zeros(counts_size, np.int64)
    try:
        _kernel.wire_order(destination, np.zeros(order_size, np.int64), counts)
    except ValueError:
        return
    assert counts.sum() == len(destination)


@needs_kernel
@given(
    st.integers(0, 200), st.none() | st.integers(-1, 2**32),
    st.lists(st.integers(-(2**63), 2**63 - 1) | NUMBERS, min_size=7, max_size=7),
)  # fmt: skip
def test_whatever_comes_is_put_into_a_header_or_refused(size: int, crc: int | None, numbers: list[int]) -> None:
    with contextlib.suppress(ValueError, OverflowError):
        _kernel.write_header(np.zeros(size, np.uint8), crc, *numbers)


@needs_kernel
@pytest.mark.parametrize("function", ["murmur2", "wire_order", "payload_sizes", "fill", "sum_row_hashes"])
def test_other_threads_run_while_the_kernel_works(function: str) -> None:
    rows = 100_000
    values = pa.array(np.arange(rows).astype("S8"), pa.binary())
    columns = RecordColumns.from_arrow(pa.record_batch({"value": values}), now_ms=0)
    encoder, batches = COMPILED.encoder(columns, np.arange(rows)), one_batch(32 * rows)
    destination, place = np.arange(rows) % 100, int64s([0])
    calls: dict[str, Callable[[], object]] = {
        "murmur2": lambda: COMPILED.murmur2(values),
        "wire_order": lambda: COMPILED.wire_order(destination, 100),
        "payload_sizes": lambda: COMPILED.payload_sizes(columns),
        "fill": lambda: encoder.fill(place, int64s([0]), int64s([rows]), batches),
        "sum_row_hashes": lambda: COMPILED.sum_row_hashes(columns),
    }
    assert_lets_others_run(calls[function])
