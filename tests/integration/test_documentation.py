"""The examples of README and docs, run as their readers would, and what is in the topics then. Only addresses, folders
and names are replaced. Elsewhere: what watches a write (test_monitoring.py), a secured cluster (test_security.py), the
quick start (`make first-run`). That none is left out is tests/unit/test_pages.py."""

import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

import broker_admin
import export_to_kafka
import kafka_sink
import stream_support
import stream_to_kafka
import transform_kafka
from broker_admin import read_values
from code_blocks import ROOT, blocks, run_bash, run_python, words_of
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersRequest
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.monitoring.listener import StreamTally
from kafka_sink.options.config import sink_config
from kafka_sink.registry import serialized
from small_registry import small_registry
from spark_writes import Here
from waiting import wait_until

DEADLINE_S = 120
ROWS = 60
FILES = 3


def names(frame: DataFrame) -> dict[str, Any]:
    """What an example takes for granted."""
    return {"df": frame, "spark": frame.sparkSession, "kafka_sink": kafka_sink}


def finish(spark: SparkSession) -> None:
    """Lets the streams that an example started read all that there is."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def committed(kafka: LocalKafka, topic: str) -> Counter[str]:
    return Counter({value.decode(): times for value, times in read_values(kafka, topic).items()})


def arriving(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of files, a micro-batch each."""
    folder.mkdir()
    for file in range(FILES):
        rows = range(file * ROWS // FILES, (file + 1) * ROWS // FILES)
        (folder / f"{file}.json").write_text("".join(f"{json.dumps({'value': str(row)})}\n" for row in rows))
    return spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1").json(str(folder))


ALL_ONCE = Counter(map(str, range(ROWS)))


def numbered(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")


# --- README -----------------------------------------------------------------------------------------------------------


def test_the_first_rows(
    own_session: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That they run from a clone, with a broker of their own, is `make first-run`'s."""
    name, spark = topic(1), own_session
    run_python("README.md", "Install", 0, {}, {"spark": spark})
    monkeypatch.setenv("SERVERS", kafka.bootstrap_servers)
    replaced = {'"orders"': f'"{name}"', "SparkSession.builder.getOrCreate()": "session"}
    made = run_python("README.md", "First rows", 1, replaced, {"session": spark})
    (shown,) = [block.text for block in blocks("README.md") if block.language == "text"]
    # Topic, sizes and duration are this run's.
    assert words(shown, "orders") == words(capsys.readouterr().out, name)
    run_python("README.md", "First rows", 2, {'"orders"': f'"{name}"'}, made)
    assert re.search(r'\|2 +\|\d +\|{"order_id":\d+,"tenant_id":\d} *\|', capsys.readouterr().out)


def words(receipt: str, topic: str) -> list[str]:
    return re.sub(r"[\d.]+ (?=k?B|s$)", "", receipt.replace(topic, "TOPIC"), flags=re.MULTILINE).split()


def test_the_first_stream(
    own_session: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, spark = f"events-{tmp_path.name}", own_session
    monkeypatch.setenv("SERVERS", kafka.bootstrap_servers)
    kafka_sink.register(spark)
    replaced = {
        '"events"': f'"{name}"', "/tmp/checkpoints": str(tmp_path),
        # A rate source has rows without end.
        ".awaitTermination()": "",
    }  # fmt: skip
    run_python("README.md", "A stream", 0, replaced, {"spark": spark, "os": os})
    wait_until(lambda: bool(committed(kafka, name)), DEADLINE_S, "rows are in the topic")
    for query in spark.streams.active:
        query.stop()
    assert all("timestamp" in json.loads(value) for value in committed(kafka, name))


def test_a_broker_is_started_asked_for_and_stopped(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    try:
        ended = run_bash("docs/quick-start.md", "A broker for development and tests", 0, {}, tmp_path, **state)
    finally:
        stop = [sys.executable, "-m", "kafka_sink.broker", "stop", "--dir", f"{tmp_path}/pykafka/broker"]
        subprocess.run(stop, check=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stdout
    started, status = re.findall("^bootstrap.servers=(.*)", ended.stdout, re.MULTILINE)
    assert started == status
    assert "has ended" in ended.stdout


# --- reading ----------------------------------------------------------------------------------------------------------


def test_batches_are_read(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    name = here.topic(2)
    rows = here.spark.range(0, ROWS, 1, 1).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition")
    kafka_sink.export(rows, name, value="value", partition="partition", bootstrap_servers=here.servers)
    replaced = {"localhost:9092": here.servers, '"subscribe", "orders"': f'"subscribe", "{name}"'}
    orders = run_python("docs/reading.md", "Reading", 0, replaced, names(rows))["orders"]
    assert "partition|offset" in capsys.readouterr().out
    assert orders.count() == ROWS
    values = run_python("docs/reading.md", "Columns", 0, replaced, names(rows))["values"]
    assert Counter(bytes(row.value).decode() for row in values.collect()) == ALL_ONCE
    assert values.columns == ["offset", "value"]
    # This run's records are newer than the page's, and fewer.
    bounds = {'{"orders": {"0": 100, "1": -1}}': json.dumps({name: {"0": 10, "1": -1}})}
    some = run_python("docs/reading.md", "What a read covers", 0, replaced | bounds, names(rows))["may"]
    assert some.count() == 10 + ROWS // 2


def test_a_stream_is_read(here: Here) -> None:
    name = here.topic(2)
    replaced = {"localhost:9092": here.servers, '"subscribe", "orders"': f'"subscribe", "{name}"'}
    replaced["/data/"] = f"{here.folder}/"
    for rows in (numbered(here.spark), numbered(here.spark).selectExpr("concat('later ', value) AS value")):
        kafka_sink.export(rows, name, value="value", bootstrap_servers=here.servers)
        query = run_python("docs/reading.md", "Streams", 0, replaced, {"spark": here.spark})["query"]
        assert query.awaitTermination(DEADLINE_S), query.status
    found = Counter(row.value for row in here.spark.read.parquet(f"{here.folder}/orders").collect())
    assert found == ALL_ONCE + Counter(f"later {value}" for value in ALL_ONCE)


# --- from topic to topic ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_from_topic_to_topic(here: Here) -> None:
    source, sink = here.topic(2), here.topic(2)
    rows = numbered(here.spark).selectExpr("concat('row ', value) AS value", "value AS key")
    kafka_sink.export(rows, source, key="key", value="value", bootstrap_servers=here.servers)
    replaced = {"localhost:9092": here.servers, '"subscribe", "orders"': f'"subscribe", "{source}"'}
    replaced |= {'"orders-upper"': f'"{sink}"', "/data/checkpoints": str(here.folder)}
    run_python("docs/topic-to-topic.md", "From topic to topic", 0, replaced, {"spark": here.spark})
    finish(here.spark)
    found = Counter((record.key, record.value) for _, _, record in here.records(sink))
    assert found == Counter((b"%d" % row, b"ROW %d" % row) for row in range(ROWS))


def test_from_topic_to_topic_exactly_once(here: Here) -> None:
    source, sink = here.topic(2), here.topic(2)
    producer = broker_admin.producer(here.kafka, **{"transactional.id": source})
    producer.init_transactions()
    for row in range(ROWS):
        for end, value in ((producer.abort_transaction, f"aborted {row}"), (producer.commit_transaction, str(row))):
            producer.begin_transaction()
            producer.produce(source, value=value)
            producer.flush()
            end()
    replaced = {"localhost:9092": here.servers, '"subscribe", "payments"': f'"subscribe", "{source}"'}
    replaced |= {'"payments-copy"': f'"{sink}"', "/data/checkpoints": str(here.folder)}
    for _ in range(2):
        run_python("docs/cookbook.md", "Exactly once from topic to topic, with a kill", 0, replaced, {})
        finish(here.spark)
        assert committed(here.kafka, sink) == ALL_ONCE


@pytest.mark.long
def test_both_halves_of_a_query_are_moved_to_exactly_once_and_back(
    both: SparkSession, kafka: LocalKafka, topic: Callable[[int], str], tmp_path: Path
) -> None:
    """Each query ends between two micro-batches, as the page says: no row comes twice, whatever the reader's level."""
    source, sink, at = topic(2), topic(2), {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    to_read = {"localhost:9092": kafka.bootstrap_servers, '"subscribe", "orders"': f'"subscribe", "{source}"'}
    to_write = {"localhost:9092": kafka.bootstrap_servers, '"topic", "copies"': f'"topic", "{sink}"'}
    to_write["/data/checkpoints"] = str(tmp_path)
    for number, which in enumerate(("kafka", "as the page has it", "pykafka", "kafka", "as the page has it")):
        values = both.range(20 * number, 20 * number + 20, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        kafka_sink.export(values, source, value="value", bootstrap_servers=kafka.bootstrap_servers)
        if which == "as the page has it":
            made = run_python(
                "docs/cookbook.md", 'Move a query from format("kafka"), and back', 0, to_read, {"spark": both}
            )
            query = run_python("docs/cookbook.md", 'Move a query from format("kafka"), and back', 1, to_write, made)[
                "query"
            ]
        else:
            reader = both.readStream.format(which).options(**at, subscribe=source, startingOffsets="earliest")
            writer = reader.load().select("key", "value").writeStream.format(which).options(**at, topic=sink)
            writer = writer.option("deliveryGuarantee", "exactly-once") if which == "pykafka" else writer
            query = writer.option("checkpointLocation", f"{tmp_path}/copies").trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S), query.status
    assert committed(kafka, sink) == Counter(map(str, range(100)))


def test_a_query_is_moved_to_another_checkpoint(here: Here) -> None:
    source, sink = here.topic(2), here.topic(2)
    at = {"kafka.bootstrap.servers": here.servers}
    replaced = {"localhost:9092": here.servers, '"subscribe", "orders"': f'"subscribe", "{source}"'}
    replaced |= {'"orders-stream"': f'"{source}"', '"copies"': f'"{sink}"', "/data/checkpoints": str(here.folder)}

    def written(first: int) -> None:
        values = here.spark.range(first, first + ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        kafka_sink.export(values, source, value="value", bootstrap_servers=here.servers)

    written(0)
    old = here.spark.readStream.format("pykafka").options(**at, subscribe=source, startingOffsets="earliest")
    writer = old.option("groupId", source).load().select("value").writeStream.format("pykafka").options(**at)
    checkpoint = f"{here.folder}/copies"
    query = writer.option("topic", sink).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S), query.status
    # Before the new query, between two of its runs, and with the group that it commits to itself.
    for first in (ROWS, 2 * ROWS):
        written(first)
        query = run_python(
            "docs/cookbook.md", "Move a query to another checkpoint", 0, replaced, {"spark": here.spark}
        )["query"]
        assert query.awaitTermination(DEADLINE_S), query.status
    assert committed(here.kafka, sink) == Counter(map(str, range(3 * ROWS)))


# --- many executors ---------------------------------------------------------------------------------------------------


def test_fewer_tasks_are_fewer_producers(here: Here) -> None:
    name = here.topic(2)
    replaced = {"localhost:9092": here.servers, "orders": name, "64": "1"}
    run_python("docs/scale.md", "Fewer tasks", 0, replaced, names(numbered(here.spark)))
    assert committed(here.kafka, name) == ALL_ONCE
    with closing(AdminClient(sink_config({"kafka.bootstrap.servers": here.servers}).producer)) as client:
        partitions = [TopicPartition(name, partition) for partition in range(2)]
        found = client.ask_leaders(partitions, DescribeProducersRequest)
    assert len({producer.producer_id for each in found.values() for producer in each.producers}) == 1


# --- guarantees -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_exactly_once(here: Here) -> None:
    name, other, frame = here.topic(2), here.topic(2), arriving(here.spark, here.folder / "incoming")
    replaced = {"localhost:9092": here.servers, "payments": name, "/data/checkpoints": str(here.folder)}
    for _ in range(2):
        run_python("docs/guarantees.md", "Exactly once", 0, replaced, names(frame))
        finish(here.spark)
        assert committed(here.kafka, name) == ALL_ONCE
    replaced = {"localhost:9092": here.servers, "orders": other}
    run_python("docs/guarantees.md", "Exactly once", 1, replaced, names(numbered(here.spark)))
    assert committed(here.kafka, other) == ALL_ONCE


@pytest.mark.long
def test_exactly_once_for_update_mode(here: Here) -> None:
    name, counts = here.topic(2), arriving(here.spark, here.folder / "incoming").groupBy().count()
    totals = counts.selectExpr("CAST(count AS STRING) AS value")
    replaced = {"localhost:9092": here.servers, "totals": name, "/data/checkpoints": str(here.folder)}
    for _ in range(2):
        run_python("docs/guarantees.md", "Exactly once", 2, replaced, names(totals))
        finish(here.spark)
        assert committed(here.kafka, name) == Counter(str((file + 1) * ROWS // FILES) for file in range(FILES))


# --- rows and exports -------------------------------------------------------------------------------------------------


def test_bytes_of_kafkas_own_serializers(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 7L AS customer_id, 8L AS id, 0.25D AS price, CAST(9 AS INT) AS quantity")
    records = run_python("docs/rows.md", "Kafka's own serializers", 0, {}, names(frame))["records"]
    assert records.collect() == [(struct.pack(">q", 7), struct.pack(">qdi", 8, 0.25, 9))]


def test_interceptors(own_session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    name, counts = topic(1), tmp_path / "counts"
    # What it prints in a worker's process, nobody sees.
    replaced = {"print(error or": f"open({str(counts)!r}, 'a').write('%s\\n' % (error or"}
    replaced["for receipt in receipts))"] = "for receipt in receipts)))"
    run_python("docs/rows.md", "Interceptors", 0, replaced, names(own_session.range(1)))
    frame = own_session.sql("SELECT 'from ann@example.org' AS value")
    frame.write.format("pykafka").mode("append").options(**sink(kafka, name)).save()
    assert committed(kafka, name) == Counter(["from ***@example.org"])
    assert counts.read_text() == "1\n"


def test_an_export_in_one_line(here: Here) -> None:
    columns = "id % 7 AS tenant_id", "concat('r', id % 3) AS region", "timestamp_seconds(id) AS created_at"
    frame, name = here.spark.range(0, ROWS, 1, 2).selectExpr(*columns), here.topic(2)
    replaced = {"localhost:9092": here.servers, "orders": name}
    receipt = run_python("docs/exports.md", "In one line", 0, replaced, names(frame))["receipt"]
    assert receipt.rows == ROWS == committed(here.kafka, name).total()
    assert name in receipt._repr_html_()


def test_a_stream_in_one_line(here: Here) -> None:
    name, frame = here.topic(2), arriving(here.spark, here.folder / "incoming").withColumnRenamed("value", "tenant_id")
    replaced = {
        "localhost:9092": here.servers, '"payments"': f'"{name}"', "/data": str(here.folder),
        # What is waited for between its micro-batches.
        "10 seconds": "100 milliseconds",
    }  # fmt: skip
    run_python("docs/exports.md", "In one line", 1, replaced, names(frame))
    finish(here.spark)
    assert committed(here.kafka, name) == Counter(f'{{"tenant_id":"{row}"}}' for row in range(ROWS))


@pytest.mark.long
def test_update_mode_by_one_call(here: Here) -> None:
    name, frame = (
        here.topic(2),
        arriving(here.spark, here.folder / "incoming").selectExpr("CAST(value AS INT) % 2 AS tenant_id"),
    )
    replaced = {"localhost:9092": here.servers, '"totals"': f'"{name}"', "/data": str(here.folder)}
    query = run_python("docs/exports.md", "Update mode", 0, replaced, names(frame))["query"]
    query.processAllAvailable()
    query.stop()
    last = {record.key: record.value for _, _, record in here.records(name)}
    assert {f'{{"tenant_id":{n},"count":{ROWS // 2}}}'.encode() for n in range(2)} == set(last.values())


def test_errors_in_python(spark: SparkSession, kafka: LocalKafka, capsys: pytest.CaptureFixture[str]) -> None:
    replaced = {"localhost:9092": kafka.bootstrap_servers}
    run_python("docs/exports.md", "Errors in Python", 0, replaced, names(spark.range(1)))
    of_topic, of_option = capsys.readouterr().out.splitlines()
    assert of_topic.startswith("no-such-topic topic 'no-such-topic' does not exist")
    assert of_option.startswith("unknown option 'topics'. Did you mean 'topic'?")


def test_columns_for_a_schema_registry(spark: SparkSession) -> None:
    words = words_of("docs/schema-registry.md", "Schema Registry", 0, {})
    assert words[:2] == ["pip", "install"]
    orders = spark.sql("SELECT 7L AS order_id, 0.25D AS price")
    rows = run_python("docs/schema-registry.md", "Writing", 0, {}, {**names(orders), "orders": orders})["rows"]
    (row,) = rows.collect()
    # Magic byte, schema id, and Avro's own bytes: of a long 7, as zigzag; of a double.
    assert row.key[:1] == row.value[:1] == b"\x00"
    assert row.key[5:].endswith(b"\x0e")
    assert row.value[5:].endswith(struct.pack("<d", 0.25))


def test_from_topic_to_topic_with_a_schema_registry(here: Here) -> None:
    """A record of the official serializer, with its schema's GUID in a header, and one of `serialized`."""
    orders, large = here.topic(), here.topic()
    frame = here.spark.sql("SELECT 7L AS order_id, 31.5D AS price UNION ALL SELECT 8L, 30D")
    with small_registry("user:password") as registry:
        conf = {"url": registry.url, "basic.auth.user.info": "user:password"}
        replaced = {"http://localhost:8081": registry.url, "localhost:9092": here.servers, "large-orders": large}
        replaced |= {'"orders"': f'"{orders}"', "/data/checkpoints/large-orders": str(here.folder / "checkpoint")}
        value = serialized(frame, frame.columns, topic=orders, form="avro", registry=conf)
        here.save(frame.select(value.alias("value")), orders)
        client = SchemaRegistryClient(conf)
        text = client.get_latest_version(f"{orders}-value").schema.schema_str
        context = SerializationContext(orders, MessageField.VALUE, [])
        of_guid = AvroSerializer(client, text, conf={"schema.id.serializer": header_schema_id_serializer})
        data = of_guid({"order_id": 9, "price": 99.0}, context)
        producer = Producer({"bootstrap.servers": here.servers})
        producer.produce(orders, data, headers=context.headers)
        assert producer.flush(DEADLINE_S) == 0
        run_python("docs/cookbook.md", "Avro in and out", 0, replaced, names(frame))
        finish(here.spark)
        read = AvroDeserializer(client)
        found = [
            tuple(read(data, SerializationContext(large, field)) for data, field in
                  ((record.key, MessageField.KEY), (record.value, MessageField.VALUE)))
            for _, _, record in here.records(large)
        ]  # fmt: skip
    assert sorted(found, key=str) == [
        ({"order_id": 7}, {"order_id": 7, "price": 31.5}), ({"order_id": 9}, {"order_id": 9, "price": 99.0}),
    ]  # fmt: skip


@pytest.mark.long
def test_records_that_cannot_be_decoded_keep_their_bytes_in_another_topic(here: Here) -> None:
    orders, good, bad = here.topic(), here.topic(), here.topic()
    frame = here.spark.sql("SELECT 7L AS order_id, 31.5D AS price")
    with small_registry("user:password") as registry:
        conf = {"url": registry.url, "basic.auth.user.info": "user:password"}
        value = serialized(frame, frame.columns, topic=orders, form="avro", registry=conf)
        unread = here.spark.sql("SELECT X'000000000907' AS value UNION ALL SELECT CAST(NULL AS BINARY)")
        here.save(frame.select(value.alias("value")).union(unread), orders)
        replaced = {"http://localhost:8081": registry.url, "localhost:9092": here.servers, "good-orders": good}
        replaced |= {"bad-orders": bad, "/data/checkpoints/": f"{here.folder}/", '"orders"': f'"{orders}"'}
        run_python("docs/cookbook.md", "Records that cannot be decoded", 0, replaced, names(frame))
        finish(here.spark)
        read = AvroDeserializer(SchemaRegistryClient(conf))
        context = SerializationContext(good, MessageField.VALUE)
        found = [record.value and read(record.value, context) for _, _, record in here.records(good)]
    assert sorted(found, key=str) == [None, {"order_id": 7, "price": 31.5}]
    ((_, _, letter),) = here.records(bad)
    assert letter.value == b"\0\0\0\0\x09\x07"
    assert dict(letter.headers)["pykafka.detail"] == b"the schema registry has no schema with id 9"


def sink(kafka: LocalKafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[str]:
    """The table sales.orders."""
    spark.sql("CREATE DATABASE sales")
    try:
        spark.sql(
            "CREATE TABLE sales.orders USING parquet AS "
            "SELECT id % 7 AS tenant_id, id AS order_id, id * 0.25D AS price, CAST(id AS INT) AS quantity "
            f"FROM range({ROWS})"
        )
        yield "sales.orders"
    finally:
        spark.sql("DROP DATABASE sales CASCADE")


def test_a_typed_export(here: Here, orders: str) -> None:
    name = here.topic(3)
    replaced = {"localhost:9092": here.servers, '"topic": "orders"': f'"topic": "{name}"'}
    run_python("docs/exports.md", "A typed export, every tenant in one partition", 0, replaced, {"spark": here.spark})
    placed = {
        struct.unpack(">q", record.key or b"") + struct.unpack(">qdi", record.value or b""): partition
        for partition, _, record in here.records(name)
    }
    assert placed == {(n, n % 7, n * 0.25, n): n % 7 % 3 for n in range(ROWS)}


# --- coming from elsewhere --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_coming_from_sparks_own_sink(here: Here) -> None:
    name, frame = here.topic(1), arriving(here.spark, here.folder / "incoming")
    replaced = {"localhost:9092": here.servers, '"orders"': f'"{name}"', "/data/checkpoints": str(here.folder)}
    run_python("docs/from-spark-kafka.md", 'Coming from format("kafka")', 0, replaced, names(frame))
    finish(here.spark)
    assert committed(here.kafka, name) == ALL_ONCE


@pytest.mark.long
def test_coming_from_confluent_kafka(here: Here) -> None:
    before, after = here.topic(1), here.topic(1)
    frame = arriving(here.spark, here.folder / "incoming").selectExpr("value", "value AS key")
    replaced = {"localhost:9092": here.servers, '"orders"': f'"{before}"', "/data": f"{here.folder}/before"}
    run_python("docs/from-confluent-kafka.md", "Before and after", 0, replaced, names(frame))
    finish(here.spark)
    replaced |= {'"orders"': f'"{after}"', "/data": f"{here.folder}/after"}
    run_python("docs/from-confluent-kafka.md", "Before and after", 1, replaced, names(frame))
    finish(here.spark)
    assert committed(here.kafka, before) == committed(here.kafka, after) == ALL_ONCE


# --- operations -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_look_before_a_write(here: Here) -> None:
    name = here.topic(2)
    (here.folder / "production.conf").write_text(f"kafka.bootstrap.servers = {here.servers}\n")
    replaced = {"orders": name, "conf/production.conf": "production.conf"}
    ended = run_bash("docs/operations.md", "Before a write: will it work?", 0, replaced, here.folder)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count(f"topic {name}") > 1
    replaced = {"127.0.0.1:27617": here.servers}
    wrong = run_bash("docs/operations.md", "Before a write: will it work?", 1, replaced, here.folder)
    assert wrong.returncode == 1
    said = " ".join(wrong.stdout.split())
    for piece in shown("Before a write: will it work?", "127.0.0.1:27617", here.servers):
        assert piece in said
    replaced = {"localhost:9092": here.servers, "orders": name}
    report = run_python(
        "docs/operations.md", "Before a write: will it work?", 2, replaced, names(numbered(here.spark))
    )["report"]
    assert report.ok and name in report._repr_html_()
    assert not committed(here.kafka, name)


def shown(section: str, address: str, instead: str) -> list[str]:
    """The output that the page shows, in its pieces."""
    (output,) = [b.text for b in blocks("docs/operations.md") if (b.section, b.language) == (section, "text")]
    return [" ".join(piece.split()).replace(address, instead) for piece in output.split("...")]


@pytest.mark.long
def test_rows_that_cannot_be_written(here: Here) -> None:
    name, bad = here.topic(2), here.topic(1)
    frame = here.spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(IF(id = 7, -1, NULL) AS INT) AS partition"
    )
    replaced = {"localhost:9092": here.servers, "tickets-bad": bad, '"tickets"': f'"{name}"'}
    run_python("docs/cookbook.md", "Dead letters, and their return", 0, replaced, names(frame))
    assert committed(here.kafka, name) == ALL_ONCE - Counter(["7"])
    assert committed(here.kafka, bad) == Counter(["7"])


@pytest.mark.long
def test_receipts(here: Here) -> None:
    name, frame = here.topic(2), arriving(here.spark, here.folder / "incoming")
    receipts = {"/data/receipts": f"{here.folder}/receipts"}
    servers = {"localhost:9092": here.servers}
    replaced = {"payments": name, "/data/checkpoints": str(here.folder)} | servers | receipts
    run_python("docs/operations.md", "Receipts: what was written, and is it still there?", 0, replaced, names(frame))
    finish(here.spark)
    given = names(frame)
    after = run_python("docs/operations.md", "Receipts: what was written, and is it still there?", 1, receipts, given)
    written = after["written"]
    assert written.groupBy().sum("record_count").collect()[0][0] == ROWS
    replaced = receipts | servers
    verified = run_bash(
        "docs/operations.md", "Receipts: what was written, and is it still there?", 2, replaced, here.folder
    )
    assert verified.returncode == 0, verified.stdout
    assert f"{ROWS} EQUAL" in verified.stdout


@pytest.mark.long
def test_transactions_are_looked_at_repaired_and_aborted(here: Here) -> None:
    name = here.topic(1)
    query = (
        arriving(here.spark, here.folder / "incoming").writeStream.format("pykafka").options(**sink(here.kafka, name))
        .option("deliveryGuarantee", "exactly-once").option("transactionalIdPrefix", name)
        .option("checkpointLocation", f"{here.folder}/checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(DEADLINE_S)
    replaced = {"localhost:9092": here.servers, "--prefix orders": f"--prefix {name}"}
    more = {"/data/checkpoints/orders": f"{here.folder}/checkpoint"}
    looked = run_bash("docs/operations.md", "When a transaction is left open", 0, replaced | more, here.folder)
    assert looked.returncode == 0, looked.stdout
    assert f"\n{name} " in looked.stdout and "in step" in looked.stdout
    ended = run_bash("docs/operations.md", "When a transaction is left open", 1, replaced, here.folder)
    assert ended.returncode == 0, ended.stdout
    assert committed(here.kafka, name) == ALL_ONCE


@pytest.mark.long
def test_jobs(here: Here, own_session: SparkSession, orders: str) -> None:
    """In this process: that spark-submit runs them so is in test_jobs.py."""
    # The row is of January: a broker that looks at its logs would delete it.
    people = here.topic(1, {"retention.ms": -1})
    name, other, moved, dear = (here.topic(partitions) for partitions in (4, 4, 4, 1))
    (here.folder / "incoming").mkdir()
    (here.folder / "incoming" / "a.json").write_text('{"id": 7, "name": "Ann", "at": "2026-01-31T00:00:00Z"}\n')
    at = {"localhost:9092": here.servers}
    in_folder = at | {"/data/checkpoints": str(here.folder)}

    def run(words: list[str], expected: str) -> None:
        submit, job, *arguments = words
        assert [submit, job] == ["spark-submit", f"jobs/{expected}.py"]
        if expected == "export_to_kafka":
            assert export_to_kafka.export(own_session, export_to_kafka.parse(arguments), threading.Event()) == 0
            return
        if expected == "stream_to_kafka":
            args = stream_to_kafka.parse(arguments)
            query = stream_to_kafka.start(stream_to_kafka.read(own_session, args), args)
        else:
            query = transform_kafka.start(own_session, transform_kafka.parse(arguments))
        stream_support.follow(query, threading.Event(), StreamTally(own_session))

    replaced = in_folder | {"/data/incoming": f"{here.folder}/incoming", "--topic people": f"--topic {people}"}
    run(words_of("docs/operations.md", "Jobs", 0, replaced), "stream_to_kafka")
    ((_, _, record),) = here.records(people)
    assert (record.key, json.loads(record.value or b"")["name"]) == (b"7", "Ann")

    run(words_of("docs/operations.md", "Jobs", 1, at | {"--topic orders": f"--topic {name}"}), "export_to_kafka")
    preset = {"conf/throughput.conf": f"{ROOT}/conf/throughput.conf", "--topic orders": f"--topic {other}"}
    run(words_of("docs/tuning.md", "Tuning", 0, at | preset), "export_to_kafka")
    assert sum(committed(here.kafka, other).values()) == ROWS

    replaced = {"--subscribe orders,returns": f"--subscribe {people},{name}", "--topic movements": f"--topic {moved}"}
    replaced |= in_folder | {"=movements": f"={moved}"}
    run(words_of("docs/operations.md", "Jobs", 2, replaced), "transform_kafka")
    assert len(committed(here.kafka, moved)) == 1 + ROWS

    replaced = {"--subscribe orders": f"--subscribe {name}", "--topic large-orders": f"--topic {dear}"}
    replaced |= in_folder | {"=large-orders": f"={dear}"}
    run(words_of("docs/topic-to-topic.md", "From topic to topic", 1, replaced), "transform_kafka")
    assert sorted(json.loads(value)["quantity"] for value in committed(here.kafka, dear)) == list(range(31, ROWS))

    replaced = {"jobs/": f"{ROOT}/jobs/", "--topic orders": f"--topic {name}", "--group billing": f"--group {name}"}
    read = run_bash("docs/operations.md", "Jobs", 3, replaced | at, here.folder)
    assert read.returncode == 0, read.stdout
    assert f"{ROWS} records" in read.stdout
