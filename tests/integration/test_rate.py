"""How fast rows arrive, by the times that their records have in the topic; confluent-kafka reads them."""

from __future__ import annotations

import logging
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import rate_app
from broker_admin import limit
from kafka_sink.broker import LocalKafka
from kafka_sink.options.config import given_options
from kafka_sink.spark.at_least_once import AtLeastOnce
from kafka_sink.spark.writer import write_task
from read_back import read_topic
from record_digest import Record

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


@pytest.mark.parametrize(("tasks", "unit"), [(1, "rows"), (4, "bytes"), (16, "rows")])
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


@pytest.mark.long
@pytest.mark.parametrize("tasks", [1, 4, pytest.param(16, marks=pytest.mark.chaos)])
def test_an_application_of_so_many_cores(kafka: LocalKafka, topic: Callable[..., str], tasks: int) -> None:
    name = topic(tasks)
    # On two processors it takes long until the workers of all tasks have started.
    rows = ROWS_PER_S * (2 * tasks + 4)
    arguments = [kafka.bootstrap_servers, name, str(tasks), str(ROWS_PER_S), str(rows)]
    subprocess.run([sys.executable, Path(rate_app.__file__), *arguments], check=True, timeout=280)
    assert_rate(kafka, name, tasks, ROWS_PER_S)


def test_a_quota_of_the_brokers_is_obeyed_and_told(
    kafka: LocalKafka, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers allow as much as the quota has for 10 seconds before they throttle (quota.window.num, KIP-13)."""
    name = topic(1)
    limit(kafka, name, producer_byte_rate=100_000)
    sizes = {"kafka.compression.type": "none", "kafka.batch.size": "100000", "kafka.max.request.size": "100000"}
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "kafka.client.id": name}
    options = given_options({**servers, **sizes})
    rows = pa.record_batch({"value": pa.array([bytes(9_000)] * 140)})
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        receipt = write_task(AtLeastOnce(options), (), iter([rows]))
    assert sum(partition.record_count for partition in receipt.partitions) == 140
    (said,) = caplog.messages
    assert f"brokers throttled this task by a quota of its user or of client id {name!r}" in said
