"""A topic that is deleted and created again between a decided micro-batch and its replay, on real brokers: the replay
writes nothing, as its rows were committed, and says that they went with the old topic."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_admin import create_again, delete_topic, read
from exactly_once_runs import QUERY_ID, write_batch, write_micro_batch
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.cli import transactions
from kafka_sink.kafka.admin.client import AdminClient as SinkClient
from kafka_sink.options.config import given_options, sink_config

ROWS = [["1", "2"], ["3"]]
ONCE = Counter([1, 2, 3])


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, pytest.param("3.9.2", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(kafka_version=request.param) as kafka:
        yield kafka


def client_of(kafka: LocalKafka) -> SinkClient:
    return SinkClient(sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer)


def topic_id(kafka: LocalKafka, topic: str) -> str:
    with closing(client_of(kafka)) as client:
        return str(client.topic_ids((topic,))[topic])


def options(kafka: LocalKafka, topic: str, **more: str) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    return given_options({**servers, "deliveryGuarantee": "exactly-once", **more})


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("kafka_sink.spark.exactly_once")]


def status_of(kafka: LocalKafka, sink: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (folder / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    capsys.readouterr()
    line = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", sink, "--checkpoint", str(folder)]
    assert transactions.main(["status", *line]) == 0
    return capsys.readouterr().out


def test_a_replayed_micro_batch_says_that_its_rows_went_with_the_old_topic(
    cluster: LocalKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("orders", 2)
    given = options(cluster, "orders", transactionalIdPrefix="orders")
    write_micro_batch(given, ROWS, 0)
    write_micro_batch(given, ROWS, 0)
    assert read(cluster, "orders") == ONCE
    assert warnings_of(caplog) == []
    old_id = topic_id(cluster, "orders")
    assert "topic id" not in status_of(cluster, "orders", tmp_path, capsys)
    delete_topic(cluster, "orders")
    gone = f"Topic orders (topic id {old_id}) was deleted, with its rows."
    assert gone in status_of(cluster, "orders", tmp_path, capsys)
    cluster.create_topic("orders", 2)
    new_id = topic_id(cluster, "orders")
    ids = f"(topic id {old_id} is now {new_id})"
    assert f"Topic orders was deleted and created again after the decision {ids}" in status_of(
        cluster, "orders", tmp_path, capsys
    )
    write_micro_batch(given, ROWS, 0)
    (warned,) = warnings_of(caplog)
    assert f"topic 'orders' was deleted and created again after micro-batch 0 was decided {ids}" in warned
    assert "are not written again" in warned
    assert read(cluster, "orders", "read_uncommitted") == Counter()
    # The next one is of the new topic, and so is its decision.
    write_micro_batch(given, ROWS, 1)
    write_micro_batch(given, ROWS, 1)
    assert len(warnings_of(caplog)) == 1
    assert "topic id" not in status_of(cluster, "orders", tmp_path, capsys)
    assert read(cluster, "orders") == ONCE


def test_a_version_says_that_its_rows_went_with_the_old_topic(
    cluster: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("daily", 2)
    given = options(cluster, "daily", txnAppId="daily", txnVersion="0")
    write_batch(given, ROWS)
    old_id = topic_id(cluster, "daily")
    create_again(cluster, "daily", 2)
    write_batch(given, ROWS)
    warned, passed_over = warnings_of(caplog)
    ids = f"(topic id {old_id} is now {topic_id(cluster, 'daily')})"
    assert (
        f"topic 'daily' was deleted and created again after txnVersion 0 of txnAppId 'daily' was decided {ids}"
        in warned
    )
    assert "higher txnVersion" in warned
    assert "writes nothing (3 rows were read)" in passed_over
    assert read(cluster, "daily", "read_uncommitted") == Counter()
    write_batch(given | {"txn_version": 1}, ROWS)
    assert read(cluster, "daily") == ONCE


def test_to_code_without_ids_an_id_is_a_topic_that_no_broker_has(cluster: LocalKafka) -> None:
    """It asks for the partitions of all that a decision lists, and takes those that there are."""
    cluster.create_topic("listed", 2)
    with closing(client_of(cluster)) as client:
        led, leaderless = client.partitions(("listed", "@" + "zEjkRrZ5RfyIE2oYl2Jm9A"))
    assert (led, leaderless) == ((("listed", 0), ("listed", 1)), ())
