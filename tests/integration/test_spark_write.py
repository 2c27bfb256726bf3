"""What a user does, with real Spark and a real broker; confluent-kafka reads back."""

import datetime
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from kafka.partitioner.default import murmur2
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker_admin import add_partitions
from broker_admin import producer as their_producer
from effort import variants
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_producer
from read_back import read_topic
from spark_writes import DEADLINE_S, Here, failure_of, finish, numbers, pykafka, with_conf

TOPIC_SCHEMA = (
    "partition INT, offset BIGINT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP"
)


def in_topic(spark: SparkSession, kafka: LocalKafka, topic: str) -> DataFrame:
    """Everything in `topic`, as the DataFrame that Spark's own Kafka source would give."""
    rows = [
        (p, o, r.key, r.value, list(r.headers), datetime.datetime.fromtimestamp(r.timestamp_ms / 1000, datetime.UTC))
        for p, o, r in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    ]
    return spark.createDataFrame(rows, TOPIC_SCHEMA)


def test_a_batch_of_every_column_arrives_as_it_was(here: Here) -> None:
    name = here.topic(3, {"retention.ms": -1})
    at = datetime.datetime(2013, 7, 4, 5, 6, 7, 891_000, datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    rows = [
        (b"k0", b"v0", [("a", b"1"), ("b", None), ("a", b"2")], at, 0),
        (None, b"v1", [], epoch, 1),
        (b"", None, None, at, 2),
        (b"k3", b"", [("", b"")], at, 1),
    ]
    headers = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = here.spark.createDataFrame(rows, f"key BINARY, value BINARY, {headers}, timestamp TIMESTAMP, partition INT")
    here.save(frame, name)
    columns = ["key", "value", "headers", "timestamp", "partition"]
    expected = frame.selectExpr(
        "key", "value", "coalesce(headers, array()) AS headers", "timestamp", "partition"
    ).select(columns)
    assert_df_equality(
        in_topic(here.spark, here.kafka, name).select(columns), expected, ignore_row_order=True, ignore_nullable=True
    )


@pytest.mark.parametrize("large", variants("true", "false"))
def test_every_type_of_spark_that_a_record_can_take(here: Here, large: str) -> None:
    """... with Arrow's 32-bit and 64-bit variants, which Spark has a setting for."""
    name = here.topic(5, {"retention.ms": -1})
    frame = here.spark.range(1).selectExpr(
        "cast(2 AS TINYINT) AS partition",
        "cast('key' AS VARCHAR(5)) AS key",
        "cast('value' AS CHAR(5)) AS value",
        "map_entries(map('b', cast('1' AS BINARY), 'a', null)) AS headers",
        "timestamp_ntz'2013-07-04 05:06:07.891999' AS timestamp",
    )
    nothing = here.spark.range(1).selectExpr("null AS key", "null AS value", "null AS headers", "null AS timestamp")
    with with_conf(here.spark, "spark.sql.execution.arrow.useLargeVarTypes", large):
        pykafka(frame.write.mode("append"), here.kafka, name).option("partitioner", "roundrobin").save()
        pykafka(nothing.write.mode("append"), here.kafka, name).option("partitioner", "consistent").save()
    got = {partition: record for partition, _, record in here.records(name)}
    assert got.keys() == {2, 0}  # 0: where `consistent` sends a row without a key
    in_2, in_0 = got[2], got[0]
    assert (in_2.key, in_2.value, in_2.headers) == (b"key", b"value", (("b", b"1"), ("a", None)))
    # Without a zone, and so read as UTC; the microseconds are rounded down.
    assert in_2.timestamp_ms == 1_372_914_367_891
    assert (in_0.key, in_0.value, in_0.headers) == (None, None, ())
    assert abs(in_0.timestamp_ms - time.time() * 1000) < 60_000


def test_strings_go_as_utf8_and_keys_where_kafka_python_would_send_them(here: Here) -> None:
    name = here.topic(7)
    frame = here.spark.range(5_000).selectExpr("concat('schlüssel-', id) AS key", "concat('wert-', id) AS value")
    here.save(frame, name)
    got = in_topic(here.spark, here.kafka, name).selectExpr(
        "cast(key AS STRING) key", "cast(value AS STRING) value", "partition"
    )
    assert_df_equality(got.select("key", "value"), frame, ignore_row_order=True, ignore_nullable=True)
    for row in got.collect():
        assert row.partition == (murmur2(row.key.encode()) & 0x7FFFFFFF) % 7


def test_a_stream_of_several_micro_batches_arrives_once_and_in_order(here: Here) -> None:
    name = here.topic(4)
    rows = here.arriving(*(here.numbers(1_000, first=first) for first in (0, 1_000, 2_000)))
    query = here.start(rows.selectExpr("string(value % 50) AS key", "value"), name)
    finish(query)
    assert query.lastProgress["batchId"] == 2
    got = in_topic(here.spark, here.kafka, name)
    by_key: dict[bytes, list[int]] = {}
    for row in got.orderBy("partition", "offset").collect():
        by_key.setdefault(bytes(row.key), []).append(int(row.value))
    assert by_key == {b"%d" % key: list(range(key, 3_000, 50)) for key in range(50)}


@pytest.mark.long
def test_a_worker_keeps_its_producer_from_micro_batch_to_micro_batch(here: Here) -> None:
    name, micro_batches = here.topic(1), 8
    rows = here.arriving(*(here.numbers(1, first=number) for number in range(micro_batches)))
    finish(here.start(rows.coalesce(1), name, client_id=name))
    (segment,) = here.kafka.dir.glob(f"node-*/data/{name}-0/*.log")
    dumped = here.kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))
    producer_ids = re.findall(r"producerId: (\d+)", dumped)
    assert len(producer_ids) == micro_batches
    # One task at a time, and Spark's pool of idle workers has two or three of them.
    assert len(set(producer_ids)) <= 3


