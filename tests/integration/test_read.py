"""Reads of a batch, with real Spark and a real broker, compared row by row with Spark's own source.

Records are written by librdkafka. Where Spark's source has a bug, confluent-kafka says what is there.
"""

import datetime
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

from broker_admin import RackedKafka, delete_records, producer, read_values, send
from kafka_reads import (
    COMPACTED,
    JVM,
    NOON_MS,
    PYKAFKA,
    assert_same,
    by_partition,
    frame,
    new_topic,
    offsets_read,
    options_of,
    reader_of,
    written,
)
from kafka_sink import errors
from kafka_sink.__main__ import main
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from spark_writes import error_of, with_conf
from waiting import wait_until

DEADLINE_S = 60
MIB = 1024 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    settings = {"log.cleaner.backoff.ms": 100, "message.max.bytes": 12 * MIB, "log.retention.ms": -1}
    with LocalKafka(config={**settings, "log.message.timestamp.after.max.ms": 2**63 - 1}) as kafka:
        yield kafka


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


# --- the same rows as Spark's source ----------------------------------------------------------------------------------


def test_records_of_every_shape(both: SparkSession, broker: LocalKafka) -> None:
    name, of = new_topic(broker, 4), producer(broker)
    headers = (None, [], [("a", b"1")], [("a", None), ("a", b""), ("\N{SNOWMAN}", b"\0\xff")])
    keys, values = (None, b"", b"k" * 300), (None, b"", b"\0\xff", "\N{SNOWMAN}".encode() * 100)
    times_ms = (1, 999, 1_000, NOON_MS, 253_402_300_799_999)
    # The fourth partition stays empty.
    for number, shape in enumerate(itertools.product(keys, values, headers, times_ms)):
        key, value, header, time_ms = shape
        of.produce(name, value, key, partition=number % 3, timestamp=time_ms, headers=header)
    assert of.flush(DEADLINE_S) == 0
    count = len(keys) * len(values) * len(headers) * len(times_ms)
    assert len(assert_same(both, broker, subscribe=name)) == count
    found = assert_same(both, broker, subscribe=name, includeHeaders="true")
    assert sum(row.headers is None for row in found) == count // 2
    assert {row.partition for row in found} == {0, 1, 2}


def test_every_codec(both: SparkSession, broker: LocalKafka) -> None:
    name = new_topic(broker, len(CODECS))
    for partition, codec in enumerate(CODECS):
        of = producer(broker, **{"compression.type": codec})
        send(of, name, [b"%d " % number * 40 for number in range(2_000)], partition=partition)
    assert len(assert_same(both, broker, subscribe=name)) == 2_000 * len(CODECS)


def test_log_append_time(both: SparkSession, broker: LocalKafka) -> None:
    name = new_topic(broker, **{"message.timestamp.type": "LogAppendTime"})
    send(producer(broker), name, numbers(0, 10), timestamp=1)
    assert {row.timestampType for row in assert_same(both, broker, subscribe=name)} == {1}


def test_transactions_that_were_committed_aborted_and_are_open(both: SparkSession, broker: LocalKafka) -> None:
    name = new_topic(broker, 2)
    of = {id_: producer(broker, **{"transactional.id": f"{name}-{id_}"}) for id_ in "abc"}
    for each in of.values():
        each.init_transactions(DEADLINE_S)
    for round_, (id_, ends) in enumerate([("a", "commit"), ("b", "abort"), ("a", "abort"), ("b", "commit")]):
        of[id_].begin_transaction()
        for partition in range(2):
            send(of[id_], name, [b"%s%d" % (ends.encode(), round_)] * 50, partition=partition)
        getattr(of[id_], f"{ends}_transaction")(DEADLINE_S)
    send(producer(broker), name, [b"plain"] * 5)
    # It hides what is behind it from readers of committed records, in one partition.
    of["c"].begin_transaction()
    send(of["c"], name, [b"open"] * 10)
    send(producer(broker), name, [b"behind"] * 5)
    try:
        committed = assert_same(both, broker, subscribe=name, **{"kafka.isolation.level": "read_committed"})
        assert rows(committed) == {"commit0": 100, "commit3": 100, "plain": 5}
        uncommitted = assert_same(both, broker, subscribe=name)
        assert len(uncommitted) == 4 * 100 + 20
    finally:
        of["c"].abort_transaction(DEADLINE_S)
    committed = assert_same(both, broker, subscribe=name, **{"kafka.isolation.level": "read_committed"})
    assert rows(committed) == {"commit0": 100, "commit3": 100, "plain": 5, "behind": 5}


