"""How fast rows arrive, by the times that their records have in the topic, where the user limits them; and brokers'
quotas: what takes many delivery timeouts ends well, once, and says why it takes so long."""

import logging
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from broker_admin import limit, open_transactions, producer, read_values, send
from kafka_reads import reader_of
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.producer import throttling
from kafka_sink.options.config import given_options
from kafka_sink.spark.writer import AtLeastOnce, write_task
from read_back import read_topic
from record_digest import Record
from spark_writes import Here, pykafka

DEADLINE_S = 60
ROWS_PER_S = 400
SECONDS = 3


def one(_: Record) -> int:
    return 1


def value_bytes(record: Record) -> int:
    return len(record.value or b"")


def write(kafka: LocalKafka, topic: str, batch: pa.RecordBatch, **options: str) -> int:
    """By `write_task`, in this process. Return the number of records in its receipt."""
    given = given_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **options})
    return sum(each.record_count for each in write_task(AtLeastOnce(given), (), iter([batch])).partitions)


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
    """In threads, each with a producer of its own, as Spark's workers have."""
    name, rng = topic(tasks), random.Random(tasks)
    sizes = [rng.randrange(200) for _ in range(ROWS_PER_S)]
    asked = {"maxRowsPerSecond": str(ROWS_PER_S)} if unit == "rows" else {"maxBytesPerSecond": str(sum(sizes))}

    def write_one(task: int) -> None:
        mine = sizes[task::tasks] * SECONDS
        partition = pa.array([task] * len(mine), pa.int32())
        batch = pa.record_batch({"value": [bytes(n) for n in mine], "partition": partition})
        write(kafka, name, batch, rateTasks=str(tasks), **asked)

    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(write_one, range(tasks)))
    rate = (ROWS_PER_S, one) if unit == "rows" else (sum(sizes), value_bytes)
    assert_rate(kafka, name, tasks, *rate)


def test_a_write_by_spark_has_the_rate(here: Here) -> None:
    name, tasks = here.topic(2), 2
    rows = here.spark.range(0, 8 * ROWS_PER_S, 1, tasks)
    frame = rows.selectExpr("cast(id as string) as value", "spark_partition_id() as partition")
    limited = {"maxRowsPerSecond": str(ROWS_PER_S), "rateTasks": str(tasks)}
    pykafka(frame.write.mode("append"), here.kafka, name, linger_ms="0").options(**limited).save()
    assert_rate(here.kafka, name, tasks, ROWS_PER_S)


# --- quotas of brokers ------------------------------------------------------------------------------------------------

# Brokers let ten seconds' worth pass before they throttle (quota.window.num).
BYTES_PER_S = 50_000
FREE_BYTES = 10 * BYTES_PER_S
DELIVERY_TIMEOUT_S = 3
HURRIED = {
    "delivery.timeout.ms": f"{DELIVERY_TIMEOUT_S}000", "request.timeout.ms": "2000", "max.block.ms": "2000",
    "linger.ms": "100", "batch.size": "131072", "max.request.size": "131072", "compression.type": "none",
}  # fmt: skip


def options(topic: str, **more: str) -> dict[str, str]:
    """The topic is the client id of those who write to it and read it."""
    return {"kafka.client.id": topic, **{f"kafka.{name}": value for name, value in HURRIED.items()}, **more}


def values_of(seconds: int, value_bytes: int = 1_000) -> list[bytes]:
    """Values of one task, which the quota makes last so long."""
    count = (FREE_BYTES + seconds * BYTES_PER_S) // value_bytes
    return [b"%0*d" % (value_bytes, number) for number in range(count)]


@pytest.mark.long
def test_a_write_of_many_delivery_timeouts_ends_well(
    kafka: LocalKafka, topic: Callable[..., str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "FIRST_REPORT_MS", 1_000)
    monkeypatch.setattr(throttling, "REPORT_EVERY_MS", 4_000)
    name, values = topic(2), values_of(12)
    limit(kafka, name, producer_byte_rate=BYTES_PER_S)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        assert write(kafka, name, pa.record_batch({"value": values}), **options(name)) == len(values)
    assert time.monotonic() - began > 2 * DELIVERY_TIMEOUT_S
    assert read_values(kafka, name) == Counter(values)
    on_its_way = [line for line in caplog.messages if line.startswith("brokers throttle this task")]
    assert len(on_its_way) >= 2
    assert f"client id {name!r}" in on_its_way[0]
    ended = f"brokers throttled this task by a quota of its user or of client id {name!r}"
    assert any(ended in line for line in caplog.messages)


@pytest.mark.long
@pytest.mark.parametrize(("lasts_s", "transaction_ms"), [(8, "60000"), (60, "10000")], ids=["well", "in an error"])
def test_exactly_once_ends_before_brokers_abort_the_transaction(here: Here, lasts_s: int, transaction_ms: str) -> None:
    name, values = here.topic(2), values_of(lasts_s)
    limit(here.kafka, name, producer_byte_rate=BYTES_PER_S)
    frame = here.spark.createDataFrame([(value,) for value in values], "value BINARY").coalesce(1)
    given = options(name, deliveryGuarantee="exactly-once", **{"kafka.transaction.timeout.ms": transaction_ms})
    writer = pykafka(frame.write.mode("append"), here.kafka, name).options(**given)
    began = time.monotonic()
    if transaction_ms == "60000":
        writer.save()
        assert time.monotonic() - began > 2 * DELIVERY_TIMEOUT_S
        assert read_values(here.kafka, name) == read_values(here.kafka, name, "read_uncommitted") == Counter(values)
        assert open_transactions(here.kafka, name) == []
    else:
        with pytest.raises(PySparkException, match="QuotaOutlastsTransaction") as failure:
            writer.save()
        assert time.monotonic() - began < lasts_s
        assert f"client id '{name}'" in str(failure.value)
        assert "of its kafka.transaction.timeout.ms 10000 are" in str(failure.value)
        assert read_values(here.kafka, name) == Counter()


@pytest.mark.long
def test_a_quota_makes_a_read_slow_and_loses_nothing(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """A throttling broker answers without partitions. The time does not count for kafkaConsumer.pollTimeoutMs."""
    name, seconds = topic(1), 4
    limit(kafka, name, consumer_byte_rate=BYTES_PER_S)
    values = values_of(seconds, 10_000)
    send(producer(kafka, **{"batch.num.messages": 2}), name, values)
    small = {"kafka.client.id": name, "kafka.max.partition.fetch.bytes": "65536"}
    reader = reader_of(kafka, "value", subscribe=name, **small, **{"kafkaConsumer.pollTimeoutMs": "3000"})
    began = time.monotonic()
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values
    assert time.monotonic() - began > seconds / 2
