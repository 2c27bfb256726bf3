"""Consumer groups of a sink are deleted by an admin client, or expire: rows that are committed are not written again,
whatever else says that they are, and if nothing does the query stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from committed_rows import open_transactions, read
from exactly_once_runs import ALL_ONCE, DEADLINE_S, finish_run, go_on, incoming, is_unrecorded
from here import Here
from kafka_sink.broker import LocalKafka
from variants import variants
from waiting import wait_until

BOTH = ("{}.0", "{}.1")
ALL = (*BOTH, "{}.decision")
WAITED_S = 30


def delete_groups(kafka: LocalKafka, groups: Sequence[str]) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in client.delete_consumer_groups(list(groups), request_timeout=WAITED_S).values():
        deleted.result()


def write_all(spark: SparkSession, kafka: LocalKafka, name: str, folder: Path, *arguments: str) -> None:
    incoming(folder / "incoming")
    go_on(spark, kafka, name, folder, *arguments)
    is_unrecorded(folder)


@pytest.mark.parametrize("groups", variants(BOTH, BOTH[:1], BOTH[1:]))
def test_slots_whose_groups_are_deleted_are_not_written_again(here: Here, groups: Sequence[str]) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    delete_groups(here.kafka, [group.format(name) for group in groups])
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
def test_nor_are_slots_of_which_nothing_proves_that_they_are_committed(here: Here) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    # Tasks that find their rows visible begin even so, and their coordinators forget what was before.
    go_on(here.spark, here.kafka, name, here.folder)
    is_unrecorded(here.folder)
    delete_groups(here.kafka, [f"{name}.1"])
    for _ in range(2):
        status, said = finish_run(here.spark, here.kafka, name, here.folder)
        assert (status, "whether slot 1 of micro-batch 2" in said) == (1, True), said
    assert read(here.kafka, name) == ALL_ONCE
    assert open_transactions(here.kafka, name) == []


@pytest.mark.long
@pytest.mark.parametrize("groups", [ALL[2:], ALL])
def test_nor_is_anything_after_a_decision_that_was_deleted(here: Here, groups: Sequence[str]) -> None:
    name = here.topic(3)
    write_all(here.spark, here.kafka, name, here.folder)
    delete_groups(here.kafka, [group.format(name) for group in groups])
    status, said = finish_run(here.spark, here.kafka, name, here.folder)
    assert (status, "nothing is known of what query" in said) == (1, True), said
    assert read(here.kafka, name) == ALL_ONCE


@pytest.mark.chaos
def test_nor_are_slots_whose_offsets_have_expired(spark: SparkSession, tmp_path: Path) -> None:
    """After a minute, the shortest time that brokers take."""
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
    # A transaction has to end before the brokers forget.
    sooner = ("kafka.transaction.timeout.ms=50000", "kafka.delivery.timeout.ms=40000")
    with LocalKafka(nodes=1, config=settings) as forgetful:
        forgetful.create_topic("t", 3)
        write_all(spark, forgetful, "t", tmp_path, *sooner)
        client = AdminClient({"bootstrap.servers": forgetful.bootstrap_servers})

        def are_gone() -> bool:
            listed = client.list_consumer_groups(request_timeout=WAITED_S).result()
            return not {each.group_id for each in listed.valid} & {"t.0", "t.1", "t.decision"}

        wait_until(are_gone, DEADLINE_S, "the groups expire")
        status, said = finish_run(spark, forgetful, "t", tmp_path, *sooner)
        assert (status, "nothing is known of what query" in said) == (1, True), said
        assert read(forgetful, "t") == ALL_ONCE
