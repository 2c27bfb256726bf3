"""Consumer groups of a sink are deleted by an admin client, or expire: rows that are committed are not written again,
whatever else says that they are, and if nothing does the query stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from committed_rows import open_transactions, read
from exactly_once_runs import ALL_ONCE, DEADLINE_S, FILES, finish_run, incoming, is_unrecorded
from kafka_sink.broker import LocalKafka
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
    assert finish_run(spark, kafka, name, folder, *arguments) == (0, "")
    is_unrecorded(folder)


@pytest.mark.parametrize("groups", [BOTH[:1], BOTH[1:], BOTH])
def test_slots_whose_groups_are_deleted_are_not_written_again(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, groups: Sequence[str]
) -> None:
    name = topic(3)
    write_all(spark, kafka, name, tmp_path)
    delete_groups(kafka, [group.format(name) for group in groups])
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    assert read(kafka, name) == read(kafka, name, "read_uncommitted") == ALL_ONCE
    assert open_transactions(kafka, name) == []


def test_nor_are_they_over_brokers_with_the_older_transactions(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKafka(nodes=1, kafka_version="3.9.2") as older:
        older.create_topic("t", 3)
        write_all(spark, older, "t", tmp_path)
        delete_groups(older, ["t.0", "t.1"])
        assert finish_run(spark, older, "t", tmp_path) == (0, "")
        assert read(older, "t") == ALL_ONCE


def test_nor_are_slots_whose_offsets_are_deleted_and_their_groups_stay(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    write_all(spark, kafka, name, tmp_path)
    for group in BOTH:
        kafka.run_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
            kafka.bootstrap_servers, "--delete-offsets", "--group", group.format(name), "--topic", "pykafka-commits:0",
        )  # fmt: skip
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    assert read(kafka, name) == ALL_ONCE


def test_nor_are_slots_of_which_nothing_proves_that_they_are_committed(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    write_all(spark, kafka, name, tmp_path)
    # Tasks that find their rows visible begin even so, and their coordinators forget what was before.
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    is_unrecorded(tmp_path)
    delete_groups(kafka, [f"{name}.1"])
    for _ in range(2):
        status, said = finish_run(spark, kafka, name, tmp_path)
        assert (status, "whether slot 1 of micro-batch 2" in said) == (1, True), said
    assert read(kafka, name) == ALL_ONCE
    assert open_transactions(kafka, name) == []


@pytest.mark.parametrize("groups", [ALL[2:], ALL])
def test_nor_is_anything_after_a_decision_that_was_deleted(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, groups: Sequence[str]
) -> None:
    name = topic(3)
    write_all(spark, kafka, name, tmp_path)
    delete_groups(kafka, [group.format(name) for group in groups])
    status, said = finish_run(spark, kafka, name, tmp_path)
    assert (status, "nothing is known of what query" in said) == (1, True), said
    assert read(kafka, name) == ALL_ONCE


@pytest.mark.parametrize(("groups", "is_decision_lost"), [(BOTH, False), (ALL, True)])
def test_nor_is_the_first_micro_batch(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    groups: Sequence[str],
    is_decision_lost: bool,
) -> None:
    name, in_one = topic(3), ("--files", f"{FILES}")
    write_all(spark, kafka, name, tmp_path, *in_one)
    delete_groups(kafka, [group.format(name) for group in groups])
    status, said = finish_run(spark, kafka, name, tmp_path, *in_one)
    assert (status, "nothing is known of what query" in said) == (int(is_decision_lost), is_decision_lost), said
    assert read(kafka, name) == ALL_ONCE


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
