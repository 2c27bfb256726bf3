"""The recipes of the cookbook, run with one Spark and one broker, and what the page says that they print. Elsewhere:
Avro, moving, exactly-once (test_documentation.py), a stream that is watched (test_monitoring.py)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

import kafka_sink
from broker_admin import read_values
from code_blocks import blocks, run_bash, run_python, save_block
from kafka_sink.broker import LocalKafka

pytestmark = pytest.mark.long

PAGE = "docs/cookbook.md"
FOREVER = {"retention.ms": -1}


class Kitchen:
    """A broker with the page's topics, the page's names, and a folder instead of /data."""

    def __init__(self, kafka: LocalKafka, spark: SparkSession, folder: Path) -> None:
        self.kafka, self.spark, self.folder = kafka, spark, folder
        self.servers = {"localhost:9092": kafka.bootstrap_servers}
        self.data = {"/data/": f"{folder}/"}
        self.names = dict[str, Any]()

    def topic(self, name: str, *rows: tuple[str | None, str | None], partitions: int = 2) -> None:
        """Create `name` with these keys and values."""
        self.kafka.create_topic(name, partitions, config=FOREVER)
        if rows:
            self.write(name, self.spark.createDataFrame(rows, "key STRING, value STRING"))

    def write(self, name: str, frame: Any) -> None:
        kafka_sink.export(frame.coalesce(1), name, bootstrap_servers=self.kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def at(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    with LocalKafka() as kafka:
        kitchen = Kitchen(kafka, spark, tmp_path_factory.mktemp("data"))
        kitchen.names = run_python("docs/cookbook.md", "Cookbook", 0, kitchen.servers, {})
        yield kitchen


def shown(section: str) -> list[str]:
    """What the page says that the recipe prints."""
    (output,) = [block.text for block in blocks(PAGE) if (block.section, block.language) == (section, "text")]
    return output.splitlines()


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_events_are_counted_by_the_hour(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    times = ("/home", "10:05"), ("/home", "10:59"), ("/help", "10:30"), ("/home", "11:05"), ("/home", "11:20")
    at.topic("clicks", *((None, f'{{"page": "{page}", "at": "2026-11-01T{time}:00Z"}}') for page, time in times))
    run_python("docs/cookbook.md", "JSON events, counted by the hour, to a topic", 0, at.data, at.names)
    assert printed(capsys) == shown("JSON events, counted by the hour, to a topic")


def test_two_topics_are_joined(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    orders = ("10:00", "10:30", "10:45")
    rows = (f'{{"order_id": {n}, "amount": {n}.5, "at": "2026-11-01T{time}:00Z"}}' for n, time in enumerate(orders))
    at.topic("orders", *((None, row) for row in rows))
    paid = (0, "10:20"), (1, "11:40"), (2, "11:45")
    rows = (f'{{"paid": {n}, "paid_at": "2026-11-01T{time}:00Z"}}' for n, time in paid)
    at.topic("payments", *((None, row) for row in rows))
    run_python("docs/cookbook.md", "Join two topics", 0, at.data, at.names)
    assert printed(capsys) == shown("Join two topics")


def test_changes_of_a_database_become_a_table_and_a_topic(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    def change(op: str, identity: int, name: str) -> tuple[str, str]:
        after = "null" if op == "d" else f'{{"id": {identity}, "name": "{name}"}}'
        return f'{{"id": {identity}}}', f'{{"op": "{op}", "after": {after}}}'

    at.topic("shop.customers", change("r", 1, "Anne"), change("c", 2, "Bob"), change("c", 3, "Cy"))
    at.topic("customers")
    section = "CDC: Debezium to a table, and the table to a topic"
    run_python("docs/cookbook.md", "CDC: Debezium to a table, and the table to a topic", 0, at.data, at.names)
    assert len(read_values(at.kafka, "customers")) == 3
    rows = change("u", 1, "An"), change("u", 1, "Ann"), change("d", 2, ""), ('{"id": 2}', None)
    at.write("shop.customers", at.spark.createDataFrame(rows, "key STRING, value STRING"))
    at.kafka.create_topic("customers-2", 1)
    capsys.readouterr()
    replaced = at.data | {'"customers"': '"customers-2"'}
    run_python("docs/cookbook.md", "CDC: Debezium to a table, and the table to a topic", 0, replaced, at.names)
    assert printed(capsys) == shown(section)


def test_rows_fan_out_to_topics(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    at.topic("orders-eu")
    at.topic("orders-us")
    regions = "eu", "us", "eu"
    at.topic("all-orders", *((None, f'{{"order_id": {n}, "region": "{each}"}}') for n, each in enumerate(regions)))
    run_python("docs/cookbook.md", "Fan out to topics by a column", 0, at.data, at.names)
    assert printed(capsys) == shown("Fan out to topics by a column")


def test_an_hour_is_replayed(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    at.topic("measurements", partitions=1)
    times = "09:59:59", "10:00:00", "10:30:00", "11:00:00"
    rows = (f"SELECT 'a' AS key, '{time}' AS value, TIMESTAMP '2026-11-01 {time}Z' AS timestamp" for time in times)
    at.write("measurements", at.spark.sql(" UNION ALL ".join(rows)))
    run_python("docs/cookbook.md", "Replay an hour", 0, {}, at.names)
    assert printed(capsys) == shown("Replay an hour")
    again = at.names["read_topic"]("measurements-again").selectExpr(
        "CAST(value AS STRING)", "CAST(timestamp AS STRING)"
    )
    assert sorted(map(tuple, again.collect())) == [(time, f"2026-11-01 {time}") for time in times[1:3]]


def test_a_backfill_is_written_once(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    history = "SELECT id AS order_id, timestamp_seconds(1793491200 + id * 43200) AS at FROM range(4)"
    at.spark.sql(history).write.parquet(f"{at.folder}/lake/orders")
    run_python("docs/cookbook.md", "Backfill from a lakehouse", 0, at.data, at.names)
    first = printed(capsys)
    assert first == shown("Backfill from a lakehouse")
    run_python("docs/cookbook.md", "Backfill from a lakehouse", 0, at.data, at.names)
    again = printed(capsys)
    assert again == ["2026-11-01 None", "2026-11-02 None", *first[2:]]


def test_dead_letters_return_once(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    at.topic("tickets")
    at.topic("tickets-bad")
    rows = at.spark.sql(
        "SELECT CAST(id AS STRING) AS value, CAST(IF(id = 7, 99, NULL) AS INT) AS partition FROM range(9)"
    )
    names = at.names | {"df": rows}
    run_python("docs/cookbook.md", "Dead letters, and their return", 0, at.servers, names)
    assert list(read_values(at.kafka, "tickets-bad")) == [b"7"]
    for _ in range(2):
        run_python("docs/cookbook.md", "Dead letters, and their return", 1, at.data, at.names)
        assert printed(capsys) == shown("Dead letters, and their return")


def test_a_query_takes_over_from_a_consumer_group(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    at.topic("bills", *((None, f"bill {n}") for n in range(5)), partitions=1)
    consumer = Consumer({**{"bootstrap.servers": at.kafka.bootstrap_servers}, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("bills", 0, 3)], asynchronous=False)
    consumer.close()
    run_python("docs/cookbook.md", "Take over from a consumer group, Flink or Connect", 0, at.data, at.names)
    assert printed(capsys) == shown("Take over from a consumer group, Flink or Connect")


def test_a_rate_is_limited(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/cookbook.md", "Limit the rate", 0, {}, at.names)
    assert printed(capsys) == shown("Limit the rate")


def test_people_are_erased(at: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    at.topic("profiles", *((f"user-{n}", f"profile {n}") for n in (7, 8)), partitions=1)
    run_python("docs/cookbook.md", "Erase people: tombstones", 0, {}, at.names)
    assert printed(capsys) == shown("Erase people: tombstones")


def test_a_pipeline_is_tested_by_the_packages_fixture(at: Kitchen) -> None:
    """A run of its own, in a folder without this project's conftest."""
    save_block("docs/cookbook.md", "Test your own pipeline", 0, {}, at.folder / "test_pipeline.py")
    ended = run_bash("docs/cookbook.md", "Test your own pipeline", 1, {}, at.folder)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout
