"""Transactions against brokers: what takes time, and what readers see. `transaction_trace` has what codes say."""

from __future__ import annotations

from typing import Any

import pytest

from model.byte_client import ByteClient, client_of_topic, values_of
from model.settings import KAFKA_3_9, KAFKA_4, TransactionSettings
from model.transaction_client import (
    VERSION_1,
    VERSION_2,
    Producer,
    TransactionClient,
    Versions,
    send_only,
    transaction_client,
)

NONE, INVALID_MAPPING, CONCURRENT = 0, 49, 51
LAST_EPOCH = 2**15 - 2

both_versions = pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])


def transactional(
    versions: Versions = VERSION_2, nodes: int = 1, **settings: Any
) -> tuple[ByteClient, TransactionClient]:
    generation = KAFKA_4 if versions == VERSION_2 else KAFKA_3_9
    client = client_of_topic(min(3, nodes), 1, nodes=nodes, partitions=2, **{"generation": generation, **settings})
    transactions = transaction_client(client, versions)
    # Until its partition is read.
    transactions.coordinator("x")
    client.run(100)
    return client, transactions


def begun(transactions: TransactionClient, **fields: Any) -> Producer:
    """One row is written."""
    producer = transactions.init("x", **fields)
    assert transactions.write("x", producer, "t") == NONE
    return producer


def committed(client: ByteClient, partition: int = 0) -> list[bytes | None]:
    return values_of(client.cluster.read_committed("t", partition))


def uncommitted(client: ByteClient, partition: int = 0) -> list[bytes | None]:
    return values_of(client.cluster.read_uncommitted("t", partition))


@both_versions
def test_an_end_waits_for_the_markers_of_the_end_before(versions: Versions) -> None:
    _, transactions = transactional(versions)
    producer = begun(transactions)
    assert transactions.end("x", producer, True).code == NONE
    assert transactions.end("x", producer, True).code == CONCURRENT


@both_versions
def test_another_process_may_end_what_one_has_written(versions: Versions) -> None:
    client, transactions = transactional(versions)
    producer = begun(transactions)
    client.disconnect(0)
    assert transaction_client(client, versions).end("x", producer, True).code == NONE
    client.run(100)
    assert committed(client) == [b"v"]


@pytest.mark.parametrize("expected", [Producer(7, -1), Producer(-1, 0)], ids=["id", "epoch"])
def test_a_producer_says_who_it_is_or_does_not(expected: Producer) -> None:
    _, transactions = transactional()
    assert transactions.try_init("x", expected=expected)[0] == 42


def test_the_time_counts_from_the_first_partition_and_is_looked_at_every_10_s() -> None:
    client, transactions = transactional()
    transactions.init("x", timeout_ms=15_000)
    client.run(60_000 - client.cluster.now_ms % 10_000)
    producer = transactions.init("x", timeout_ms=15_000)
    client.run(5_000)
    assert transactions.write("x", producer, "t") == NONE
    client.run(24_000)
    assert transactions.write("x", producer, "t", 1) == NONE
    assert client.cluster.last_stable_offset("t", 0) == 0
    client.run(1_100)
    assert client.cluster.last_stable_offset("t", 0) == 2
    assert committed(client) == []


def test_an_id_expires_after_7_days_without_use() -> None:
    client, transactions = transactional()
    producer = begun(transactions)
    transactions.end("x", producer, True)
    client.run(7 * 86_400_000 - 1)
    assert transactions.end("x", producer, True).code == NONE
    client.run(3_600_001)
    assert transactions.end("x", producer, True).code == INVALID_MAPPING
    assert transactions.init("x").producer_id != producer.producer_id


