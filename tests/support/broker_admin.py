"""What another client than ours changes in a cluster, each call until it is done: topics, records, quotas. And what it
reads: which rows readers see, and which transactions are open."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from kafka_sink.broker import LocalKafka
from kafka_sink.broker.settings import Node
from kafka_sink.cli.verification.cluster import ELECTED
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


PARTITION_EOF = -191
# Of TransactionState in Kafka: all others are of transactions that have ended, or never began.
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def read(kafka: LocalKafka, topic: str, isolation: str = "read_committed") -> Counter[int]:
    """Count how often each row can be read. Only rows that are numbers count."""
    return Counter({int(value): times for value, times in read_values(kafka, topic, isolation).items()})


def read_values(kafka: LocalKafka, topic: str, isolation: str = "read_committed") -> Counter[bytes]:
    """Count how often each value can be read."""
    messages = read_on(kafka.bootstrap_servers, topic, {}, isolation)
    return Counter(message.value() or b"" for message in messages)


def read_on(
    servers: str, topic: str, positions: dict[int, int], isolation: str = "read_committed"
) -> Iterator[Message]:
    """Yield each record once, to where its partition ended when this began. Later writes do not keep it going.

    `positions`: from where on (default: the start), and in the end how far, by partition. Records behind the ends may
    be read.
    """
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": f"reader-{isolation}", "enable.auto.commit": False,
        "auto.offset.reset": "error" if positions else "earliest", "isolation.level": isolation,
        "enable.partition.eof": True, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        ends = ends_of(consumer, topic)
        positions |= dict.fromkeys(ends.keys() - positions.keys(), 0)
        consumer.assign([TopicPartition(topic, partition, positions[partition]) for partition in ends])
        while any(positions[partition] < end for partition, end in ends.items()):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{topic} could not be read to its end"
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None and error.code() != PARTITION_EOF:
                raise KafkaException(error)
            assert partition is not None and offset is not None
            if offset < positions[partition]:
                continue
            # An end that is less than the known one is of a leader that was just elected, and hands out the others
            # later.
            positions[partition] = offset if error else offset + 1
            if positions[partition] >= ends[partition]:
                # Else its later records would hide that another partition hands out none.
                consumer.pause([TopicPartition(topic, partition)])
            if error is None:
                yield message
    finally:
        consumer.close()


def ends_of(consumer: Consumer, topic: str) -> dict[int, int]:
    """Return the end of each partition: of a read_committed consumer the first open transaction, if there is one."""
    return {
        partition: _end_of(consumer, TopicPartition(topic, partition))
        for partition in consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
    }


def _end_of(consumer: Consumer, place: TopicPartition) -> int:
    """A leader that was just elected does not tell it until it knows it (KIP-207)."""
    found: list[int] = []

    def tells() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(place, DEADLINE_S)[1])
        except KafkaException as error:
            assert error.args[0].code() in ELECTED, error
        return bool(found)

    wait_until(tells, DEADLINE_S, f"the end of {place}")
    return found[0]


def held_back(kafka: LocalKafka, topic: str) -> int:
    """Count the offsets of the topic that read_committed readers cannot reach because of an open transaction."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends", "isolation.level": isolation}
        consumer = Consumer(settings)
        try:
            ends.append(sum(ends_of(consumer, topic).values()))
        finally:
            consumer.close()
    stable, all_written = ends
    return all_written - stable


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    coordinator: int
    state: str


def transactions(kafka: LocalKafka, sink: str) -> Mapping[str, ListedTransaction]:
    """Return the sink's transactions by transactional id, as Kafka's own tool lists them."""
    listed = kafka.run_tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", kafka.bootstrap_servers, "list"
    )
    rows = [line.split() for line in listed.splitlines()[1:]]
    return {
        name: ListedTransaction(int(coordinator), state)
        for name, coordinator, _, state in filter(None, rows)
        if name.startswith(f"{sink}.")
    }


def open_transactions(kafka: LocalKafka, sink: str) -> list[str]:
    return sorted(name for name, found in transactions(kafka, sink).items() if found.state in OPEN_STATES)


def groups(kafka: LocalKafka, prefix: str) -> list[str]:
    """Return the groups whose names begin with the prefix."""
    client = admin(kafka)
    listed = client.list_consumer_groups().result(DEADLINE_S)
    while listed.errors:  # of librdkafka's connections to the bootstrap servers, which it gives up
        listed = client.list_consumer_groups().result(DEADLINE_S)
    return sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))


def leader(kafka: LocalKafka, topic: str, partition: int) -> int:
    """Return the node id of the partition's leader, -1 if it has no leader."""
    return int(admin(kafka).list_topics(topic, DEADLINE_S).topics[topic].partitions[partition].leader)


def group_coordinator(kafka: LocalKafka, group: str) -> int:
    client = admin(kafka)
    return int(client.describe_consumer_groups([group])[group].result(DEADLINE_S).coordinator.id)