def rows(found: list[Row]) -> Counter[str]:
    """How often each value is there."""
    return Counter(bytes(row.value).decode() for row in found)


def test_a_compacted_log_with_gaps(both: SparkSession, broker: LocalKafka) -> None:
    name, of = new_topic(broker, **COMPACTED), producer(broker)
    for number in range(300):
        of.produce(name, b"%d" % number, b"%d" % (number % 7), partition=0)
    for key in (b"x", b"x", b"y"):
        send(of, name, [bytes(600_000)], key=key)
    wait_until(lambda: sum(read_values(broker, name).values()) < 20, DEADLINE_S, "a compacted log")
    found = assert_same(both, broker, subscribe=name)
    assert 7 <= len(found) < 20
    assert assert_same(both, broker, subscribe=name, minPartitions="5", startingOffsets=by_partition(name, 3)) == found


def test_records_that_are_larger_than_a_fetch(both: SparkSession, broker: LocalKafka) -> None:
    name = new_topic(broker, **{"max.message.bytes": 12 * MIB})
    of = producer(broker, **{"message.max.bytes": 12 * MIB})
    send(of, name, [b"small", bytes(10 * MIB), b"after", bytes(3 * MIB), b"last"])
    found = assert_same(both, broker, subscribe=name, **{"kafka.max.partition.fetch.bytes": "65536"})
    assert [len(row.value) for row in found] == [5, 10 * MIB, 5, 3 * MIB, 4]


