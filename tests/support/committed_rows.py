"""Reads topics with other clients than ours: which rows readers see, and which transactions are open."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_sink.broker import LocalKafka

DEADLINE_S = 60
PARTITION_EOF = -191
# Of TransactionState in Kafka: all others are of transactions that have ended, or never began.
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def read(kafka: LocalKafka, topic: str, isolation: str = "read_committed") -> Counter[int]:
    """Count how often each row can be read. Only rows that are numbers count."""
    return Counter({int(value): times for value, times in read_values(kafka, topic, isolation).items()})


def read_values(kafka: LocalKafka, topic: str, isolation: str = "read_committed") -> Counter[bytes]:
    """Count how often each value can be read."""
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": f"reader-{isolation}", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": isolation, "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    rows: Counter[bytes] = Counter()
    ended: set[int] = set()
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "the topic could not be read to its end"
            error = message.error()
            if error is None:
                rows[message.value() or b""] += 1
            elif error.code() == PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return rows


def held_back(kafka: LocalKafka, topic: str) -> int:
    """Count the offsets of the topic that read_committed readers cannot reach because of an open transaction."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends", "isolation.level": isolation}
        consumer = Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
            ends.append(
                sum(
                    consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)[1]
                    for partition in partitions
                )
            )
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
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    while listed.errors:  # of librdkafka's connections to the bootstrap servers, which it gives up
        listed = admin.list_consumer_groups().result(DEADLINE_S)
    return sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))


def leader(kafka: LocalKafka, topic: str, partition: int) -> int:
    """Return the node id of the partition's leader, -1 if it has no leader."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return int(client.list_topics(topic, DEADLINE_S).topics[topic].partitions[partition].leader)


def group_coordinator(kafka: LocalKafka, group: str) -> int:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return int(client.describe_consumer_groups([group])[group].result(DEADLINE_S).coordinator.id)
