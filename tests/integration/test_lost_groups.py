"""Consumer groups of a sink. An admin client deletes them, or they expire: rows that are committed are not written
again, whatever else says that they are, and if nothing does the query stops. A batch write without `txnAppId` leaves
none."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from broker_admin import groups, open_transactions, read, transactions
from effort import variants
from exactly_once_runs import (
    ALL_ONCE,
    finish_run,
    go_on,
    incoming,
    is_unrecorded,
    own_workers,
    plan,
    run_tasks,
    write_batch,
)
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.cli import transactions as command
from kafka_sink.commit.handover import Sink
from kafka_sink.options.config import given_options
from kafka_sink.spark.exactly_once import plan as planning
from kafka_sink.spark.writer import KafkaBatchWriter
from spark_writes import Here

BOTH = ("{}.0", "{}.1")
ALL = (*BOTH, "{}.decision")
WAITED_S = 30


def delete_groups(kafka: LocalKafka, names: Sequence[str]) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in client.delete_consumer_groups(list(names), request_timeout=WAITED_S).values():
        deleted.result()


def write_all(spark: SparkSession, kafka: LocalKafka, name: str, folder: Path, *arguments: str) -> None:
    incoming(folder / "incoming")
    go_on(spark, kafka, name, folder, *arguments)
    is_unrecorded(folder)


@pytest.mark.parametrize("lost", variants(BOTH, BOTH[:1], BOTH[1:]))
def test_slots_whose_groups_are_deleted_are_not_written_again(here: Here, lost: Sequence[str]) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    delete_groups(here.kafka, [group.format(name) for group in lost])
    go_on(here.spark, here.kafka, name, here.folder)
    assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == ALL_ONCE
    assert open_transactions(here.kafka, name) == []


@pytest.mark.long
def test_nor_are_slots_whose_offsets_are_deleted_and_their_groups_stay(here: Here) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    for group in BOTH:
        here.kafka.run_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
            here.servers, "--delete-offsets", "--group", group.format(name), "--topic", "pykafka-commits:0",
        )  # fmt: skip
    go_on(here.spark, here.kafka, name, here.folder)
    assert read(here.kafka, name) == ALL_ONCE


@pytest.mark.long
@pytest.mark.parametrize("lost", [ALL[2:], ALL])
def test_nor_is_anything_after_a_decision_that_was_deleted(here: Here, lost: Sequence[str]) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    delete_groups(here.kafka, [group.format(name) for group in lost])
    status, said = finish_run(here.spark, here.kafka, name, here.folder)
    assert (status, "nothing is known of what query" in said) == (1, True), said
    assert read(here.kafka, name) == ALL_ONCE


# --- groups that batch writes leave behind ------------------------------------------------------------------------

ROWS = [[str(slot)] for slot in range(8)]
ONCE = Counter(range(8))


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, pytest.param("3.9.2", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    if request.param == DEFAULT_KAFKA_VERSION:
        yield request.getfixturevalue("kafka")
        return
    with LocalKafka(nodes=3, kafka_version=request.param) as kafka:
        yield kafka


def options(kafka: LocalKafka, topic: str, **more: str) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    return given_options({**servers, "deliveryGuarantee": "exactly-once", **more})


def said_of(kafka: LocalKafka, name: str, sink: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command.main([name, "--bootstrap-servers", kafka.bootstrap_servers, "--prefix", sink]) == 0
    return capsys.readouterr().out


def test_a_batch_write_leaves_no_group_and_its_transactions_tell_what_became_of_it(
    cluster: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("export", 2)
    write_batch(options(cluster, "export", transactionalIdPrefix="export"), ROWS)
    assert groups(cluster, "export.") == []
    assert read(cluster, "export") == ONCE
    found = transactions(cluster, "export")
    assert len(found) == 1 + len(ROWS)
    (sink,) = {name.rpartition(".")[0] for name in found}
    for name in ("describe", "repair"):
        said = said_of(cluster, name, sink, capsys)
        assert "Decision: made, and no longer stored" in said
        assert "committed transactions of slots: 8 of 8\n" in said
        assert "not visible" not in said
    # Spark runs abort after a commit whose process died before it could say that it was done.
    given = options(cluster, "export", transactionalIdPrefix="export")
    with own_workers():
        planned = plan(KafkaBatchWriter(given))
        receipts = run_tasks(planned, ROWS)
        planned.commit(receipts)
        planned.abort(receipts)
    assert read(cluster, "export") == ONCE + ONCE


def test_a_decision_of_several_groups_is_deleted_whole(cluster: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("long", 1)
    monkeypatch.setattr(planning, "Sink", partial(Sink, metadata_max_characters=120))
    write_batch(options(cluster, "long", transactionalIdPrefix="long"), ROWS)
    assert groups(cluster, "long.") == []
    assert read(cluster, "long") == ONCE