def test_bounds(both: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 100, 100, 100)
    times = by_partition(name, NOON_MS + 10, NOON_MS + 20, NOON_MS + 1_000)
    for options, count in (
        ({"startingOffsets": by_partition(name, 10, -2, 99), "endingOffsets": by_partition(name, 20, 5, -1)}, 16),
        ({"startingOffsets": by_partition(name, 10, 10, 10), "endingOffsets": by_partition(name, 10, 11, 12)}, 3),
        ({"startingTimestamp": str(NOON_MS + 50), "endingTimestamp": str(NOON_MS + 60)}, 30),
        ({"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}, 170),
        ({"endingOffsetsByTimestamp": times, "startingTimestamp": str(NOON_MS)}, 130),
    ):
        assert len(assert_same(both, broker, subscribe=name, **options)) == count, options


@pytest.mark.long
def test_divisions(both: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 100, 100, 100)

    def tasks(source: str, **options: str) -> list[tuple[int, int]]:
        """The partition and the number of rows of each task, in order."""
        read = frame(both, source, broker, subscribe=name, **options).select("partition", F.spark_partition_id())
        return sorted((partition, count) for (partition, _), count in Counter(read.collect()).items())

    for options in ({"minPartitions": "10"}, {"minPartitions": "7", "endingOffsets": by_partition(name, 100, 7, 1)}):
        assert tasks(PYKAFKA, **options) == tasks(JVM, **options), options
    # Spark's source ignores this option in a batch that has no larger minPartitions.
    assert tasks(JVM, maxRecordsPerPartition="40") == [(0, 100), (1, 100), (2, 100)]
    assert tasks(PYKAFKA, maxRecordsPerPartition="40") == sorted([(p, n) for p in range(3) for n in (33, 33, 34)])


def test_few_tasks_read_many_partitions(both: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, *[50] * 20)
    found = assert_same(both, broker, subscribe=name, maxPartitions="3", includeHeaders="true")
    assert len(found) == 1_000
    read = frame(both, PYKAFKA, broker, subscribe=name, maxPartitions="3", minPartitions="3")
    tasks = Counter(row[0] for row in read.select(F.spark_partition_id()).collect())
    assert sorted(tasks.values()) == [300, 350, 350]


def test_topics_by_name_by_pattern_and_by_partition(both: SparkSession, broker: LocalKafka) -> None:
    first, second = (written(broker, 5, 5) for _ in range(2))
    for options, count in (
        ({"subscribe": f" {first} , {second}"}, 20),
        ({"subscribePattern": f"^({first}|{second})$"}, 20),
        # Found anywhere in the name.
        ({"subscribePattern": f"{first[2:]}$"}, 10),
        ({"subscribePattern": "^nobody-made-this"}, 0),
        ({"assign": json.dumps({first: [1], second: [0, 1]})}, 15),
    ):
        assert len(assert_same(both, broker, **options)) == count, options


# --- what Spark's source cannot ---------------------------------------------------------------------------------------


def test_a_schema_asks_for_columns_in_any_order(spark: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 5)
    read = spark.read.format("pykafka").options(**options_of(broker, {"subscribe": name}))
    asked = read.schema("offset BIGINT, value BINARY")
    assert sorted(tuple(row) for row in asked.load().collect()) == list(enumerate(numbers(0, 5)))
    # With headers, which no option has to ask for.
    headers = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    assert read.schema(headers).load().count() == 5
    assert isinstance(error_of(read.schema("value STRING").load().collect), errors.ColumnTypeMismatch)


FILTERS: dict[str, Callable[[int], bool]] = {
    "offset >= 40 AND offset < 45": lambda n: 40 <= n < 45,
    "offset IN (3, 97)": lambda n: n in (3, 97),
    "offset <=> 7": lambda n: n == 7,
    "offset > 95 OR offset < 2": lambda n: n > 95 or n < 2,
    "NOT offset < 90": lambda n: n >= 90,
    "offset > 9223372036854775806": lambda n: False,
    "timestamp >= timestamp_millis(1714564800090)": lambda n: n >= 90,
    "timestamp > timestamp_millis(1714564800090)": lambda n: n > 90,
    "timestamp = timestamp_millis(1714564800090)": lambda n: n == 90,
    "timestamp < timestamp_millis(1714564800005)": lambda n: n < 5,
    "timestamp > TIMESTAMP '1960-01-01' AND offset < 3": lambda n: n < 3,
    "topic = 'another'": lambda n: False,
    "value = CAST('12' AS BINARY)": lambda n: n == 12,
    "key IS NULL AND offset = 1": lambda n: n == 1,
}


@pytest.mark.parametrize("is_on", [True, pytest.param(False, marks=pytest.mark.long)])
def test_filters_leave_the_rows_that_pass_them(spark: SparkSession, broker: LocalKafka, is_on: bool) -> None:
    name = written(broker, 100, 100)
    with with_conf(spark, "spark.sql.python.filterPushdown.enabled", str(is_on).lower()):
        read = frame(spark, PYKAFKA, broker, subscribe=name)
        for filter_, passes in FILTERS.items():
            found = sorted(tuple(row) for row in read.where(filter_).select("partition", "offset").collect())
            assert found == [(p, n) for p in range(2) for n in range(100) if passes(n)], filter_
        # A Spark that keeps a plan for every later query of a DataFrame gets one that suits all.
        tasks = read.where("offset < 10 AND partition IN (0)").rdd.getNumPartitions()
        assert tasks == (1 if is_on and hasattr(DataSourceReader, "pushLimit") else 2)
        assert read.count() == 200
        # No range is left; Spark makes one task that reads nothing.
        assert read.where(f"topic = '{name}' AND offset > 1000").count() == 0


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_user_gets_the_error_behind_sparks(spark: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 10)
    for options, expected, words in (
        ({"subscribe": "nobody-made-this"}, errors.TopicToReadMissing, "'nobody-made-this' does not exist"),
        ({"subscribe": name, "startingOffset": "earliest"}, errors.UnknownOption, "Did you mean 'startingOffsets'"),
        ({"subscribe": name, "endingOffsets": by_partition(name, 11)}, errors.OffsetNotWritten, "which ends at 10"),
        ({"subscribe": name, "startingTimestamp": str(NOON_MS + 10)}, errors.NoRecordSince, "has no record from time"),
        (
            {"subscribe": name, "startingOffsets": by_partition(name, 8), "endingTimestamp": str(NOON_MS + 5)},
            errors.InvalidOption,
            "would begin at offset 8 and end at 5",
        ),
    ):
        error = error_of(lambda: frame(spark, PYKAFKA, broker, **options).collect())  # noqa: B023
        assert isinstance(error, expected)
        assert words in str(error)
        assert "the records stay in Kafka" in str(error)


def test_offsets_that_were_deleted(both: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 100)
    planned = frame(both, PYKAFKA, broker, subscribe=name)
    delete_records(broker, name, 30)
    # From the earliest on there is nothing to miss. A DataFrame is planned by its first action.
    assert len(assert_same(both, broker, subscribe=name)) == planned.count() == 70
    asked = {"subscribe": name, "startingOffsets": by_partition(name, 10)}
    error = error_of(lambda: frame(both, PYKAFKA, broker, **asked).collect())
    assert isinstance(error, errors.OffsetsLost)
    assert (error.first, error.end, error.cause) == (10, 30, "deleted")
    assert len(assert_same(both, broker, **asked, failOnDataLoss="false")) == 70


def test_offsets_that_are_deleted_between_the_plan_and_the_read(broker: LocalKafka) -> None:
    name = written(broker, 100)
    strict, lenient = (reader_of(broker, "offset", subscribe=name, failOnDataLoss=fail) for fail in ("true", "false"))
    parts = strict.partitions()
    delete_records(broker, name, 30)
    with pytest.raises(errors.OffsetsLost, match=rf"offsets 0 to 29 of {name}-0.*retention or DeleteRecords"):
        offsets_read(strict, parts)
    assert offsets_read(lenient, parts) == list(range(30, 100))
    delete_records(broker, name, 100)
    assert offsets_read(lenient, parts) == []


def test_a_batch_that_is_damaged_on_the_brokers_disk(both: SparkSession, broker: LocalKafka) -> None:
    name, of = new_topic(broker), producer(broker)
    for first in (0, 10, 20):
        send(of, name, [b"untouched"] * 10 if first != 10 else [b"a value to damage"] * 10)
    (segment,) = broker.dir.glob(f"**/{name}-0/*.log")
    content = bytearray(segment.read_bytes())
    at = content.index(b"a value to damage")
    with segment.open("r+b") as log:
        log.seek(at)
        log.write(b"A")
    error = error_of(lambda: frame(both, PYKAFKA, broker, subscribe=name).collect())
    assert isinstance(error, errors.RecordsCorrupt)
    assert (error.topic, error.partition, error.offset) == (name, 0, 10)
    assert "CRC-32C" in str(error)
    # Leaving out what is lost is not leaving out what is damaged.
    lenient = frame(both, PYKAFKA, broker, subscribe=name, failOnDataLoss="false")
    assert isinstance(error_of(lenient.collect), errors.RecordsCorrupt)
    # As the message says: around it.
    before = frame(both, PYKAFKA, broker, subscribe=name, endingOffsets=by_partition(name, 10)).count()
    after = frame(both, PYKAFKA, broker, subscribe=name, startingOffsets=by_partition(name, 20)).count()
    assert (before, after) == (10, 10)
    unchecked = frame(both, PYKAFKA, broker, subscribe=name, **{"kafka.check.crcs": "false"})
    assert rows(unchecked.collect()) == {"untouched": 20, "a value to damage": 9, "A value to damage": 1}


def test_a_range_that_nobody_can_finish_ends_in_time_and_says_why(broker: LocalKafka) -> None:
    name = new_topic(broker)
    of = producer(broker, **{"transactional.id": name})
    of.init_transactions(DEADLINE_S)
    of.begin_transaction()
    send(of, name, numbers(0, 5))
    uncommitted = reader_of(broker, "offset", subscribe=name)
    options = {"kafka.isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": "1000"}
    committed = reader_of(broker, "offset", subscribe=name, **options)
    assert offsets_read(committed) == []
    with pytest.raises(errors.ReadStalled, match="An open transaction begins at offset 0"):
        offsets_read(committed, uncommitted.partitions())
    of.abort_transaction(DEADLINE_S)
    assert offsets_read(committed) == []


@pytest.mark.parametrize(
    ("partitions", "times", "options"),
    [(1, 100, {}), pytest.param(3, 400, {"maxPartitions": "1"}, marks=pytest.mark.long, id="packed")],
)
def test_a_broker_that_dies_and_comes_back_in_the_middle(
    partitions: int, times: int, options: dict[str, str]
) -> None:  # fmt: skip
    with LocalKafka() as own:
        name, of = new_topic(own, partitions), producer(own, **{"batch.size": 20_000})
        for number in range(partitions):
            send(of, name, (b"%08d" % each * times for each in range(5_000)), partition=number)
        options = {**options, "kafka.max.partition.fetch.bytes": "65536"}
        reader = reader_of(own, "partition", "offset", "value", subscribe=name, **options)
        (part,) = reader.partitions()
        reading = reader.read(part)
        found = [next(reading)]
        assert 0 < found[0].num_rows < (1_000 if partitions == 1 else 6_000)
        own.kill(1)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(own.start, 1)
            found += reading
            started.result(DEADLINE_S)
    offsets: dict[int, list[int]] = {number: [] for number in range(partitions)}
    for batch in found:
        for row in batch.select(["partition", "offset"]).to_pylist():
            offsets[row["partition"]].append(row["offset"])
    assert offsets == {number: list(range(5_000)) for number in range(partitions)}


@pytest.mark.long
def test_a_reader_of_a_rack_reads_from_the_replica_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    of_client = NetworkClient.send

    def noted(self: NetworkClient, node_id: int, request: Any, *more: Any) -> None:
        if isinstance(request, FetchRequest):
            asked.append(node_id)
        of_client(self, node_id, request, *more)

    monkeypatch.setattr(NetworkClient, "send", noted)
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with RackedKafka(nodes=3, config={"replica.selector.class": selector}) as kafka:
        kafka.create_topic("racks", 1, replication_factor=3)
        send(producer(kafka, **{"batch.num.messages": 2}), "racks", numbers(0, 2_000))
        for rack in (1, 2, 3):
            reader = reader_of(kafka, "offset", subscribe="racks", **{"kafka.client.rack": f"rack-{rack}"})
            assert offsets_read(reader) == list(range(2_000))
            assert asked[-1] == rack, asked


def test_a_time_that_sparks_timestamps_cannot_hold_is_an_error_of_the_column(broker: LocalKafka) -> None:
    name = new_topic(broker)
    send(producer(broker), name, [b"v"], timestamp=2**62)
    assert offsets_read(reader_of(broker, "offset", subscribe=name)) == [0]
    with pytest.raises(errors.TimestampNotReadable, match=f"has the timestamp {2**62} ms"):
        offsets_read(reader_of(broker, "offset", "timestamp", subscribe=name))


def test_datetimes_of_another_zone_are_the_same_moments(spark: SparkSession, broker: LocalKafka) -> None:
    name = written(broker, 1)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        (row,) = frame(spark, PYKAFKA, broker, subscribe=name).selectExpr("unix_millis(timestamp) AS ms").collect()
        assert row.ms == NOON_MS
        noon = datetime.datetime.fromtimestamp(NOON_MS / 1000, datetime.UTC)
        assert frame(spark, PYKAFKA, broker, subscribe=name).where(F.col("timestamp") == F.lit(noon)).count() == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# --- in a shell -------------------------------------------------------------------------------------------------------


def test_records_are_lines_of_json_in_order(broker: LocalKafka, capsys: pytest.CaptureFixture[str]) -> None:
    name, of = new_topic(broker, 3), producer(broker)
    for number in range(2_000):
        of.produce(name, key=b"k%d" % number, value=b"v%d" % number, partition=number % 2)
    send(of, name, [b"\xff\x00"], headers=[("h", None), ("h", b"1")])

    def said(*options: str, status: int = 0) -> tuple[list[dict[str, Any]], str]:
        line = ["read", "--bootstrap-servers", broker.bootstrap_servers, "--topic", name, *options]
        assert main(line) == status
        captured = capsys.readouterr()
        return [json.loads(line) for line in captured.out.splitlines()], captured.err

    capsys.readouterr()
    lines, told = said()
    assert told == "2,001 records\n"
    for partition in (0, 1):
        of_partition = [line for line in lines if line["partition"] == partition and line["key"] is not None]
        assert [line["value"] for line in of_partition] == [f"v{number}" for number in range(partition, 2_000, 2)]
    (odd,) = [line for line in lines if line["key"] is None]
    assert (odd["value"], odd["headers"]) == ({"hex": "ff00"}, [["h", None], ["h", "1"]])
    assert len(said("--limit", "3")[0]) == 3
    assert said("--quiet", "--expect-records", "2001")[0] == []
    lines, told = said("--quiet", "--expect-records", "2000", status=1)
    assert (lines, told.splitlines()[-1]) == ([], "DIFFERENT: 2,001 records, 2,000 expected")
    _, told = said("--bootstrap-servers", "127.0.0.1:1", "--option", "kafka.max.block.ms=500", status=1)
    assert "error: no broker of 127.0.0.1:1 answered within 0.5 s" in told
