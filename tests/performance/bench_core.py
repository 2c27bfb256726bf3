"""`make bench-core`: Arrow columns to routed, encoded, CRC'd record batches on one core, without Spark and broker.

What runs is what a write runs: RecordColumns, Router, RoutedRows, RecordAccumulator.try_append with the default pool
and batch size, ProducerBatch.close and number. Arrow batches have the 10,000 rows that Spark sends, a random key of 8
bytes and a timestamp. Batches leave the accumulator as a Sender takes them out, as soon as they are ready, and their
buffers return as from a broker that is five requests behind. Not in the figures: making the rows, and that taking out
and giving back, which another thread does. Time is CPU time of a worker, so that other processes disturb less. Each
kernel has a worker, since it is chosen at import; both run on the same core, one at a time.
"""

import contextlib
import os
import random
import statistics
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frame import Application, arguments, in_turns, markdown, write_report
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import MetadataSnapshot, TopicSnapshot
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.producer_batch import BatchState, ProducerBatch, ProducerIdAndEpoch
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


@dataclass(frozen=True, slots=True)
class Case:
    value_bytes: int
    partition_count: int


CASES = tuple(Case(value_bytes, partition_count) for value_bytes in (100, 1024) for partition_count in (FEW, MANY))

# By kernel and case: what to reach, and in which of a figure's units.
GOALS = {
    ("compiled", Case(100, FEW)): "15 M records/s",
    ("compiled", Case(1024, FEW)): "3 GB/s",
    ("vectorised", Case(100, FEW)): "2 M records/s",
}


class CorePath:
    """A write of its own topic, with everything between the columns and the socket."""

    def __init__(self, case: Case, rows_per_arrow_batch: int, config: ProducerConfig) -> None:
        seeds, count = range(DISTINCT_BATCHES), case.partition_count
        self._arrow_batches = [arrow_batch(rows_per_arrow_batch, case.value_bytes, seed) for seed in seeds]
        topic = TopicSnapshot(TOPIC, uuid.UUID(int=1), leaders=(NODE,) * count, leader_epochs=(0,) * count)
        self._snapshot = MetadataSnapshot(topics={TOPIC: topic})
        self._router = Router(topic=TOPIC, batch_bytes=config.batch_size, rng=random.Random(1))
        self._codec = codec_for("none")
        self._receipts = Acknowledgements()
        self._sequences = Sequences()
        self._accumulator = RecordAccumulator(
            lock=contextlib.nullcontext(), buffer_memory=config.buffer_memory, batch_size=config.batch_size,
            linger_ms=config.linger_ms, max_request_size=config.max_request_size,
        )  # fmt: skip
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
        while batches := self._accumulator.drain(NODE, led, self._sequences, self._max_in_flight, self._now_ms):
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


def fixed(data: bytes, size_bytes: int) -> pa.Array:
    """An array of binary, of that many bytes each."""
    buffers = [None, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(size_bytes), len(data) // size_bytes, buffers).cast(pa.binary())


def arrow_batch(num_rows: int, value_bytes: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    key, value = (fixed(rng.bytes(num_rows * size), size) for size in (KEY_BYTES, value_bytes))
    timestamp = pa.array(1_700_000_000_000_000 + 1_000 * np.arange(num_rows), pa.timestamp("us", "UTC"))
    return pa.record_batch({"key": key, "value": value, "timestamp": timestamp})


def run_on(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


class Worker:
    """A process with one kernel."""

    def __init__(self, rows_per_arrow_batch: int, round_bytes: int, core: int) -> None:
        run_on(core)
        self._rows, self._round_bytes = rows_per_arrow_batch, round_bytes
        self._config = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
        self._paths: dict[Case, CorePath] = {}

    def kernel(self) -> str:
        return KERNEL.name

    def round(self, case: Case) -> float:
        if case not in self._paths:
            self._paths[case] = CorePath(case, self._rows, self._config)
        return self._paths[case].round(self._round_bytes // case.value_bytes)


def table(rates: dict[tuple[str, Case], list[float]]) -> str:
    """Medians over the rounds; the extremes tell how quiet the machine was."""
    medians = {which: statistics.median(of) for which, of in rates.items()}
    rows = []
    for (kernel, case), of in rates.items():
        median = medians[kernel, case]
        goal = "1.5 x" if case.partition_count == MANY else GOALS.get((kernel, case), "")
        rows.append(
            f"{kernel} | {case.value_bytes} | {case.partition_count:,} | {median / 1e6:.2f} | "
            f"{min(of) / 1e6:.2f} - {max(of) / 1e6:.2f} | {median * case.value_bytes / 1e9:.2f} | {1e9 / median:.0f} | "
            f"{medians[kernel, Case(case.value_bytes, FEW)] / median:.2f} | {goal}"
        )
    return markdown(f"kernel | value | partitions | M records/s | (range) | GB/s | ns | x {FEW} part. | goal", rows)


def figures(rates: dict[tuple[str, Case], list[float]]) -> dict[str, float]:
    """Records per CPU second, by the case, for compare.py."""
    return {
        f"{kernel}, {case.value_bytes} bytes, {case.partition_count} partitions": statistics.median(of)
        for (kernel, case), of in rates.items()
    }


def main() -> None:
    parser = arguments(__doc__, 9, each="each case and kernel", output="core.json")
    parser.add_argument("--rows", type=int, default=10_000, help="in an Arrow batch; Spark's default is 10,000")
    parser.add_argument("--round-bytes", type=int, default=200_000_000, help="of values, in each round")
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1, help="the one to run on")
    options = parser.parse_args()
    given = options.rows, options.round_bytes, options.core
    workers = {}
    for name, environment in (("fallback", {"PYKAFKA_KERNEL": "off"}), ("kernel", {})):
        worker = Application(options.output / f"core-{name}.log", Worker, *given, **environment)
        workers[worker.ask("kernel")] = worker
    cases = [(kernel, case) for case in CASES for kernel in workers]
    rates = in_turns(cases, options.rounds, lambda each: workers[each[0]].ask("round", each[1]))
    found = table(rates)
    print(found)
    report = {"rows_per_arrow_batch": options.rows, "rounds": options.rounds, "table": found.splitlines()}
    write_report(options.output / "core.json", report | {"figures": figures(rates)})


if __name__ == "__main__":
    main()
