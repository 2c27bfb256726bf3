"""Transactions on real brokers, begun by one client of ours and ended by another, as read by librdkafka.

Which code a broker answers with is compared with the model by test_model_transactions_fidelity.py.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker_admin import partition_count
from committed_rows import read_values
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.errors import CommitTopicMissing
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersRequest
from kafka_sink.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kafka_sink.kafka.protocol.apis.end_txn import EndTxnRequest
from kafka_sink.kafka.protocol.apis.find_coordinator import CoordinatorKind
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.list_transactions import ListedTransaction, ListTransactionsRequest
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.kafka.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from kafka_sink.options.config import sink_config
from one_broker import produce_record
from waiting import wait_until

DEADLINE_S = 60
OLD = "3.9.2"
GROUP, TXN = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
NONE, INVALID_TXN_STATE, FENCED = 0, 48, 90
STATE = "commit-state"
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, pytest.param(OLD, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    if request.param == DEFAULT_KAFKA_VERSION:
        yield request.getfixturevalue("kafka")
        return
    with LocalKafka(kafka_version=request.param) as kafka:
        yield kafka


def config(kafka: LocalKafka, max_block_ms: int = 30_000) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer
    return replace(made, max_block_ms=max_block_ms)


@pytest.fixture
def client(cluster: LocalKafka) -> Iterator[AdminClient]:
    with closing(AdminClient(config(cluster))) as made:
        ensure_commit_topic(made, STATE)
        yield made


@pytest.fixture
def other(cluster: LocalKafka) -> Iterator[AdminClient]:
    """With connections of its own."""
    with closing(AdminClient(config(cluster))) as made:
        yield made


def ask(client: AdminClient, kind: CoordinatorKind, key: str, request: Any) -> Any:
    (response,) = client.ask_all([(kind, key, request)])
    return response


@dataclass
class Transaction:
    """One of `client`, with a record in `topic`-0 and an offset of a group in it."""

    client: AdminClient
    version: int
    topic: str
    transactional_id: str = field(default_factory=lambda: f"sink.{next(numbers)}")
    ids: tuple[str, int, int] = ("", -1, -1)

    @property
    def group(self) -> str:
        return f"{self.transactional_id}-marker"

    def ask(self, request: Any) -> Any:
        return ask(self.client, TXN, self.transactional_id, request)

    def init(self, client: AdminClient | None = None) -> None:
        request = InitProducerIdRequest(60_000, self.transactional_id)
        response = ask(client or self.client, TXN, self.transactional_id, request)
        assert response.error_code == NONE
        self.ids = self.transactional_id, response.producer_id, response.producer_epoch

    def write(self, value: bytes) -> None:
        if self.version < 2:
            added = self.ask(AddPartitionsToTxnRequest(*self.ids, ((self.topic, 0),)))
            assert [result.error_code for result in added.results] == [NONE]
        produce_record(self.client.config, self.topic, 0, value, *self.ids)

    def mark(self, offset: int, metadata: str) -> int:
        if self.version < 2:
            assert self.ask(AddOffsetsToTxnRequest(*self.ids, self.group)).error_code == NONE
        request = TxnOffsetCommitRequest(
            self.transactional_id, self.group, *self.ids[1:], STATE, 0, offset, metadata, self.version
        )
        return int(ask(self.client, GROUP, self.group, request).error_code)

    def end(self, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(*self.ids, committed=committed, transaction_version=self.version)

    def describe(self, client: AdminClient) -> Any:
        response = ask(client, TXN, self.transactional_id, DescribeTransactionsRequest((self.transactional_id,)))
        return response.transactions[0]

    def marker(self, client: AdminClient) -> Any:
        """require_stable: it waits for the markers."""
        return ask(client, GROUP, self.group, OffsetFetchRequest((self.group,), STATE, 0)).groups[0]


def versions(client: AdminClient) -> list[int]:
    """The transaction versions that clients may use there."""
    return list(range(1, client.transaction_version() + 1))


def open_producers(client: AdminClient, topic: str) -> set[int]:
    found = client.ask_leaders([(topic, 0)], DescribeProducersRequest)[topic, 0]
    return {producer.producer_id for producer in found.producers if producer.current_txn_start_offset >= 0}


def new_topic(cluster: LocalKafka) -> str:
    name = f"rows-{next(numbers)}"
    cluster.create_topic(name, 1)
    return name


def test_the_version_is_the_clusters_and_a_topic_for_the_state_is_made_once(
    cluster: LocalKafka, client: AdminClient
) -> None:
    expected = 1 if cluster.kafka_version == OLD else 2
    assert client.transaction_version() == expected
    assert client.finalized_features().get("transaction.version", 0) == (0 if expected == 1 else 2)
    name = f"state-{next(numbers)}"
    ensure_commit_topic(client, name)
    ensure_commit_topic(client, name)
    assert partition_count(cluster, name) == 2


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_ended_by_another_client(
    cluster: LocalKafka, client: AdminClient, other: AdminClient, committed: bool
) -> None:
    for version in versions(client):
        topic = new_topic(cluster)
        transaction = Transaction(client, version, topic)
        transaction.init()
        transaction.write(b"row")
        assert transaction.mark(7, "a marker: zoë") == NONE

        found = transaction.describe(other)
        assert (found.state, found.timeout_ms) == ("Ongoing", 60_000)
        assert (found.producer_id, found.producer_epoch) == transaction.ids[1:]
        assert (topic, 0) in found.partitions
        assert abs(found.start_time_ms / 1_000 - time.time()) < DEADLINE_S
        assert open_producers(other, topic) == {transaction.ids[1]}
        listed = other.ask_brokers(ListTransactionsRequest(transactional_id_prefix=transaction.transactional_id))
        mine = ListedTransaction(transaction.transactional_id, transaction.ids[1], "Ongoing")
        assert [mine] == [each for response in listed.values() for each in response.transactions]
        assert not read_values(cluster, topic)

        ended = ask(other, TXN, transaction.transactional_id, transaction.end(committed))
        assert (ended.error_code, ended.producer_id >= 0) == (NONE, version == 2)
        marker, expected = transaction.marker(other), (7, "a marker: zoë") if committed else (-1, "")
        assert (marker.error_code, marker.offset, marker.metadata) == (NONE, *expected)
        if committed:
            with closing(
                Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": transaction.group})
            ) as c:
                (read,) = c.committed([TopicPartition(STATE, 0)], timeout=DEADLINE_S)
            assert (read.offset, read.metadata) == (7, "a marker: zoë")
        wait_until(lambda written=topic: not open_producers(other, written), DEADLINE_S, "no transaction is open")
        assert read_values(cluster, topic) == ({b"row": 1} if committed else {})
        # A client whose answer was lost asks again.
        again, otherwise = (transaction.ask(transaction.end(each)) for each in (committed, not committed))
        assert (again.error_code, otherwise.error_code) == (NONE, INVALID_TXN_STATE)
        assert (again.producer_id, again.producer_epoch) == (ended.producer_id, ended.producer_epoch)


def test_a_transaction_is_taken_over_by_init_which_aborts_it(
    cluster: LocalKafka, client: AdminClient, other: AdminClient
) -> None:
    for version in versions(client):
        transaction = Transaction(client, version, new_topic(cluster))
        transaction.init()
        transaction.write(b"abandoned")
        late = transaction.end(committed=True)
        transaction.init(other)
        assert transaction.ask(late).error_code == FENCED
        assert transaction.mark(1, "m") == NONE
        assert ask(other, TXN, transaction.transactional_id, transaction.end(True)).error_code == NONE
        assert transaction.marker(other).offset == 1
        assert not read_values(cluster, transaction.topic)


@pytest.mark.long
def test_a_broker_that_comes_back_is_waited_for(own_kafka: LocalKafka) -> None:
    with closing(AdminClient(config(own_kafka, 60_000))) as client:
        ensure_commit_topic(client, STATE)
        transaction = Transaction(client, 2, STATE)
        transaction.init()
        own_kafka.kill(1)
        starting = threading.Thread(target=own_kafka.start, args=(1,))
        starting.start()
        try:
            assert transaction.describe(client).state == "Empty"
        finally:
            starting.join()


@pytest.mark.long
def test_other_brokers_take_over_from_a_coordinator_that_is_killed() -> None:
    with LocalKafka(nodes=3) as kafka, closing(AdminClient(config(kafka, 60_000))) as client:
        ensure_commit_topic(client, STATE)
        slots = [Transaction(client, 2, STATE, f"s.{number}") for number in range(12)]
        for slot in slots:
            slot.init()
            assert slot.mark(1, "m") == NONE
        kafka.kill(1)
        ended = client.ask_all([(TXN, slot.transactional_id, slot.end(committed=True)) for slot in slots])
        assert {response.error_code for response in ended} == {NONE}
        assert {slot.marker(client).offset for slot in slots} == {1}
        listed = client.ask_brokers(ListTransactionsRequest(transactional_id_prefix="s."))
        assert sorted(listed) == [2, 3]
        found = {each.transactional_id for response in listed.values() for each in response.transactions}
        assert found == {slot.transactional_id for slot in slots}


@pytest.mark.long
def test_a_topic_that_cannot_be_made_says_how() -> None:
    with LocalKafka(config={"default.replication.factor": 3}) as kafka, closing(AdminClient(config(kafka))) as client:
        with pytest.raises(CommitTopicMissing, match="INVALID_REPLICATION_FACTOR") as failure:
            ensure_commit_topic(client, STATE)
        assert f"--bootstrap-server {kafka.bootstrap_servers} --create --topic {STATE}" in failure.value.command
        kafka.create_topic(STATE, 1)
