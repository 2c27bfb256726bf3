"""What `badRows` costs where there are no bad rows, and where there is one in a million: `make bench`, its third part.

A million rows of 8-byte keys and 100-byte values, in Arrow batches as Spark makes them, through one producer to a local
broker; CPU time of the whole process, as others may use the machine, and the median of rounds in which all cases take
turns. The rows in the topics are counted after each write: what is missing is what was bad.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench_core import fixed
from frame import Bench, arguments, bench, in_turns
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.limits import bad_row_policy

ROWS, ARROW_BATCH_ROWS, BAD_ROW, PARTITIONS = 1_000_000, 10_000, 654_321, 4


@dataclass(frozen=True, slots=True)
class Case:
    bad_rows: str
    bad: int

    def __str__(self) -> str:
        return f"badRows={self.bad_rows}, {'1 bad row' if self.bad else 'clean rows'}"


CASES = (Case("fail", 0), Case("deadLetter", 0), Case("deadLetter", 1))


def arrow_batches(bad: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    for start in range(0, ROWS, ARROW_BATCH_ROWS):
        values = rng.integers(97, 123, (ARROW_BATCH_ROWS, 100), np.uint8)
        times = np.full(ARROW_BATCH_ROWS, 1_700_000_000_000_000)
        if bad and start <= BAD_ROW < start + ARROW_BATCH_ROWS:
            times[BAD_ROW - start] = -1
        keys = fixed(np.arange(start, start + ARROW_BATCH_ROWS).tobytes(), 8)
        timestamp = pa.array(times).view(pa.timestamp("us", "UTC"))
        yield pa.record_batch({"key": keys, "value": fixed(values.tobytes(), 100), "timestamp": timestamp})


def measure(on: Bench, case: Case, batches: Sequence[pa.RecordBatch]) -> float:
    """Return the seconds of CPU of one write."""
    (topic,), (letters,) = on.topics.create(PARTITIONS), on.topics.create(1)
    options = {"kafka.bootstrap.servers": on.kafka.bootstrap_servers, "topic": topic, "badRows": case.bad_rows}
    config = sink_config(options | ({"deadLetterTopic": letters} if case.bad_rows == "deadLetter" else {}))
    producer = Producer(config.producer)
    try:
        producer.admin.transaction_version()  # connected, as a worker's producer is after its first task
        started_s = time.process_time()
        policy = bad_row_policy(config, {}, producer)
        to = Write(producer, topic=topic, partitioner="murmur2", bad_rows=policy)
        for batch in batches:
            to.append(batch)
        to.finish()
        took_s = time.process_time() - started_s
    finally:
        producer.close()
    found = on.topics.row_count([topic], PARTITIONS), on.topics.row_count([letters], 1)
    if found != (ROWS - case.bad, case.bad):
        raise SystemExit(f"{case}: {found[0]} rows and {found[1]} dead letters")
    on.topics.delete([topic, letters])
    return took_s


def main() -> None:
    options = arguments(__doc__, 5, each="all cases").parse_args()
    rows = {bad: list(arrow_batches(bad)) for bad in (0, 1)}
    with bench() as on:
        cpu_s = in_turns(CASES, options.rounds, lambda case: measure(on, case, rows[case.bad]))
    for case, taken in cpu_s.items():
        spread = f"{min(taken):.3f} to {max(taken):.3f}"
        print(f"{case!s:32} {statistics.median(taken):.3f} s of CPU ({spread}, {options.rounds} rounds)")


if __name__ == "__main__":
    main()
