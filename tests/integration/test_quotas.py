"""Quotas of real brokers: a write that takes many delivery timeouts ends well, once, and says why it takes so long."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker_admin import limit
from committed_rows import open_transactions, read_values
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.producer import throttling
from kafka_sink.options.config import given_options
from kafka_sink.spark.guarantee import AtLeastOnce
from kafka_sink.spark.writer import write_task
from spark_writes import pykafka

pytestmark = pytest.mark.long

# Brokers let ten seconds' worth pass before they throttle (quota.window.num).
BYTES_PER_S = 50_000
FREE_BYTES = 10 * BYTES_PER_S
VALUE_BYTES = 1_000
DELIVERY_TIMEOUT_MS = 3_000
ROWS_LAST_S = 60
HURRIED = {
    "delivery_timeout_ms": str(DELIVERY_TIMEOUT_MS),
    "request_timeout_ms": "2000",
    "max_block_ms": "2000",
    "linger_ms": "100",
    "batch_size": "131072",
    "max_request_size": "131072",
    "compression_type": "none",
}


@pytest.fixture
def limited(kafka: LocalKafka, topic: Callable[..., str]) -> str:
    """A topic, which is the client id of those who write to it."""
    name = topic(2)
    limit(kafka, name, producer_byte_rate=BYTES_PER_S)
    return name


def test_a_write_of_many_delivery_timeouts_ends_well(
    kafka: LocalKafka, limited: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "FIRST_TOLD_MS", 1_000)
    monkeypatch.setattr(throttling, "TOLD_EVERY_MS", 4_000)
    seconds = 12
    count = (FREE_BYTES + seconds * BYTES_PER_S) // VALUE_BYTES
    values = [b"%08d" % number + bytes(VALUE_BYTES - 8) for number in range(count)]
    hurried = {f"kafka.{name.replace('_', '.')}": value for name, value in HURRIED.items()}
    options = given_options(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": limited, "kafka.client.id": limited, **hurried}
    )
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        receipt = write_task(AtLeastOnce(options), (), iter([pa.record_batch({"value": values})]))
    assert time.monotonic() - began > 2 * DELIVERY_TIMEOUT_MS / 1_000
    assert sum(partition.record_count for partition in receipt.partitions) == count
    assert read_values(kafka, limited) == Counter(values)
    on_its_way = [line for line in caplog.messages if line.startswith("brokers throttle this task")]
    assert len(on_its_way) >= 2
    assert f"client id {limited!r}" in on_its_way[0]
    ended = f"brokers throttled this task by a quota of its user or of client id {limited!r}"
    assert any(ended in line for line in caplog.messages)


def exactly_once(transaction_timeout_ms: int, client_id: str) -> dict[str, str]:
    return {"transaction_timeout_ms": str(transaction_timeout_ms), "client_id": client_id, **HURRIED}


def frame_of(spark: SparkSession, seconds: int) -> DataFrame:
    """One task's rows, which the quota makes last so long."""
    count = (FREE_BYTES + seconds * BYTES_PER_S) // VALUE_BYTES
    return spark.range(0, count, 1, 1).selectExpr(f"CAST(lpad(id, {VALUE_BYTES}, '0') AS BINARY) AS value")


@pytest.mark.long
def test_exactly_once_ends_well(spark: SparkSession, kafka: LocalKafka, limited: str) -> None:
    frame = frame_of(spark, 8).cache()
    writer = frame.write.mode("append").option("deliveryGuarantee", "exactly-once")
    began = time.monotonic()
    pykafka(writer, kafka, limited, **exactly_once(60_000, limited)).save()
    assert time.monotonic() - began > 2 * DELIVERY_TIMEOUT_MS / 1_000
    expected = Counter(bytes(row.value) for row in frame.collect())
    for isolation in ("read_committed", "read_uncommitted"):
        assert read_values(kafka, limited, isolation) == expected
    assert open_transactions(kafka, limited) == []


def test_a_transaction_that_the_quota_outlasts_fails_before_brokers_abort_it(
    spark: SparkSession, kafka: LocalKafka, limited: str
) -> None:
    writer = frame_of(spark, ROWS_LAST_S).write.mode("append").option("deliveryGuarantee", "exactly-once")
    began = time.monotonic()
    with pytest.raises(PySparkException, match="QuotaOutlastsTransaction") as failure:
        pykafka(writer, kafka, limited, **exactly_once(10_000, limited)).save()
    assert time.monotonic() - began < ROWS_LAST_S
    assert f"client id '{limited}'" in str(failure.value)
    assert "of its kafka.transaction.timeout.ms 10000 are" in str(failure.value)
    assert read_values(kafka, limited) == Counter()
