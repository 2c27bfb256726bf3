"""`make bench-core`: Arrow columns to routed, encoded, CRC'd record batches on one core, without Spark and broker.

    parent   asks each worker in turn for a round of each case ─> medians ─> a table and build/bench/core.json
    worker   one a kernel, since that is chosen at import; both on the same core, one at a time

What runs is what a write runs: RecordColumns, Router, RoutedRows, RecordAccumulator.try_append with the default pool
and batch size, ProducerBatch.close and number. Arrow batches have the 10,000 rows that Spark sends, a random key of 8
bytes and a timestamp. Batches leave the accumulator as a Sender takes them out, as soon as they are ready, and their
buffers return as from a broker that is five requests behind. Not in the figures: making the rows, and that taking out
and giving back, which another thread does. Time is the worker's CPU time, so that other processes disturb less. The
goals stand beside the figures; nothing asserts them, machines differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from frame import BUILD, arguments, machine, write_report
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import MetadataSnapshot, TopicSnapshot
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.producer_batch import BatchState, ProducerBatch
from kafka_sink.kafka.producer.producer_id import ProducerIdAndEpoch
from kafka_sink.kafka.producer.router import Router
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.options.config import sink_config
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import codec_for
from kafka_sink.records.kernel import KERNEL

TOPIC = "bench"
NODE = 0
KEY_BYTES = 8
# Enough that the rows of a round do not stay in the processor's inner caches from one Arrow batch to the next.
DISTINCT_BATCHES = 8
PRODUCER = ProducerIdAndEpoch(producer_id=4_000, producer_epoch=0)

FEW, MANY = 4, 2_000
MANY_TO_FEW_GOAL = 1.5


@dataclass(frozen=True, slots=True)
class Case:
    value_bytes: int
    partition_count: int


CASES = tuple(Case(value_bytes, partition_count) for value_bytes in (100, 1024) for partition_count in (FEW, MANY))

# By kernel, value size and partitions: what to reach, and in which of a figure's units.
GOALS = {
    ("compiled", Case(100, FEW)): "15 M records/s",
    ("compiled", Case(1024, FEW)): "3 GB/s",
    ("vectorised", Case(100, FEW)): "2 M records/s",
}


class CorePath:
    """A write of its own topic, with everything between the columns and the socket."""

    def __init__(self, case: Case, rows_per_arrow_batch: int, config: ProducerConfig) -> None:
        self._arrow_batches = [
            arrow_batch(rows_per_arrow_batch, case.value_bytes, seed) for seed in range(DISTINCT_BATCHES)
        ]
        topic = TopicSnapshot(
            TOPIC, uuid.UUID(int=1), leaders=(NODE,) * case.partition_count, leader_epochs=(0,) * case.partition_count
        )
        self._snapshot = MetadataSnapshot(topics={TOPIC: topic})
        self._router = Router(topic=TOPIC, batch_bytes=config.batch_size, rng=random.Random(1))
        self._codec = codec_for("none")
        self._receipts = Acknowledgements()
        self._sequences = Sequences()
        self._accumulator = RecordAccumulator(
            lock=contextlib.nullcontext(),
            buffer_memory=config.buffer_memory,
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            max_request_size=config.max_request_size,
        )
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._in_flight: deque[list[ProducerBatch]] = deque()
        self._now_ms = 0
        self.cpu_s = 0.0
        self.record_count = 0
        self.batch_count = 0
        self.wire_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory that batches hold now."""
        pool = self._accumulator.pool
        return pool.total_bytes - pool.available_bytes

    def round(self, record_count: int) -> float:
        """Writes at least `record_count` rows; returns records per CPU second. All memory is free again afterwards."""
        self.cpu_s, self.record_count, self.batch_count, self.wire_bytes = 0.0, 0, 0, 0
        written = 0
        while written < record_count:
            for batch in self._arrow_batches:
                self._append(batch)
                written += batch.num_rows
        self._accumulator.begin_flush()
        self._send()
        self._accumulator.end_flush()
        while self._in_flight:
            self._answer()
        if self.record_count != written:
            raise AssertionError(f"{written} rows went in, {self.record_count} came out")
        return self.record_count / self.cpu_s

    def _append(self, batch: pa.RecordBatch) -> None:
        with self._clock():
            columns = RecordColumns.from_arrow(batch, now_ms=self._now_ms)
            rows = self._router.route(columns, self._router.topics_of(columns), self._snapshot.topics)
            rows.largest()
            done = self._accumulator.try_append(rows, self._receipts, self._codec, self._now_ms)
        self._send()
        while not done:
            if self._in_flight:
                self._answer()
            with self._clock():
                done = self._accumulator.try_append(rows, self._receipts, self._codec, self._now_ms)
            self._send()

    def _send(self) -> None:
        """Finishes every batch that is ready, a request after the other."""
        led = self._accumulator.ready(self._snapshot, self._now_ms).led.get(NODE, deque())
        while batches := self._accumulator.drain(led, self._sequences, self._max_in_flight, self._now_ms):
            with self._clock():
                for batch in batches:
                    if batch.state is BatchState.OPEN:
                        batch.close(self._codec)
                    batch.number(PRODUCER, 0)
            self._in_flight.append(batches)
            if len(self._in_flight) > self._max_in_flight:
                self._answer()

    def _answer(self) -> None:
        for batch in self._in_flight.popleft():
            self.record_count += batch.record_count
            self.batch_count += 1
            self.wire_bytes += batch.size_bytes
            self._accumulator.deallocate(batch)

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        started_s = time.process_time()
        yield
        self.cpu_s += time.process_time() - started_s


