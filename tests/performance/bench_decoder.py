"""`make bench-core`, second part: record sets to Arrow columns on one core, without Spark and broker.

What runs is what a reader runs: RecordSetDecoder with its default limits, over record sets of 1 MiB as a Fetch answer
has them for a partition (max.partition.fetch.bytes), in batches of 16 KiB (batch.size of Java's producer), with a key
of 8 bytes. CRCs are compared. Not in the figures: making the record sets. Time is this process's CPU time, with both
kernels in turn.
"""

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from bench_core import arrow_batch, run_on
from frame import arguments, in_turns, markdown, write_report
from kafka_sink.records.arrow_rows import TYPES
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import codec_for
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.kernel import KERNEL, Kernel, OpenBatches, fallback
from kafka_sink.records.record_batch import HEADER_BYTES

BATCH_BYTES = 16 * 1024
RECORD_SET_BYTES = 1024 * 1024
# Enough that a record set does not stay in the processor's inner caches from one round to the next.
DISTINCT_SETS = 8
KEY_AND_VALUE = ("key", "value")
NO_HEADERS = tuple(name for name in TYPES if name != "headers")


@dataclass(frozen=True, slots=True)
class Case:
    value_bytes: int
    codec: str = "none"
    columns: tuple[str, ...] = NO_HEADERS
    has_headers: bool = False

    def __str__(self) -> str:
        columns = "key and value" if self.columns == KEY_AND_VALUE else "with headers" if self.has_headers else "all"
        return f"{self.value_bytes:,} bytes, {self.codec}, {columns}"


CASES = (
    Case(10), Case(100), Case(100, columns=KEY_AND_VALUE), Case(100, columns=tuple(TYPES), has_headers=True),
    Case(1024), Case(100, codec="zstd"), Case(100, codec="lz4"),
)  # fmt: skip
GOALS = {Case(100): "3 GB/s"}


@dataclass(frozen=True, slots=True)
class RecordSet:
    data: bytes
    row_count: int


def record_set(case: Case, number: int) -> RecordSet:
    """Batches until the next one would not fit."""
    batches: list[bytes] = []
    row_count = size_bytes = 0
    for batch, rows in encoded_batches(case, number):
        if size_bytes + len(batch) > RECORD_SET_BYTES:
            break
        batches.append(row_count.to_bytes(8, "big") + batch[8:])
        row_count += rows
        size_bytes += len(batch)
    return RecordSet(b"".join(batches), row_count)


def encoded_batches(case: Case, number: int) -> Iterator[tuple[bytes, int]]:
    """Batches with about BATCH_BYTES of records before compression, and their rows, without an end."""
    codec = codec_for(case.codec)
    rows = BATCH_BYTES // (case.value_bytes + (60 if case.has_headers else 20)) + 1
    seed = 1_000_000 * number
    while True:
        columns = RecordColumns.from_arrow(arrow_rows(case, rows, seed), now_ms=0)
        seed += rows
        memory, base = np.zeros(2 * BATCH_BYTES + 4096, np.uint8), int(columns.timestamp_ms[0])
        numbers = [np.array([number]) for number in (base, HEADER_BYTES, len(memory), 0, base)]
        batches = OpenBatches(memory, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], records_crc=None)
        KERNEL.encoder(columns, np.arange(rows)).fill(np.array([0]), np.array([0]), np.array([rows]), batches)
        batch = bytearray(HEADER_BYTES) + codec.compress(memory[HEADER_BYTES : batches.end[0]].data)
        KERNEL.write_header(memoryview(batch), None, codec.id, base, int(batches.max_timestamp[0]), -1, -1, -1, rows)
        yield bytes(batch), rows


def arrow_rows(case: Case, rows: int, seed: int) -> pa.RecordBatch:
    """Random bytes, or orders as JSON if they are to be compressed."""
    batch = arrow_batch(rows, case.value_bytes, seed)
    if case.codec != "none":
        numbers = np.random.default_rng(seed).integers(0, 10**6, (rows, 3)).tolist()
        texts = [
            b'{"order": %d, "customer": %d, "amount": %d, "status": "paid", "currency": "EUR", "country": "NL"}' % (*n,)
            for n in numbers
        ]
        values = [text[: case.value_bytes].ljust(case.value_bytes) for text in texts]
        batch = batch.set_column(batch.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))
    if case.has_headers:
        headers = [[{"key": "traceparent", "value": b"%020d" % row}] for row in range(rows)]
        batch = batch.append_column("headers", pa.array(headers, TYPES["headers"]))
    return batch


def decode_all(kernel: Kernel, case: Case, sets: Sequence[RecordSet]) -> float:
    """Return CPU seconds."""
    rows = 0
    begun_s = time.process_time()
    for each in sets:
        decoder = partial(RecordSetDecoder, columns=case.columns, kernel=kernel)
        rows += sum(batch.num_rows for batch in decoder(each.data, first_offset=0, end_offset=each.row_count))
    took_s = time.process_time() - begun_s
    expected = sum(each.row_count for each in sets)
    if rows != expected:
        raise AssertionError(f"{expected} rows went in, {rows} came out")
    return took_s


@dataclass(frozen=True, slots=True)
class Decoded:
    """`name`: of the kernel and the case. `row`: of the table."""

    name: str
    records_per_s: float
    row: str


def measure(case: Case, rounds: int) -> Iterator[Decoded]:
    """Yield what each kernel does. Bytes are those of the record sets, as they come from a broker."""
    kernels = [KERNEL] if KERNEL.name == fallback().name else [KERNEL, fallback()]
    sets = [record_set(case, number) for number in range(DISTINCT_SETS)]
    # A record set is enough for the loop in Python.
    given = {kernel: sets if kernel is KERNEL else sets[:1] for kernel in kernels}
    times_s = in_turns(kernels, rounds, lambda kernel: decode_all(kernel, case, given[kernel]), f"{case}: ")
    for kernel, taken in times_s.items():
        rows, size = sum(each.row_count for each in given[kernel]), sum(len(each.data) for each in given[kernel])
        took_s, goal = statistics.median(taken), GOALS.get(case, "") if kernel.name == "compiled" else ""
        figures = f"{rows / took_s / 1e6:.2f} | {size / took_s / 1e9:.2f} | {1e9 * took_s / rows:.1f}"
        yield Decoded(f"{kernel.name}, {case}", rows / took_s, f"{kernel.name} | {case} | {figures} | {goal}")


def main() -> None:
    parser = arguments(__doc__, 15, each="each case and kernel", output="decoder.json")
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1, help="the one to run on")
    options = parser.parse_args()
    run_on(options.core)
    found = [each for case in CASES for each in measure(case, options.rounds)]
    table = markdown("kernel | values, codec, columns | M records/s | GB/s | ns | goal", [each.row for each in found])
    print(table)
    figures = {each.name: each.records_per_s for each in found}
    report = {"rounds": options.rounds, "table": table.splitlines(), "figures": figures}
    write_report(options.output / "decoder.json", report)


if __name__ == "__main__":
    main()
