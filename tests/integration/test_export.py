"""Exports and streams by one call, on a real Spark and a real broker; confluent-kafka says what is in the topics."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from effort import variants
from kafka_sink import functions as K
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import (
    ColumnTypeMismatch,
    DuplicateColumn,
    InvalidArgument,
    MissingColumn,
    MissingOption,
    UnexpectedColumn,
    WriteWouldFail,
)
from kafka_sink.exporting.co_partition import co_partitioned, topic_partitions
from kafka_sink.exporting.columns import ColumnArguments, ColumnOrName, record_frame, staged
from kafka_sink.options.config import sink_config
from kafka_sink.registry import serialized
from read_back import read_topic
from spark_writes import Here

DEADLINE_S = 60
TASKS, PARTITIONS, ROWS, KEYS = 6, 8, 24_000, 200


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        "id", f"id % {KEYS} AS tenant_id", "CAST(NULL AS STRING) AS note", "CAST(id % 2 AS STRING) AS shape"
    )


def values(kafka: LocalKafka, topic: str) -> list[str]:
    return sorted((row.value or b"").decode() for _, _, row in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S))


def ids_by_partition(kafka: LocalKafka, topic: str) -> dict[int, list[tuple[int, str]]]:
    """Of each partition, in the order of its offsets: id and key of each row."""
    found = defaultdict(list)
    for partition, _, row in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S):
        found[partition].append((json.loads(row.value or b"")["id"], (row.key or b"").decode()))
    return found


def record(frame: DataFrame, schema: str | None = None, **said: Any) -> DataFrame:
    return record_frame(*staged(frame, ColumnArguments(topic="t", schema=schema, **said)))


def one(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.limit(1).collect()
    return row.asDict(recursive=True)


def test_the_columns_of_a_record_are_made_of_any_frame(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(7, Decimal("1.50"), True, date(2026, 1, 31), "é", bytearray(b"\x00\xff"), None, 1.5, {"f": 3})],
        "n BIGINT, d DECIMAL(9,2), b BOOLEAN, day DATE, s STRING, raw BINARY, nothing VOID, x DOUBLE, "
        "st STRUCT<f: INT>",
    )
    whole = one(record(frame, value="json", key="n", partition="n", headers={"f": "st.f"}))
    # Without the null one.
    assert json.loads(whole["value"]) == {
        "n": 7, "d": 1.5, "b": True, "day": "2026-01-31", "s": "é", "raw": "AP8=", "x": 1.5, "st": {"f": 3}
    }  # fmt: skip
    assert (whole["key"], whole["partition"], whole["headers"]) == ("7", 7, [{"key": "f", "value": b"3"}])
    keys: list[tuple[ColumnOrName, bytes | None]] = [
        ("n", b"7"), ("d", b"1.50"), ("b", b"true"), ("day", b"2026-01-31"), ("s", "é".encode()), ("raw", b"\x00\xff"),
        ("nothing", None), (K.long_bytes("n"), bytes(7) + b"\x07"),
    ]  # fmt: skip
    together = reduce(
        DataFrame.union, (record(frame, value="s", key=key).select(F.col("key").cast("binary")) for key, _ in keys)
    )
    assert [row.key for row in together.collect()] == [expected for _, expected in keys]
    headers = {"column": "d", "literal": F.lit("é"), "bytes": b"\x00", "number": 3, "null": None}
    row = one(record(frame, value=F.col("raw"), headers=headers, timestamp=F.lit(0).cast("timestamp")))
    assert [tuple(each.values()) for each in row["headers"]] == [
        ("column", b"1.50"), ("literal", "é".encode()), ("bytes", b"\x00"), ("number", b"3"), ("null", None)
    ]  # fmt: skip
    assert row["value"] == b"\x00\xff"
    assert list(row) == ["timestamp", "value", "headers"]


def test_times_in_json_have_their_microseconds(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT TIMESTAMP'2026-01-31 12:00:00.123456' AS t, TIMESTAMP_NTZ'2026-01-31 12:00:00.000001' AS n"
    )
    told = json.loads(one(record(frame, value="json"))["value"])
    assert told["n"] == "2026-01-31T12:00:00.000001"
    # In the session's zone: the literal's own.
    assert told["t"].startswith("2026-01-31T12:00:00.123456")
    (row,) = frame.collect()
    assert datetime.fromisoformat(told["t"]).astimezone() == row.t.astimezone()


@pytest.fixture(params=[True, False])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    was = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", was)


def test_a_long_that_is_no_int_is_no_partition(spark: SparkSession, ansi: bool) -> None:
    """With ANSI a cast tells the value, without it another partition is written to."""
    told = record(spark.createDataFrame([(2**31 - 1,), (-1,), (None,)], "p BIGINT"), value=F.lit("v"), partition="p")
    assert [row.partition for row in told.collect()] == [2**31 - 1, -1, None]
    for outside in (2**32 + 1, 2**31 + 5, -(2**31) - 5):
        frame = spark.createDataFrame([(outside,)], "p BIGINT")
        with pytest.raises(PySparkException, match="outside int") as failure:
            record(frame, value=F.lit("v"), partition="p").collect()
        assert str(abs(outside)) not in str(failure.value)


def test_the_text_of_a_decimal_key_is_the_same_with_and_without_ansi(spark: SparkSession, ansi: bool) -> None:
    texts = ["0.000001", "0.000000", "-0.000010", "12.500000"]
    frame = spark.createDataFrame([(text,) for text in texts], "t STRING").selectExpr("CAST(t AS DECIMAL(38,6)) AS d")
    assert [row.key for row in record(frame, value=F.lit("v"), key="d").collect()] == texts
    with pytest.raises(ColumnTypeMismatch, match=r"decimal\(38,7\)"):
        record(frame.selectExpr("CAST(d AS DECIMAL(38,7)) AS d"), value=F.lit("v"), key="d")


def test_a_frame_that_is_a_record_already_is_taken_as_it_is(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("'k' AS key", "'v' AS value", "id", "'u' AS topic", "5 AS partition")
    assert one(record(frame, headers={"id": "id"}, partition="id")) == {
        "key": "k", "value": "v", "partition": 0, "headers": [{"key": "id", "value": b"0"}]
    }  # fmt: skip
    with pytest.raises(UnexpectedColumn, match="'id'"):
        record(frame)
    with pytest.raises(MissingColumn, match='value="json"'):
        record(frame.drop("value"))


@pytest.mark.parametrize("name", variants("order.id", "x`y", "`q`", "a b", "日本.ö", "*", "Case.Id", "", "json"))
def test_a_column_is_named_whatever_characters_its_name_has(spark: SparkSession, name: str) -> None:
    frame = spark.createDataFrame([("k", "v")], [name, "other"])
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    framed = serialized(frame, [name], topic="t", form="json", registry=client)
    in_code = f"`{name.replace('`', '``')}`"
    for given in (name, in_code, name.upper()):
        made = one(record(frame, key=given, value="other", headers={"h": given}))
        assert made == {"key": "k", "value": "v", "headers": [{"key": "h", "value": b"k"}]}
        assert one(record(frame.withColumnRenamed("other", "value"), key=given)) == {"key": "k", "value": "v"}
    assert json.loads(bytes(one(frame.select(framed.alias("f")))["f"])[5:]) == {name: "k"}
    assert one(frame.select(K.string_bytes(in_code).alias("b"))) == {"b": b"k"}
    numbers = spark.createDataFrame([(2, "b"), (0, "d")], [name, "value"]).coalesce(1)
    made_of = co_partitioned(*staged(numbers, ColumnArguments(topic="t", key=name, partition=name)), 1, (name,))
    assert [row.key for row in record_frame(*made_of).collect()] == ["0", "2"]


def test_a_name_is_the_columns_before_it_is_a_field(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'k' AS `Order.Id`, struct('f' AS id) AS order, 'v' AS value")
    keys = {"order.id": "k", "`order`.id": "f", "t.order.id": "f"}
    assert {name: one(record(frame.alias("t"), key=name, value="value"))["key"] for name in keys} == keys


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        ({"key": "st.*", "value": "json"}, MissingColumn, r"'st\.\*'"),
        ({"key": "a`b", "value": "json"}, MissingColumn, "'a`b'"),
        ({"key": "id", "value": "json", "headers": {"h": "two"}}, DuplicateColumn, "'two'"),
        ({"key": "no", "value": "json"}, MissingColumn, r"'no'.*F\.lit\('no'\)"),
        ({"value": "json", "headers": {"h": "v1"}}, MissingColumn, r"headers\['h'\]"),
        ({"key": "x", "value": "json"}, ColumnTypeMismatch, "'key' is double"),
        ({"key": "st", "value": "json"}, ColumnTypeMismatch, "to_json"),
        ({"partition": "x", "value": "json"}, ColumnTypeMismatch, "'partition' is double"),
        ({"value": "avro"}, InvalidArgument, r'registry=\{"url"'),
        ({"value": "protobuf"}, InvalidArgument, "registry"),
        ({"value": "json", "schema": "{}"}, InvalidArgument, "registry"),
        ({"key": 7, "value": "json"}, TypeError, "key: a column's name or a Column, not int"),
    ],
)
def test_what_cannot_be_a_record_is_told(
    spark: SparkSession, said: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        record(spark.range(1).selectExpr("id", "1.5D AS x", "struct(id) AS st", "1 AS two", "2 AS TWO"), **said)


def test_a_registry_frames_the_whole_row(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def serialized(frame: DataFrame, columns: Sequence[str], **more: Any) -> Column:
        asked.append((list(columns), more))
        return K.struct_be((F.lit(77), "int"), (F.to_json(F.struct(*columns)), "binary"))

    monkeypatch.setitem(sys.modules, "kafka_sink.registry", SimpleNamespace(serialized=serialized))
    name, frame = here.topic(1), here.spark.range(0, 2, 1, 1).withColumn("x", F.lit(1))
    given = {"registry": {"url": "http://localhost:8081"}, "bootstrap_servers": here.servers}
    said = {"registry": given["registry"], "schema": "...", "subject": "record"}
    kafka_sink.export(frame, name, key="id", value="avro", **given | said)
    assert asked == [(["id", "x"], {**said, "topic": name, "form": "avro"})]
    assert values(here.kafka, name) == [f'\x00\x00\x00\x4d{{"id":{n},"x":1}}' for n in range(2)]
    for wrong in ({"value": "id"}, {"value": "avro", "topic": F.lit("t")}):
        with pytest.raises(InvalidArgument):
            kafka_sink.export(frame, **{"topic": name, **given, **wrong})
    with pytest.raises(WriteWouldFail):
        kafka_sink.export(frame, "nobody-made-this", value="avro", **given)
    assert len(asked) == 1, "a registry keeps what it is given: it is not asked for a write that would fail"


@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_export_tells_what_readers_find(
    orders: DataFrame, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, exactly_once: bool
) -> None:
    name, letters, folder = topic(3), topic(1), tmp_path / "receipts"
    receipt = kafka_sink.export(
        orders.limit(300), name, key="tenant_id", value="json", headers={"shape": "shape"}, exactly_once=exactly_once,
        partition=F.expr("IF(id % 100 = 7, -1, NULL)"), bad_rows="deadLetter", dead_letter_topic=letters,
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers}, receipts_path=folder, progress=True,
    )  # fmt: skip
    assert (receipt.rows, receipt.written, receipt.dead_lettered, receipt.dropped) == (300, 297, 3, 0)
    assert receipt.guarantee == ("exactly-once" if exactly_once else "at-least-once")
    assert receipt.path is not None and Path(receipt.path).is_file() and receipt.path.startswith(str(folder))
    assert not receipt.was_written_before and receipt.duration_s > 0
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for read in (name, letters):
        for partition, offset, row in read_topic(kafka.bootstrap_servers, read, DEADLINE_S):
            found[read, partition].append(offset)
            told = json.loads(row.value or b"")
            assert (row.key or b"").decode() == str(told["tenant_id"]) and "note" not in told
            assert ("shape", told["shape"].encode()) in [tuple(header) for header in row.headers or ()]
    expected = {(each.topic, each.partition): each for each in receipt.partitions}
    assert set(found) == set(expected)
    for key, offsets in found.items():
        each = expected[key]
        assert (each.record_count, each.first_offset, each.last_offset) == (len(offsets), offsets[0], offsets[-1])
    assert name in receipt._repr_html_() and "300 rows" in str(receipt)


def test_what_would_fail_is_told_before_a_row_is_written(here: Here, orders: DataFrame) -> None:
    name, servers = here.topic(1), {"bootstrap_servers": here.servers}
    with pytest.raises(WriteWouldFail, match="there is no such topic") as failure:
        kafka_sink.export(orders, "nobody-made-this", value="json", **servers)
    assert failure.value.step == "topic"
    with pytest.raises(MissingOption):
        kafka_sink.export(orders, name, value="json")
    for arguments in ({"order_by": "id"}, {"co_partition": True}, {"co_partition": True, "topic": F.lit(name)}):
        with pytest.raises(InvalidArgument):
            kafka_sink.export(orders, **{"topic": name, "value": "json", **servers, **arguments})
    with pytest.raises(InvalidArgument, match="no stream"):
        kafka_sink.to_kafka(orders, name, value="json", **servers)
    assert values(here.kafka, name) == []


def slots(spark: SparkSession, folder: Path) -> set[tuple[int, int]]:
    """Which task wrote to which partition, by the receipts."""
    written = kafka_sink.receipts(spark, str(folder)).where("topic IS NOT NULL")
    return {(row.slot, row.partition) for row in written.select("slot", "partition").distinct().collect()}


@pytest.mark.long
def test_one_task_a_partition_makes_fewer_batches_and_one_order(here: Here, orders: DataFrame) -> None:
    plain, together = here.topic(PARTITIONS), here.topic(PARTITIONS)
    sink: dict[str, Any] = {"key": "tenant_id", "value": "json", "bootstrap_servers": here.servers}
    before = kafka_sink.export(orders, plain, **sink)
    sink |= {"receipts_path": here.folder, "co_partition": True, "order_by": F.col("id").desc()}
    after = kafka_sink.export(orders, together, **sink)
    assert before.rows == after.rows == ROWS
    # Every task fills a batch for every partition; now there is one task for each.
    assert before.batch_count >= TASKS * PARTITIONS and after.batch_count == PARTITIONS
    assert slots(here.spark, here.folder) == {(n, n) for n in range(PARTITIONS)}
    assert after.batch_bytes < before.batch_bytes
    was, now = ids_by_partition(here.kafka, plain), ids_by_partition(here.kafka, together)
    # Keys are where they were, and where any producer puts them.
    places = [{n: {key for _, key in rows} for n, rows in found.items()} for found in (was, now)]
    assert places[0] == places[1]
    assert all(rows == sorted(rows, reverse=True) for rows in now.values())
    assert sum(map(len, now.values())) == ROWS
    # Rows that name a partition or have no key have a place, too.
    name, spread = here.topic(PARTITIONS), F.expr("IF(id % 3 = 0, CAST(tenant_id AS STRING), NULL)")
    sink = {"value": "json", "co_partition": True, "exactly_once": True, "bootstrap_servers": here.servers}
    kafka_sink.export(orders.limit(600), name, key=spread, partition=F.expr("IF(id % 3 = 1, 5, NULL)"), **sink)
    found = ids_by_partition(here.kafka, name)
    assert {id for id, _ in found[5]} >= {id for id in range(600) if id % 3 == 1}
    assert all(any(id % 3 == 2 for id, _ in found[n]) for n in range(PARTITIONS)), "rows without a key are spread"


def test_executors_count_the_partitions_without_pandas(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Spark Connect. Spark's functions of Arrow batches would ask for pandas."""
    none = mock.Mock(side_effect=ImportError("no pandas"))
    for asks in ("pandas.functions", "udf"):
        monkeypatch.setattr(f"pyspark.sql.{asks}.require_minimum_pandas_version", none)
    config = sink_config({"kafka.bootstrap.servers": here.servers, "topic": here.topic(3)})
    assert topic_partitions(here.spark, config, from_executors=True) == 3
    none.assert_not_called()


def test_a_stream_by_one_call(here: Here, orders: DataFrame) -> None:
    name = here.topic(PARTITIONS)
    orders.limit(2_000).repartition(2).write.parquet(str(here.folder / "incoming"))
    reader = here.spark.readStream.schema(orders.schema).option("maxFilesPerTrigger", 1)
    source = reader.parquet(str(here.folder / "incoming"))
    with pytest.raises(InvalidArgument, match="to_kafka"):
        kafka_sink.export(source, name, value="json")
    for _ in range(2):
        query = kafka_sink.to_kafka(
            source, name, key="tenant_id", value="json", exactly_once=True, co_partition=True, query_name="orders",
            checkpoint_location=str(here.folder / "checkpoint"), trigger={"availableNow": True},
            receipts_path=here.folder / "receipts", bootstrap_servers=here.servers,
        )  # fmt: skip
        assert query.name == "orders"
        assert query.awaitTermination(DEADLINE_S)
    rows = [row for of_partition in ids_by_partition(here.kafka, name).values() for row in of_partition]
    assert sorted(rows) == [(n, str(n % KEYS)) for n in range(2_000)]
    assert slots(here.spark, here.folder / "receipts") == {(n, n) for n in range(PARTITIONS)}
