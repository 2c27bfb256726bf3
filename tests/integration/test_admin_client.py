"""Transactions on real brokers, begun by one client and ended by another, as read by librdkafka."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.errors import CommitTopicMissing, CoordinatorUnavailable
from kafka_sink.kafka.admin.client import AdminClient as SinkClient
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
)
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from kafka_sink.kafka.protocol.apis.describe_producers import (
    DescribeProducersRequest,
)
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.end_txn import (
    EndTxnRequest,
)
from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
)
from kafka_sink.kafka.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
)
from kafka_sink.kafka.protocol.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
)
from kafka_sink.kafka.protocol.apis.offset_fetch import (
    GroupOffset,
    OffsetFetchRequest,
)
from kafka_sink.kafka.protocol.apis.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from kafka_sink.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
)
from kafka_sink.kafka.protocol.apis.write_txn_markers import (
    WriteTxnMarkersRequest,
)
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.config import sink_config
from one_broker import ask_broker
from waiting import wait_until

DEADLINE_S = 60
OLD = "3.9.2"
GROUP, TXN = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
NONE, INVALID_TXN_STATE, NOT_FOUND, FENCED = 0, 48, 105, 90
UNKNOWN_PARTITION, NOT_LEADER, CONCURRENT = 3, 6, 51
STATE = "commit-state"
ALL = 1_000_000
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, OLD])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    if request.param == DEFAULT_KAFKA_VERSION:
        yield request.getfixturevalue("kafka")
        return
    with LocalKafka(kafka_version=request.param) as kafka:
        yield kafka


def config(kafka: LocalKafka, **options: Any) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "30000"}).producer
    return replace(made, **options)


@pytest.fixture
def client(cluster: LocalKafka) -> Iterator[SinkClient]:
    made = SinkClient(config(cluster))
    ensure_commit_topic(made, STATE)
    yield made
    made.close()


@pytest.fixture
def other(cluster: LocalKafka) -> Iterator[SinkClient]:
    """With connections of its own."""
    made = SinkClient(config(cluster))
    yield made
    made.close()


def ask(client: SinkClient, kind: CoordinatorKind, key: str, request: Any) -> Any:
    (response,) = client.ask_all([(kind, key, request)])
    return response


@dataclass
class Transaction:
    """One of `client`, with a record in `topic`-0 and an offset of a group in it."""

    client: SinkClient
    version: int
    topic: str
    transactional_id: str = field(default_factory=lambda: f"sink.{next(numbers)}")
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def group(self) -> str:
        return f"{self.transactional_id}-marker"

    def ask(self, request: Any) -> Any:
        return ask(self.client, TXN, self.transactional_id, request)

    def init(self, client: SinkClient | None = None) -> None:
        request = InitProducerIdRequest(60_000, self.transactional_id)
        response = ask(client or self.client, TXN, self.transactional_id, request)
        assert response.error_code == NONE
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    @property
    def ids(self) -> tuple[str, int, int]:
        return self.transactional_id, self.producer_id, self.producer_epoch

    def write(self, value: bytes) -> None:
        if self.version < 2:
            added = self.ask(AddPartitionsToTxnRequest(*self.ids, ((self.topic, 0),)))
            assert [result.error_code for result in added.results] == [NONE]
        assert produce(self.client, self.topic, value, *self.ids) == NONE

    def mark(self, offset: int, metadata: str) -> int:
        if self.version < 2:
            assert self.ask(AddOffsetsToTxnRequest(*self.ids, self.group)).error_code == NONE
        request = TxnOffsetCommitRequest(
            self.transactional_id, self.group, self.producer_id, self.producer_epoch,
            STATE, 0, offset, metadata, self.version,
        )  # fmt: skip
        code: int = ask(self.client, GROUP, self.group, request).error_code
        return code

    def end(self, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(*self.ids, committed=committed, transaction_version=self.version)

    def describe(self, client: SinkClient) -> TransactionDescription:
        response = ask(client, TXN, self.transactional_id, DescribeTransactionsRequest((self.transactional_id,)))
        (description,) = response.transactions
        assert isinstance(description, TransactionDescription)
        return description

    def marker(self, client: SinkClient) -> GroupOffset:
        (group,) = ask(client, GROUP, self.group, OffsetFetchRequest((self.group,), STATE, 0)).groups
        assert isinstance(group, GroupOffset)
        return group


def produce(
    client: SinkClient, topic: str, value: bytes, transactional_id: str, producer_id: int, producer_epoch: int
) -> int:
    """One record to partition 0, by another client's encoder; the leader of a cluster of one is any broker."""
    batch = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=0, batch_size=16_384,
    )  # fmt: skip
    # Of now: brokers look every five minutes for what is older than a week, and delete it.
    batch.append(0, timestamp=time.time_ns() // 1_000_000, key=None, value=value, headers=[])
    partition = ProducePartition(topic, 0, None, bytes(batch.build()))
    request = ProduceRequest(-1, 30_000, (partition,), transactional_id)
    deadline = time.monotonic() + DEADLINE_S
    tries = itertools.count()
    while True:
        response = ask_broker(client.config, request, next(tries))
        assert isinstance(response, ProduceResponse)
        code = response.partitions[0].error_code
        # A topic that was made a moment ago; the markers of the transaction before.
        if code not in (UNKNOWN_PARTITION, NOT_LEADER, CONCURRENT):
            return code
        assert time.monotonic() < deadline, f"Produce is answered with {code}"
        # The broker is at work on it, and says nothing when it is done.
        time.sleep(0.01)


def read_committed(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    """The first `count` records that a read_committed consumer sees; with ALL those that are there now."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < count:
            assert time.monotonic() < deadline, f"only {values} of {topic}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                if count == ALL:
                    break
            else:
                values.append(message.value())
        return values
    finally:
        consumer.close()


def versions(client: SinkClient) -> list[int]:
    """The transaction versions that clients may use there."""
    return list(range(1, client.transaction_version() + 1))


def open_producers(client: SinkClient, topic: str) -> set[int]:
    found = client.ask_leaders([(topic, 0)], DescribeProducersRequest)[topic, 0]
    assert found.error_code == NONE
    return {producer.producer_id for producer in found.producers if producer.current_txn_start_offset >= 0}


def new_topic(cluster: LocalKafka) -> str:
    name = f"rows-{next(numbers)}"
    cluster.create_topic(name, 1)
    return name


def test_the_version_is_the_clusters(cluster: LocalKafka, client: SinkClient) -> None:
    expected = 1 if cluster.kafka_version == OLD else 2
    assert client.transaction_version() == expected
    assert client.finalized_features().get("transaction.version", 0) == (0 if expected == 1 else 2)


def test_a_topic_for_the_state_is_made_once(cluster: LocalKafka, client: SinkClient) -> None:
    name = f"state-{next(numbers)}"
    ensure_commit_topic(client, name)
    ensure_commit_topic(client, name)
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(name).topics
    assert sorted(topics[name].partitions) == [0, 1]


class TestATransaction:
    @pytest.mark.parametrize("committed", [True, False])
    def test_is_ended_by_another_client(
        self, cluster: LocalKafka, client: SinkClient, other: SinkClient, committed: bool
    ) -> None:
        for version in versions(client):
            topic = new_topic(cluster)
            transaction = Transaction(client, version, topic)
            transaction.init()
            transaction.write(b"row")
            assert transaction.mark(7, "a marker: zoë") == NONE

            description = transaction.describe(other)
            assert (description.state, description.timeout_ms) == ("Ongoing", 60_000)
            assert (description.producer_id, description.producer_epoch) == transaction.ids[1:]
            assert (topic, 0) in description.partitions
            assert abs(description.start_time_ms / 1_000 - time.time()) < DEADLINE_S
            assert open_producers(other, topic) == {transaction.producer_id}
            listed = other.ask_brokers(ListTransactionsRequest(transactional_id_prefix=transaction.transactional_id))
            mine = ListedTransaction(transaction.transactional_id, transaction.producer_id, "Ongoing")
            assert [mine] == [each for response in listed.values() for each in response.transactions]  # type: ignore[union-attr]
            assert read_committed(cluster, topic, ALL) == []

            ended = ask(other, TXN, transaction.transactional_id, transaction.end(committed))
            assert ended.error_code == NONE
            assert (ended.producer_id >= 0) == (version == 2)
            # require_stable: it waits for the markers.
            expected = (7, "a marker: zoë") if committed else (-1, "")
            marker = transaction.marker(other)
            assert (marker.error_code, marker.offset, marker.metadata) == (NONE, *expected)
            if committed:
                assert read_committed(cluster, topic, 1) == [b"row"]
                assert marker_by_librdkafka(cluster, transaction.group) == (7, "a marker: zoë")
            ended = partial(lambda written: open_producers(other, written) == set(), topic)
            wait_until(ended, DEADLINE_S, "no transaction is open")
            assert read_committed(cluster, topic, ALL) == ([b"row"] if committed else [])

    def test_ended_twice_says_the_same_again(self, cluster: LocalKafka, client: SinkClient) -> None:
        for version in versions(client):
            for committed in (True, False):
                transaction = Transaction(client, version, new_topic(cluster))
                transaction.init()
                transaction.write(b"row")
                first = transaction.ask(transaction.end(committed))
                again = transaction.ask(transaction.end(committed))
                otherwise = transaction.ask(transaction.end(not committed))
                codes = [response.error_code for response in (first, again, otherwise)]
                assert codes == [NONE, NONE, INVALID_TXN_STATE]
                assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch)

    def test_with_nothing_in_it(self, client: SinkClient) -> None:
        """What kafka's answers are before anything was written, those that must carry ids included."""
        for version in versions(client):
            transaction = Transaction(client, version, "none")
            transaction.init()
            aborted = transaction.ask(transaction.end(committed=False)).error_code
            assert aborted == (NONE if version == 2 else INVALID_TXN_STATE)
            transaction.init()
            assert transaction.ask(transaction.end(committed=True)).error_code == INVALID_TXN_STATE

    def test_is_taken_over_by_init(self, cluster: LocalKafka, client: SinkClient, other: SinkClient) -> None:
        """Which aborts it, and says CONCURRENT_TRANSACTIONS until that is done."""
        for version in versions(client):
            topic = new_topic(cluster)
            transaction = Transaction(client, version, topic)
            transaction.init()
            transaction.write(b"abandoned")
            late = transaction.end(committed=True)
            transaction.init(other)
            assert transaction.ask(late).error_code == FENCED
            assert transaction.mark(1, "m") == NONE
            assert ask(other, TXN, transaction.transactional_id, transaction.end(True)).error_code == NONE
            assert transaction.marker(other).offset == 1
            assert read_committed(cluster, topic, ALL) == []

    def test_hides_its_offset_while_it_is_open(self, cluster: LocalKafka, client: SinkClient) -> None:
        transaction = Transaction(client, client.transaction_version(), new_topic(cluster))
        transaction.init()
        assert transaction.mark(1, "m") == NONE
        impatient = SinkClient(config(cluster, max_block_ms=500))
        with pytest.raises(CoordinatorUnavailable, match="UNSTABLE_OFFSET_COMMIT") as failure:
            transaction.marker(impatient)
        assert (failure.value.key, failure.value.waited_ms) == (transaction.group, 500)
        impatient.close()
        assert transaction.ask(transaction.end(committed=True)).error_code == NONE
        assert transaction.marker(client).offset == 1

    def test_is_ended_by_hand(self, cluster: LocalKafka, client: SinkClient) -> None:
        """As one whose coordinator forgot it: by a marker to the leader, in the name of the coordinator."""
        topic = new_topic(cluster)
        transaction = Transaction(client, client.transaction_version(), topic)
        transaction.init()
        transaction.write(b"row")
        described = transaction.describe(client)
        ids = described.producer_id, described.producer_epoch
        written = client.ask_leaders(
            described.partitions, lambda partitions: WriteTxnMarkersRequest(*ids, True, 0, partitions)
        )
        assert [result.error_code for result in written.values()] == [NONE]
        assert open_producers(client, topic) == set()
        assert read_committed(cluster, topic, 1) == [b"row"]

    def test_that_nobody_began(self, client: SinkClient) -> None:
        description = Transaction(client, 1, "none", transactional_id="never").describe(client)
        assert description.error_code == NOT_FOUND


def marker_by_librdkafka(kafka: LocalKafka, group: str) -> tuple[int, str | None]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(STATE, 0)], timeout=DEADLINE_S)
        return found.offset, found.metadata
    finally:
        consumer.close()


