"""How fast rows arrive, by the times that their records have in the topic; confluent-kafka reads them."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from here import Here
from kafka_sink.broker import LocalKafka
from kafka_sink.options.config import given_options
from kafka_sink.spark.guarantee import AtLeastOnce
from kafka_sink.spark.writer import write_task
from read_back import read_topic
from record_digest import Record
from spark_writes import pykafka

DEADLINE_S = 60
ROWS_PER_S = 400
SECONDS = 3


def one(_: Record) -> int:
    return 1


def value_bytes(record: Record) -> int:
    return len(record.value or b"")


def assert_rate(kafka: LocalKafka, topic: str, tasks: int, asked: float, weight: Callable[[Record], int] = one) -> None:
    """Check the rate in each second in which all tasks wrote, task n to partition n. The median second must have the
    rate: seconds in which the machine paused have less. No second may exceed the rate by more than a burst."""
    by_task: defaultdict[int, set[int]] = defaultdict(set)
    written: list[tuple[int, int]] = []
    for partition, _, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S):
        by_task[partition].add(record.timestamp_ms)
        written.append((record.timestamp_ms, weight(record)))
    assert len(by_task) == tasks
    # Its first rows have their time before the task knows the topic, so it begins with the next ones.
    begin_ms = max(sorted(times)[1] for times in by_task.values())
    end_ms = min(max(times) for times in by_task.values())
    seconds = [
        sum(count for at_ms, count in written if start_ms <= at_ms < start_ms + 1000)
        for start_ms in range(begin_ms, end_ms - 1000, 50)
    ]
    assert len(seconds) > 10
    assert 0.9 * asked <= statistics.median(seconds) <= 1.1 * asked
    assert max(seconds) <= 1.3 * asked


@pytest.mark.parametrize(
    ("tasks", "unit"),
    [(4, "bytes"), pytest.param(1, "rows", marks=pytest.mark.long), pytest.param(16, "rows", marks=pytest.mark.long)],
)
def test_tasks_that_run_at_once_have_the_rate_together(
    kafka: LocalKafka, topic: Callable[..., str], tasks: int, unit: str
) -> None:
    """`write_task` in threads, each with a producer of its own, as Spark's workers have."""
    name = topic(tasks)
    rng = random.Random(tasks)
    sizes = [rng.randrange(200) for _ in range(ROWS_PER_S)]
    asked = {"maxRowsPerSecond": str(ROWS_PER_S)} if unit == "rows" else {"maxBytesPerSecond": str(sum(sizes))}
    options = given_options(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "rateTasks": str(tasks), **asked}
    )

    def write(task: int) -> None:
        mine = sizes[task::tasks] * SECONDS
        partition = pa.array([task] * len(mine), pa.int32())
        batch = pa.record_batch({"value": [bytes(n) for n in mine], "partition": partition})
        write_task(AtLeastOnce(options), (), iter([batch]))

    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(write, range(tasks)))
    if unit == "rows":
        assert_rate(kafka, name, tasks, ROWS_PER_S)
    else:
        assert_rate(kafka, name, tasks, sum(sizes), value_bytes)


def test_a_write_by_spark_has_the_rate(here: Here) -> None:
    name, tasks = here.topic(2), 2
    rows = here.spark.range(0, 8 * ROWS_PER_S, 1, tasks)
    frame = rows.selectExpr("cast(id as string) as value", "spark_partition_id() as partition")
    limited = {"maxRowsPerSecond": str(ROWS_PER_S), "rateTasks": str(tasks)}
    pykafka(frame.write.mode("append"), here.kafka, name, linger_ms="0").options(**limited).save()
    assert_rate(here.kafka, name, tasks, ROWS_PER_S)
