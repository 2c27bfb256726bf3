"""Logs that no client makes, with real Spark and a real broker, beside Spark's own source.

Offsets that need more than 32 or 53 bits, records without a time, and the least of a micro-batch over markers.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import segment_files
from broker_admin import producer, read_values, send
from kafka_reads import JVM, PYKAFKA, assert_same, frame, logged, read_now, running, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.cli.verify import main as verify
from kafka_sink.errors import TimestampOutOfRange
from record_cases import Row
from record_sets import Batch
from spark_writes import failure_of, numbers, pykafka
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DEADLINE_S = 60
ROWS = 50
# What is below them is crossed in the middle of a log.
BASES = {"offsets-32-bits": 2**31 - 25, "offsets-53-bits": 2**53 - 25, "offsets-62-bits": 2**62}
NOON_MS = 1_714_564_800_000
NO_TIME_MS = -1
TIMES = "times"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka(config={"log.retention.ms": -1}) as kafka:
        for name in (*BASES, TIMES):
            kafka.create_topic(name, 1)
            for _ in range(5):
                send(producer(kafka), name, [b"%d" % number for number in range(ROWS // 5)])
        with segment_files.down(kafka):
            for name, base in BASES.items():
                segment_files.move(kafka, name, base)
            segment_files.fill(kafka, TIMES, map(bytes, without_times()))
        yield kafka


def without_times() -> list[Batch]:
    def row(time_ms: int) -> Row:
        return Row(key=None, value=b"v", timestamp_ms=time_ms, headers=())

    return [
        Batch(rows=[(n, row(NO_TIME_MS)) for n in range(5)], base_timestamp=NO_TIME_MS, max_timestamp=NO_TIME_MS),
        Batch(
            rows=[(0, row(NO_TIME_MS)), (1, row(NOON_MS)), (2, row(NO_TIME_MS))], base_offset=5, codec="zstd",
            base_timestamp=NO_TIME_MS, max_timestamp=NOON_MS,
        ),
        Batch(
            rows=[(0, row(NOON_MS + 5)), (1, row(NO_TIME_MS))], base_offset=8, codec="lz4",
            base_timestamp=NOON_MS + 5, max_timestamp=NOON_MS + 5,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("name", BASES)
def test_offsets_of_more_bits(both: SparkSession, broker: LocalKafka, tmp_path: Path, name: str) -> None:
    """Read, divided, limited, and written to, with receipts."""
    base = BASES[name]
    offsets = [row.offset for row in assert_same(both, broker, subscribe=name)]
    assert offsets == list(range(base, base + ROWS))
    bounds = {option: json.dumps({name: {"0": base + at}}) for option, at in
              (("startingOffsets", 20), ("endingOffsets", 31))}  # fmt: skip
    part = frame(both, PYKAFKA, broker, subscribe=name, minPartitions="7", maxRecordsPerPartition="3", **bounds)
    assert sorted(row.offset for row in part.collect()) == offsets[20:31]
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"}
    ours, theirs = (read_now(stream(both, each, broker, **options), tmp_path / each) for each in (PYKAFKA, JVM))
    assert ours.rows == theirs.rows
    assert logged(tmp_path / PYKAFKA) == logged(tmp_path / JVM)
    receipts = str(tmp_path / "receipts")
    given = {"deliveryGuarantee": "exactly-once", "receiptsPath": receipts}
    pykafka(numbers(both, ROWS, tasks=2).write.mode("append"), broker, name).options(**given).save()
    assert sum(read_values(broker, name).values()) == 2 * ROWS
    assert len(assert_same(both, broker, subscribe=name, **{"kafka.isolation.level": "read_committed"})) == 2 * ROWS
    assert verify(["--bootstrap-servers", broker.bootstrap_servers, "--receipts", receipts]) == 0


STARTS_AND_ENDS = [
    {},
    {"startingTimestamp": str(NOON_MS)},
    {"startingTimestamp": "0"},
    {"endingTimestamp": str(NOON_MS)},
    {"minPartitions": "4"},
]


@pytest.mark.parametrize("options", STARTS_AND_ENDS, ids=lambda options: ",".join(options) or "all")
def test_records_without_a_time(both: SparkSession, broker: LocalKafka, options: dict[str, str]) -> None:
    """-1 is Kafka's word for no time. Both sources show a millisecond before 1970."""
    found = assert_same(both, broker, subscribe=TIMES, **options)
    if not options:
        times_ms = [round(row.timestamp.timestamp() * 1_000) for row in found]
        assert times_ms == [*[NO_TIME_MS] * 6, NOON_MS, NO_TIME_MS, NOON_MS + 5, NO_TIME_MS]


def test_a_time_that_a_record_does_not_have_is_not_written(both: SparkSession, broker: LocalKafka) -> None:
    broker.create_topic("times-written", 1)
    rows = frame(both, PYKAFKA, broker, subscribe=TIMES).select("value", "timestamp")
    assert TimestampOutOfRange.__name__ in failure_of(rows, broker, "times-written")


@pytest.mark.parametrize("ends", ["commits", "aborts"])
def test_markers_and_aborted_records_count_for_the_least_of_a_micro_batch(
    both: SparkSession, broker: LocalKafka, tmp_path: Path, ends: str
) -> None:
    """Four transactions of three records and a marker: the first one is read at once, the last three together."""
    for source in (PYKAFKA, JVM):
        name = f"{ends}-{source}"
        broker.create_topic(name, 1)
        of = producer(broker, **{"transactional.id": name})
        of.init_transactions(DEADLINE_S)
        transaction(of, name, commits=True)
        options = {"subscribe": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
        frame_ = stream(both, source, broker, **options, **{"kafka.isolation.level": "read_committed"})
        with running(frame_, tmp_path / source) as read:
            wait_until(lambda read=read: len(read.rows) == 3, DEADLINE_S, "the first")  # type: ignore[misc]
            for _ in range(2):
                transaction(of, name, commits=ends == "commits")
                assert len(read.catch_up()) == 3
            transaction(of, name, commits=ends == "commits")
            wait_until(lambda place=tmp_path / source: len(logged(place)) == 2, DEADLINE_S, "the second")  # type: ignore[misc]
            assert len(read.catch_up()) == (12 if ends == "commits" else 3)
        assert [each[name]["0"] for each in logged(tmp_path / source)] == [4, 16]


def transaction(of: Producer, topic: str, *, commits: bool) -> None:
    of.begin_transaction()
    send(of, topic, [b"v"] * 3)
    if commits:
        of.commit_transaction(DEADLINE_S)
    else:
        of.abort_transaction(DEADLINE_S)