@both_versions
def test_an_epoch_that_is_spent_is_followed_by_another_producer_id(versions: Versions) -> None:
    client, transactions = transactional(versions)
    first = transactions.init("x")
    client.cluster.spend_epochs("x")
    producer = transactions.init("x")
    assert producer == Producer(first.producer_id, LAST_EPOCH)
    assert transactions.write("x", producer, "t", values=[b"last"]) == NONE
    ended = transactions.end("x", producer, True)
    client.run(100)
    following = ended.producer or transactions.init("x")
    assert (following.producer_id != first.producer_id, following.producer_epoch) == (True, 0)
    assert transactions.write("x", following, "t", values=[b"next"]) == NONE
    assert transactions.end("x", following, True).code == NONE
    client.run(100)
    assert committed(client) == [b"last", b"next"]
    if versions == VERSION_2:
        assert transactions.end("x", producer, True).code == INVALID_MAPPING


@both_versions
def test_a_marker_ends_what_a_coordinator_is_being_asked(versions: Versions) -> None:
    """The coordinator's approval comes too late: the batch would open a transaction without an end."""
    client, transactions = transactional(versions, transactions=TransactionSettings(inter_broker_ms=(50, 50)))
    producer = transactions.init("x")
    if versions == VERSION_1:
        assert transactions.add_partitions("x", producer, {"t": [0]}) == {("t", 0): NONE}
    sent = send_only(client, transactions, lambda: transactions.produce("x", producer, "t"))
    client.run(10)
    # Over another connection: the first one waits.
    client.disconnect(0)
    ended = producer
    if versions == VERSION_2:
        ended = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert transactions.write_marker(ended, False, "t") == NONE
    client.run(200)
    assert (sent in client.answers, uncommitted(client)) == (False, [])


def test_a_marker_of_the_same_epoch_leaves_a_verification_of_version_2_as_it_is() -> None:
    _, transactions = transactional()
    producer = transactions.init("x")
    # Refused with its sequence, when its partition is in the transaction already.
    assert transactions.produce("x", producer, "t", base_sequence=2) == 45
    assert transactions.produce(None, producer, "t", values=[b"v"] * 3, is_transactional=False) == NONE
    assert transactions.end_surely("x", producer, False, version=4).code == NONE
    assert transactions.write("x", producer, "t", base_sequence=3) == 45


def test_a_batch_does_not_pass_one_that_came_before_it_to_be_verified() -> None:
    """The first one lost its coordinator, and will come again."""
    client, transactions = transactional(VERSION_1, nodes=3, transactions=TransactionSettings(inter_broker_ms=(50, 50)))
    producer = transactions.init("x")
    other = next(partition for partition in (0, 1) if partition != transactions.coordinator("x"))
    transactions.add_partitions("x", producer, {"t": [other]})
    send_only(client, transactions, lambda: transactions.produce("x", producer, "t", other))
    client.cluster.crash(transactions.coordinator("x"))
    client.run(5_000)
    transactions.forget_coordinators()
    assert transactions.produce("x", producer, "t", other, base_sequence=1) == 45
    assert transactions.produce("x", producer, "t", other, base_sequence=0) == NONE
    assert transactions.produce("x", producer, "t", other, base_sequence=1) == NONE


def test_a_batch_outside_of_transactions_does_not_pass_one_being_verified() -> None:
    _, transactions = transactional()
    idempotent = transactions.init("y")
    assert transactions.produce("x", idempotent, "t") == INVALID_MAPPING
    assert transactions.produce(None, idempotent, "t", is_transactional=False) == NONE
    assert transactions.produce(None, idempotent, "t", base_sequence=1, is_transactional=False) == 45


@pytest.mark.parametrize(("versions", "code"), [(VERSION_1, NONE), (VERSION_2, INVALID_MAPPING)])
def test_before_kafka_4_a_partition_with_an_open_transaction_asks_about_no_epoch(versions: Versions, code: int) -> None:
    _, transactions = transactional(versions)
    producer = begun(transactions)
    later = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert transactions.produce("y", later, "t") == code