def test_an_empty_frame_and_empty_partitions_write_nothing_and_succeed(here: Here) -> None:
    name = here.topic(1)
    frame = here.spark.range(10).selectExpr("cast(id AS STRING) AS value")
    here.save(frame.where("value = 'none'"), name)
    assert in_topic(here.spark, here.kafka, name).count() == 0
    here.save(frame.where("value = '3'").repartition(4), name)
    assert [bytes(row.value) for row in in_topic(here.spark, here.kafka, name).collect()] == [b"3"]


ERRORS = [
    ("id AS value", {}, "ColumnTypeMismatch", "column 'value' is bigint; expected binary or string"),
    ("'v' AS value", {"kafka.batch.sise": "1"}, "UnknownOption", "'kafka.batch.size'"),
    ("'v' AS value; id AS partition", {}, "ColumnTypeMismatch", "cast('int')"),
    ("'v' AS value; map('k', cast('v' AS BINARY)) AS headers", {}, "ColumnTypeMismatch", "map_entries"),
    ("'v' AS value; current_date() AS timestamp", {}, "ColumnTypeMismatch", "cast('timestamp')"),
    ("'v' AS value; id", {}, "UnexpectedColumn", "to_json(struct('id', ...))"),
    ("'v' AS val", {}, "MissingColumn", "has no column 'value' (it has: val)"),
    ("'v' AS Value", {}, "MissingColumn", "rename 'Value' to 'value'"),
    ("'v' AS value; 'w' AS value", {}, "DuplicateColumn", "more than one column 'value'"),
    ("'v' AS value", {"deliveryGuarantee": "at-most-once"}, "InvalidOption", "exactly-once"),
    ("'v' AS value", {"kafka.value.serializer": "x"}, "RefusedOption", "Cast the 'value' column"),
    ("'v' AS value", {"kafka.acks": "2"}, "InvalidOption", "'all'"),
]


@pytest.mark.parametrize("case", [ERRORS[0], *variants(*ERRORS[1:])], ids=str)
def test_a_wrong_option_or_column_is_named_with_the_fix_before_any_task(
    spark: SparkSession, case: tuple[str, dict[str, str], str, str]
) -> None:
    columns, options, error, says = case
    # Nothing listens there: the error comes although no broker is asked.
    writer = pykafka(spark.range(1).selectExpr(*columns.split("; ")).write.mode("append"), "localhost:1", "t")
    with pytest.raises(PySparkException) as failure:
        writer.options(**options).save()
    message = str(failure.value)
    assert f"kafka_sink.errors.{error}" in message
    assert says in message
    assert "No row of this write was sent" in message