def arrow_batch(num_rows: int, value_bytes: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)

    def random_bytes(size: int) -> pa.Array:
        data = pa.py_buffer(rng.bytes(num_rows * size))
        return pa.Array.from_buffers(pa.binary(size), num_rows, [None, data]).cast(pa.binary())

    timestamp = pa.array(1_700_000_000_000_000 + 1_000 * np.arange(num_rows), pa.timestamp("us", "UTC"))
    return pa.record_batch({"key": random_bytes(KEY_BYTES), "value": random_bytes(value_bytes), "timestamp": timestamp})


def work(rows_per_arrow_batch: int, round_bytes: int, core: int) -> None:
    """Answers each number of a case on stdin with a line on stdout: the figure of one round of it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    config = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    paths: dict[Case, CorePath] = {}
    print(json.dumps(KERNEL.name), flush=True)
    for line in sys.stdin:
        case = CASES[int(line)]
        if case not in paths:
            paths[case] = CorePath(case, rows_per_arrow_batch, config)
        print(json.dumps(paths[case].round(round_bytes // case.value_bytes)), flush=True)


class Worker:
    """A process with one kernel."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.kernel = str(self._answer())

    def round(self, case: Case) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{CASES.index(case)}\n")
        self._process.stdin.flush()
        return float(str(self._answer()))

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with status {self._process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians over the rounds; the extremes tell how quiet the machine was."""

    kernel: str
    value_bytes: int
    partition_count: int
    records_per_s: float
    slowest_records_per_s: float
    fastest_records_per_s: float
    value_bytes_per_s: float
    ns_per_record: float
    times_the_cost_at_few: float
    goal: str


def measure(workers: Sequence[Worker], rounds: int) -> list[Figure]:
    runs: dict[tuple[str, Case], list[float]] = {(worker.kernel, case): [] for worker in workers for case in CASES}
    for number in range(rounds + 1):
        for case in CASES:
            for worker in workers:
                rate = worker.round(case)
                if number > 0:  # the first warms up
                    runs[worker.kernel, case].append(rate)
    medians = {which: statistics.median(rates) for which, rates in runs.items()}
    return [
        figure(kernel, case, rates, medians[kernel, Case(case.value_bytes, FEW)] / medians[kernel, case])
        for (kernel, case), rates in runs.items()
    ]


def figure(kernel: str, case: Case, rates: Sequence[float], times_the_cost_at_few: float) -> Figure:
    median = statistics.median(rates)
    goal = f"{MANY_TO_FEW_GOAL} x" if case.partition_count == MANY else GOALS.get((kernel, case), "")
    return Figure(
        kernel=kernel,
        value_bytes=case.value_bytes,
        partition_count=case.partition_count,
        records_per_s=median,
        slowest_records_per_s=min(rates),
        fastest_records_per_s=max(rates),
        value_bytes_per_s=median * case.value_bytes,
        ns_per_record=1e9 / median,
        times_the_cost_at_few=times_the_cost_at_few,
        goal=goal,
    )


def table(figures: Sequence[Figure]) -> str:
    head = f"{'kernel':10} {'value':>6} {'partitions':>10} {'M records/s':>12} {'(range)':>15} {'GB/s':>6} {'ns':>6}"
    lines = [f"{head} {f'x {FEW} part.':>10}  goal"]
    for each in figures:
        spread = f"({each.slowest_records_per_s / 1e6:.2f} - {each.fastest_records_per_s / 1e6:.2f})"
        lines.append(
            f"{each.kernel:10} {each.value_bytes:>6} {each.partition_count:>10,} {each.records_per_s / 1e6:>12.2f} "
            f"{spread:>15} {each.value_bytes_per_s / 1e9:>6.2f} {each.ns_per_record:>6.0f} "
            f"{each.times_the_cost_at_few:>10.2f}  {each.goal}".rstrip()
        )
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__, 9, each="each case and kernel")
    parser.add_argument("--rows", type=int, default=10_000, help="in an Arrow batch; Spark's default is 10,000")
    parser.add_argument("--round-bytes", type=int, default=200_000_000, help="of values, in each round")
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1, help="the one to run on")
    parser.add_argument("--json", type=Path, default=BUILD / "core.json", help="where the figures go")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.rows, options.round_bytes, options.core)
        return
    given = [f"--rows={options.rows}", f"--round-bytes={options.round_bytes}", f"--core={options.core}"]
    workers = [Worker(given, {}), Worker(given, {"PYKAFKA_KERNEL": "off"})]
    if workers[0].kernel == workers[1].kernel:
        workers.pop(0).stop()
    try:
        figures = measure(workers, options.rounds)
    finally:
        for worker in workers:
            worker.stop()
    print(table(figures))
    report = {"rows_per_arrow_batch": options.rows, "rounds": options.rounds, "figures": figures}
    write_report(options.json, machine() | report)


if __name__ == "__main__":
    main()