def test_an_open_transaction_does_not_expire_with_its_producer() -> None:
    client, transactions = transactional(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=100)
    producer = begun(transactions)
    client.run(5_000)
    assert transactions.open_producers("t") == (NONE, {producer: 0})
    transactions.end("x", producer, True)
    client.run(5_000)
    assert transactions.open_producers("t") == (NONE, {})


def test_the_next_transaction_may_begin_while_the_one_before_is_completed() -> None:
    client, transactions = transactional()
    second = transactions.end("x", begun(transactions), True).producer
    assert second is not None
    assert transactions.produce("x", second, "t", values=[b"2"]) == NONE
    assert transactions.end("x", second, True).code == NONE
    client.run(100)
    assert committed(client) == [b"v", b"2"]


@both_versions
def test_an_open_transaction_hides_everything_after_it(versions: Versions) -> None:
    client, transactions = transactional(versions)
    begun(transactions)
    other = transactions.init("y")
    assert transactions.write("y", other, "t", values=[b"y"]) == NONE
    assert transactions.end("y", other, True).code == NONE
    client.run(100)
    assert (committed(client), uncommitted(client)) == ([], [b"v", b"y"])
    assert client.cluster.last_stable_offset("t", 0) == 0
    transactions.init("x")
    client.run(100)
    assert committed(client) == [b"y"]


def test_a_marker_counts_from_when_it_is_committed() -> None:
    client, transactions = transactional(nodes=3, replica_fetch_ms=(50, 50))
    producer = begun(transactions)
    assert transactions.end("x", producer, True).code == NONE
    client.run_until(lambda: client.cluster.log_end_offset("t", 0, 0) == 2)
    assert client.cluster.last_stable_offset("t", 0) == 0
    client.run(200)
    assert committed(client) == [b"v"]
    assert client.cluster.last_stable_offset("t", 0) == 2


def test_a_partition_without_a_leader_delays_its_marker() -> None:
    client, transactions = transactional(nodes=3)
    cluster = client.cluster
    cluster.create_topic("alone", 3, 1)
    client.run(100)
    producer = transactions.init("x")
    dead = next(node for node in range(3) if node != transactions.coordinator("x"))
    assert transactions.write("x", producer, "alone", dead) == NONE
    assert transactions.write("x", producer, "t") == NONE
    cluster.crash(dead)
    client.run(2_000)
    assert transactions.end("x", producer, True).code == NONE
    client.run(5_000)
    assert values_of(cluster.read_committed("alone", dead)) == []
    assert transactions.end("x", producer, True).code == CONCURRENT
    cluster.restart(dead)
    client.run(5_000)
    assert values_of(cluster.read_committed("alone", dead)) == [b"v"]
    assert transactions.end("x", producer, True).code == NONE


def test_a_partition_without_a_leader_can_be_forgotten_for_ever() -> None:
    client, transactions = transactional(
        nodes=3, transactions=TransactionSettings(leaderless_partitions_lose_markers=True)
    )
    cluster = client.cluster
    cluster.create_topic("alone", 3, 1)
    client.run(100)
    producer = transactions.init("x")
    dead = next(node for node in range(3) if node != transactions.coordinator("x"))
    assert transactions.write("x", producer, "alone", dead) == NONE
    cluster.crash(dead)
    client.run(2_000)
    assert transactions.end("x", producer, True).code == NONE
    cluster.restart(dead)
    client.run(5_000)
    assert transactions.end("x", producer, True).code == NONE
    assert (cluster.read_committed("alone", dead), cluster.last_stable_offset("alone", dead)) == ([], 0)


def test_a_deleted_topic_does_not_keep_a_transaction_open() -> None:
    client, transactions = transactional()
    client.cluster.create_topic("gone", 1, 1)
    client.run(100)
    producer = begun(transactions)
    assert transactions.write("x", producer, "gone") == NONE
    client.cluster.delete_topic("gone")
    client.run(100)
    assert transactions.end("x", producer, True).code == NONE
    client.run(100)
    assert transactions.end("x", producer, True).code == NONE
    assert committed(client) == [b"v"]