def test_missing_bootstrap_servers_and_missing_topic_are_named(spark: SparkSession) -> None:
    assert "'topic' option" in failure_of(numbers(spark, 3), "localhost:1", None)
    with pytest.raises(PySparkException, match=r"'kafka\.bootstrap\.servers' is required"):
        numbers(spark, 3).write.format("pykafka").mode("append").option("topic", "t").save()


def test_a_row_that_is_too_large_is_an_error_with_its_size_and_without_its_payload(here: Here) -> None:
    name = here.topic(1)
    large = "if(id = 7, repeat('secret', 300000), 'small')"
    frame = here.spark.range(0, 10, 1, 2).selectExpr("concat('alice-', id) AS key", f"{large} AS value")
    message = here.failure_of(frame, name)
    assert "RecordTooLarge" in message
    assert "kafka.max.request.size" in message
    assert "row 2 (from 0) of Spark partition 1, with a key of 7 bytes: a row for topic" in message
    assert "badRows=drop or deadLetter" in message
    assert "secretsecret" not in message and "alice" not in message


def test_overwrite_and_complete_mode_are_refused(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="WriteModeUnsupported"):
        pykafka(numbers(spark, 3).write.mode("overwrite"), kafka, "t").save()
    with pytest.raises(PySparkException, match='cannot be written in the "Ignore" mode'):
        pykafka(numbers(spark, 3).write.mode("ignore"), kafka, "t").save()
    counts = spark.readStream.format("rate").load().groupBy().count().selectExpr("cast(count AS STRING) AS value")
    writer = pykafka(counts.writeStream.outputMode("complete"), kafka, "t")
    with pytest.raises(PySparkException, match="WriteModeUnsupported"):
        finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())


# --- partitions -------------------------------------------------------------------------------------------------------


def partitions_by_value(kafka: LocalKafka, topic: str) -> dict[bytes, int]:
    read = read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    return {record.value or b"": partition for partition, _, record in read}


# librdkafka sends a null key to one partition with each of these; only with `consistent` does the sink, too.
@pytest.mark.parametrize(("partitioner", "null_keys"), [("murmur2", False), ("consistent", True), ("fnv1a", False)])
def test_librdkafka_sends_every_key_to_the_same_partition(
    kafka: LocalKafka, topic: Callable[..., str], partitioner: str, null_keys: bool
) -> None:
    source = random.Random(7)
    keys: list[bytes | None] = [source.randbytes(source.randrange(101)) for _ in range(5_000)]
    # The empty key; one whose FNV-1a is -2^31, where librdkafka and Sarama take two ways to one result.
    keys += [b"", b"hp4gi_", *([None] * 10 if null_keys else [])]
    values = [b"%d" % n for n in range(len(keys))]

    theirs = topic(7)
    librdkafka = their_producer(kafka, partitioner=partitioner)
    for key, value in zip(keys, values, strict=True):
        librdkafka.produce(theirs, key=key, value=value)
    assert librdkafka.flush(DEADLINE_S) == 0

    ours = topic(7)
    with lease_producer(sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer) as producer:
        write = Write(producer, topic=ours, partitioner=partitioner)
        write.append(pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values)}))
        write.finish()

    got = partitions_by_value(kafka, ours)
    assert len(got) == len(keys)
    assert got == partitions_by_value(kafka, theirs)
    assert set(got.values()) == set(range(7))


def test_a_partition_that_came_into_being_during_the_write(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    keyed = pa.record_batch({"key": [b"%d" % n for n in range(100)], "value": [b"k%d" % n for n in range(100)]})
    explicit = pa.record_batch({"value": pa.array([b"explicit"]), "partition": pa.array([3], pa.int32())})
    with lease_producer(sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer) as producer:
        write = Write(producer, topic=name)
        write.append(keyed)
        with pytest.raises(PartitionOutOfRange) as refused:
            write.append(explicit)
        assert (refused.value.partition, refused.value.partition_count) == (3, 2)
        add_partitions(kafka, name, 4)
        write.append(explicit)
        write.append(keyed)
        write.finish()
    got = partitions_by_value(kafka, name)
    assert got.pop(b"explicit") == 3
    assert set(got.values()) == {0, 1}