PRODUCE_AND_WAIT = """
import sys, time
from confluent_kafka import Producer
servers, transactional_id, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce(topic, b"of another process", partition=0)
assert producer.flush(60) == 0
print("flushed", flush=True)
time.sleep(600)  # until it is killed
"""


def test_a_transaction_of_a_process_that_was_killed_is_committed(cluster: LocalKafka, client: SinkClient) -> None:
    """librdkafka speaks version 1; the ids to end it with are those that the coordinator tells."""
    topic, transactional_id = new_topic(cluster), f"killed.{next(numbers)}"
    arguments = [cluster.bootstrap_servers, transactional_id, topic]
    with subprocess.Popen([sys.executable, "-c", PRODUCE_AND_WAIT, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"flushed\n"
        finally:
            process.kill()
    transaction = Transaction(client, 1, topic, transactional_id)
    described = transaction.describe(client)
    assert described.state == "Ongoing"
    transaction.producer_id, transaction.producer_epoch = described.producer_id, described.producer_epoch
    assert transaction.ask(transaction.end(committed=True)).error_code == NONE
    assert read_committed(cluster, topic, 1) == [b"of another process"]


def test_a_hundred_are_ended_at_once(cluster: LocalKafka, client: SinkClient, other: SinkClient) -> None:
    version = client.transaction_version()
    slots = [Transaction(client, version, "none", f"many.{next(numbers)}") for _ in range(100)]
    keys = [slot.transactional_id for slot in slots]
    inits = client.ask_all([(TXN, key, InitProducerIdRequest(60_000, key)) for key in keys])
    for slot, init in zip(slots, inits, strict=True):
        slot.producer_id, slot.producer_epoch = init.producer_id, init.producer_epoch  # type: ignore[union-attr]
    assert len({slot.producer_id for slot in slots}) == 100
    if version < 2:
        client.ask_all([(TXN, slot.transactional_id, AddOffsetsToTxnRequest(*slot.ids, slot.group)) for slot in slots])
    marks = client.ask_all(
        [
            (
                GROUP,
                slot.group,
                TxnOffsetCommitRequest(slot.transactional_id, slot.group, *slot.ids[1:], STATE, 0, 1, "m", version),
            )
            for slot in slots
        ]
    )
    assert {mark.error_code for mark in marks} == {NONE}  # type: ignore[union-attr]
    began = time.monotonic()
    ended = other.ask_all([(TXN, slot.transactional_id, slot.end(committed=True)) for slot in slots])
    print(f"100 EndTxn in {(time.monotonic() - began) * 1_000:.0f} ms, their discovery included")
    assert {response.error_code for response in ended} == {NONE}  # type: ignore[union-attr]
    fetched = other.ask_all([(GROUP, slot.group, OffsetFetchRequest((slot.group,), STATE, 0)) for slot in slots])
    assert {response.groups[0].offset for response in fetched} == {1}  # type: ignore[union-attr]


class TestCoordinatorsThatGo:
    def test_a_broker_that_comes_back_is_waited_for(self) -> None:
        with LocalKafka() as kafka:
            client = SinkClient(config(kafka, max_block_ms=60_000))
            ensure_commit_topic(client, STATE)
            transaction = Transaction(client, 2, STATE)
            transaction.init()
            kafka.kill(1)
            starting = threading.Thread(target=kafka.start, args=(1,))
            starting.start()
            try:
                assert transaction.describe(client).state == "Empty"
            finally:
                starting.join()
                client.close()

    def test_another_broker_takes_over(self) -> None:
        with LocalKafka(nodes=3) as kafka:
            client = SinkClient(config(kafka, max_block_ms=60_000))
            ensure_commit_topic(client, STATE)
            slots = [Transaction(client, 2, STATE, f"s.{number}") for number in range(12)]
            for slot in slots:
                slot.init()
                assert slot.mark(1, "m") == NONE
            kafka.kill(1)
            ended = client.ask_all([(TXN, slot.transactional_id, slot.end(committed=True)) for slot in slots])
            assert {response.error_code for response in ended} == {NONE}  # type: ignore[union-attr]
            assert {slot.marker(client).offset for slot in slots} == {1}
            listed = client.ask_brokers(ListTransactionsRequest(transactional_id_prefix="s."))
            assert sorted(listed) == [2, 3]
            found = {each.transactional_id for response in listed.values() for each in response.transactions}  # type: ignore[union-attr]
            assert found == {slot.transactional_id for slot in slots}
            client.close()


def test_a_topic_that_cannot_be_made_says_how() -> None:
    with LocalKafka(config={"default.replication.factor": 3}) as kafka:
        client = SinkClient(config(kafka))
        with pytest.raises(CommitTopicMissing, match="INVALID_REPLICATION_FACTOR") as failure:
            ensure_commit_topic(client, STATE)
        client.close()
        assert f"--bootstrap-server {kafka.bootstrap_servers} --create --topic {STATE}" in failure.value.command
        kafka.create_topic(STATE, 1)


def test_a_lease_keeps_the_connections(cluster: LocalKafka) -> None:
    settings = config(cluster, client_id="leased")
    with lease_admin_client(settings) as first:
        assert first.transaction_version() >= 1
    with lease_admin_client(settings) as second:
        assert second is first
    with pytest.raises(CommitTopicMissing), lease_admin_client(settings) as third:
        assert third is first
        raise CommitTopicMissing(topic="t", reason="r", command="c")
    with lease_admin_client(settings) as fourth:
        assert fourth is not first
