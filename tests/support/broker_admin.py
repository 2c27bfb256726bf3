"""What another client than ours changes in a cluster: topics, records, quotas. Each call returns when it is done."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from kafka_sink.broker import LocalKafka
from kafka_sink.broker.settings import Node
from waiting import wait_until

DEADLINE_S = 60


class RackedKafka(LocalKafka):
    """Each node in a rack of its own."""

    def _settings(self, node: Node) -> dict[str, str]:
        return {**super()._settings(node), "broker.rack": f"rack-{node.node_id}"}


def admin(kafka: LocalKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def producer(kafka: LocalKafka, **settings: Any) -> Producer:
    """On a busy machine a test may hold a transaction open for longer than the minute that is librdkafka's default."""
    patient = {"transaction.timeout.ms": 900_000} if "transactional.id" in settings else {}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **patient, **settings})


def topics(kafka: LocalKafka) -> set[str]:
    return set(admin(kafka).list_topics(timeout=DEADLINE_S).topics)


def partition_count(kafka: LocalKafka, topic: str) -> int:
    return len(admin(kafka).list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)


def delete_topic(kafka: LocalKafka, topic: str) -> None:
    client = admin(kafka)  # held: without it what it was asked for is broken off
    client.delete_topics([topic])[topic].result(DEADLINE_S)
    wait_until(lambda: topic not in topics(kafka), DEADLINE_S, f"{topic} is gone")


def create_again(kafka: LocalKafka, topic: str, partitions: int = 1) -> None:
    delete_topic(kafka, topic)
    kafka.create_topic(topic, partitions)


def add_partitions(kafka: LocalKafka, topic: str, count: int) -> None:
    client = admin(kafka)
    client.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)


def delete_records(kafka: LocalKafka, topic: str, before: int, partition: int = 0) -> None:
    client = admin(kafka)
    for deleted in client.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(DEADLINE_S)
    start = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    for earliest in client.list_offsets({TopicPartition(topic, partition): start}).values():
        assert earliest.result(DEADLINE_S).offset == before


def limit(kafka: LocalKafka, client_id: str, **bytes_per_s: int) -> None:
    """Give a client id a quota: `producer_byte_rate` or `consumer_byte_rate`."""
    quota = ",".join(f"{name}={rate}" for name, rate in bytes_per_s.items())
    kafka.run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, "--alter",
        "--entity-type", "clients", "--entity-name", client_id, "--add-config", quota,
    )  # fmt: skip


def send(of: Producer, topic: str, values: Iterable[bytes], **more: Any) -> None:
    """Write values into partition 0, unless `more` names another, as all others that librdkafka takes."""
    for value in values:
        of.produce(topic, value, **{"partition": 0, "on_delivery": _delivered, **more})
    assert of.flush(DEADLINE_S) == 0


def produce(kafka: LocalKafka, topic: str, *counts: int, **settings: Any) -> None:
    """Write the numbers below each count into partitions 0, 1, ..."""
    of = producer(kafka, **settings)
    for partition, count in enumerate(counts):
        send(of, topic, (b"%d" % number for number in range(count)), partition=partition)


def _delivered(error: object, message: object) -> None:
    assert error is None, error
