"""What `badRows` costs where there are no bad rows, and where there is one in a million.

A million rows of 8-byte keys and 100-byte values, in Arrow batches as Spark makes them, through one producer to a local
broker; CPU time of the whole process, as others may use the machine, and the median of rounds in which all cases take
turns. The rows in the topics are counted after each write: what is missing is what was bad. Exit
status 1 when it is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.client import Producer
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.spark.bad_rows import ask_over, bad_row_policy

ROWS = 1_000_000
ARROW_BATCH_ROWS = 10_000
BAD_ROW = 654_321
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    bad_rows: str
    has_bad_row: bool


CASES = (
    Case("badRows=fail, clean rows", "fail", False),
    Case("badRows=deadLetter, clean rows", "deadLetter", False),
    Case("badRows=deadLetter, 1 bad row", "deadLetter", True),
)


def arrow_batches(*, has_bad_row: bool) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    for start in range(0, ROWS, ARROW_BATCH_ROWS):
        values = rng.integers(97, 123, (ARROW_BATCH_ROWS, 100), np.uint8)
        times = np.full(ARROW_BATCH_ROWS, 1_700_000_000_000_000)
        if has_bad_row and start <= BAD_ROW < start + ARROW_BATCH_ROWS:
            times[BAD_ROW - start] = -1
        yield pa.record_batch(
            {
                "key": fixed(np.arange(start, start + ARROW_BATCH_ROWS), 8),
                "value": fixed(values, 100),
                "timestamp": pa.array(times).view(pa.timestamp("us", "UTC")),
            }
        )


def fixed(numbers: npt.NDArray[np.integer], size_bytes: int) -> pa.Array:
    """An array of binary, of each row's bytes."""
    buffers = [None, pa.py_buffer(numbers.tobytes())]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size_bytes), len(numbers), buffers).cast(pa.binary())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    rows = {has_bad_row: list(arrow_batches(has_bad_row=has_bad_row)) for has_bad_row in (False, True)}
    cpu_s: dict[Case, list[float]] = {case: [] for case in CASES}
    with LocalKafka() as kafka:
        for number in range(rounds + 1):
            for place, case in enumerate(CASES):
                topic, letters = f"rows-{number}-{place}", f"letters-{number}-{place}"
                kafka.create_topic(topic, PARTITIONS)
                kafka.create_topic(letters, 1)
                taken_s = write(kafka, case, topic, letters, rows[case.has_bad_row])
                bad = int(case.has_bad_row)
                found = count_in(kafka, topic, PARTITIONS), count_in(kafka, letters, 1)
                if found != (ROWS - bad, bad):
                    print(f"{case.name}: {found[0]} rows and {found[1]} dead letters")
                    return 1
                if number:  # the first one makes what all need
                    cpu_s[case].append(taken_s)
    for case, taken in cpu_s.items():
        spread = f"{min(taken):.3f} to {max(taken):.3f}"
        print(f"{case.name:32} {statistics.median(taken):.3f} s of CPU ({spread}, {rounds} rounds)")
    print(f"{ROWS - 1} rows and 1 dead letter are in the topics of each write with a bad row")
    return 0


def write(kafka: LocalKafka, case: Case, topic: str, letters: str, batches: Sequence[pa.RecordBatch]) -> float:
    to_letters = {"deadLetterTopic": letters} if case.bad_rows == "deadLetter" else {}
    config = sink_config(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "badRows": case.bad_rows, **to_letters}
    )
    producer = Producer(config.producer)
    try:
        producer.admin.transaction_version()  # connected, as a worker's producer is after its first task
        return cpu_seconds(lambda: send(producer, config, topic, batches))
    finally:
        producer.close()


def send(producer: Producer, config: SinkConfig, topic: str, batches: Sequence[pa.RecordBatch]) -> None:
    policy = bad_row_policy(config, {}, ask_over(producer))
    to = producer.begin(topic=topic, partitioner="murmur2", bad_rows=policy)
    for batch in batches:
        to.append(batch)
    to.finish()


def cpu_seconds(work: Callable[[], None]) -> float:
    started_s = time.process_time()
    work()
    return time.process_time() - started_s


def count_in(kafka: LocalKafka, topic: str, partitions: int) -> int:
    """A topic that nobody compacts has as many rows as offsets."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "count"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in range(partitions)]
    finally:
        consumer.close()
    return sum(ends)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
