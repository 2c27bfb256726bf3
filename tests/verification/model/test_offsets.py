"""Offsets of groups that nobody joins, inside and outside of transactions."""

from __future__ import annotations

from typing import Any

import pytest

from model.byte_client import ByteClient, client_of_topic
from model.internal_topics import CONSUMER_OFFSETS, partition_for
from model.settings import KAFKA_3_9, KAFKA_4
from model.transaction_client import (
    GROUP,
    VERSION_1,
    VERSION_2,
    Offset,
    Producer,
    TransactionClient,
    Versions,
    send_only,
    transaction_client,
)

NONE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, UNSTABLE = 0, 16, 22, 25, 88
NOTHING, PENDING = Offset(NONE, -1, ""), Offset(UNSTABLE, -1, "")

both_versions = pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])


def offsets(versions: Versions = VERSION_2, nodes: int = 1, **settings: Any) -> tuple[ByteClient, TransactionClient]:
    generation = KAFKA_4 if versions == VERSION_2 else KAFKA_3_9
    client = client_of_topic(min(3, nodes), 1, nodes=nodes, **{"generation": generation, **settings})
    return client, transaction_client(client, versions)


def fetch(transactions: TransactionClient, **fields: Any) -> Any:
    return transactions.fetch_offsets(["g"], "t", **fields)["g"]


def marked(transactions: TransactionClient, offset: int, transactional_id: str = "x", **fields: Any) -> Producer:
    producer = transactions.init(transactional_id)
    assert transactions.mark(transactional_id, producer, "g", "t", offset, **fields) == NONE
    return producer


def test_a_transaction_that_times_out_takes_its_offset_with_it() -> None:
    client, transactions = offsets()
    producer = transactions.init("x", timeout_ms=5_000)
    assert transactions.mark("x", producer, "g", "t", 5) == NONE
    client.run(21_000)
    assert fetch(transactions) == NOTHING


@both_versions
def test_a_broker_that_is_not_the_coordinator_leaves_the_transaction_as_it_is(versions: Versions) -> None:
    client, transactions = offsets(versions, nodes=3)
    producer = transactions.init("x")
    assert transactions.write("x", producer, "t") == NONE
    coordinator = transactions.coordinator("g", GROUP)
    other = next(node for node in client.cluster.node_ids if node != coordinator)
    call = transactions.call
    transactions.call = lambda node_id, *request: call(other, *request)
    assert transactions.commit_offset("x", producer, "g", "t", 5) == NOT_COORDINATOR
    transactions.call = call
    assert transactions.end("x", producer, True).code == NONE
    client.run(100)
    assert (fetch(transactions), len(client.cluster.read_committed("t", 0))) == (NOTHING, 1)


def test_a_member_that_is_none_adds_the_group_before_it_is_found_out() -> None:
    _, transactions = offsets()
    producer = transactions.init("x")
    assert transactions.mark("x", producer, "g", "t", 5, generation=3, member_id="m") == ILLEGAL_GENERATION
    (partition,) = transactions.describe("x").partitions
    assert partition[0] == CONSUMER_OFFSETS
    assert transactions.end("x", producer, True).code == NONE


@both_versions
def test_a_group_is_known_until_the_check_after_an_aborted_commit(versions: Versions) -> None:
    client, transactions = offsets(versions)
    transactions.end("x", marked(transactions, 5), False)
    client.run(100)
    commit = transactions.commit_offset_outside
    assert commit("g", "t", 6, generation=3, member_id="m") == UNKNOWN_MEMBER
    client.run(600_000)
    assert commit("g", "t", 6, generation=3, member_id="m") == ILLEGAL_GENERATION


@pytest.mark.parametrize(("versions", "code"), [(VERSION_1, ILLEGAL_GENERATION), (VERSION_2, UNKNOWN_MEMBER)])
def test_the_old_coordinator_forgets_groups_without_offsets_with_any_topic(versions: Versions, code: int) -> None:
    client, transactions = offsets(versions)
    transactions.end("x", marked(transactions, 5), False)
    client.cluster.create_topic("other", 1, 1)
    client.run(100)
    client.cluster.delete_topic("other")
    client.run(100)
    assert transactions.commit_offset_outside("g", "t", 6, generation=3, member_id="m") == code


def test_the_old_coordinator_keeps_a_group_of_a_transaction_whose_topic_is_deleted() -> None:
    client, transactions = offsets(VERSION_1)
    marked(transactions, 5)
    client.cluster.delete_topic("t")
    client.cluster.create_topic("t", 1, 1)
    client.run(100)
    transactions.init("x")
    client.run(100)
    assert fetch(transactions) == NOTHING
    assert transactions.commit_offset_outside("g", "t", 6, generation=3, member_id="m") == UNKNOWN_MEMBER


@both_versions
def test_only_the_old_coordinator_makes_a_group_for_what_its_transaction_refuses(versions: Versions) -> None:
    _, transactions = offsets(versions)
    producer = marked(transactions, 5)
    stranger = producer._replace(producer_id=4711)
    assert transactions.commit_offset("x", stranger, "h", "t", 5) == 49
    code = transactions.commit_offset_outside("h", "t", 6, generation=3, member_id="m")
    assert code == (UNKNOWN_MEMBER if versions == VERSION_1 else ILLEGAL_GENERATION)


def test_offsets_expire_7_days_after_their_commit() -> None:
    client, transactions = offsets()
    transactions.end("x", marked(transactions, 5), True)
    client.run(7 * 86_400_000 - 1_000)
    assert fetch(transactions).offset == 5
    client.run(601_000)
    assert fetch(transactions) == NOTHING


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    client, transactions = offsets()
    transactions.end("x", marked(transactions, 5), True)
    client.run(100)
    marked(transactions, 6, "y")
    client.cluster.delete_topic("t")
    client.cluster.create_topic("t", 1, 1)
    client.run(100)
    assert fetch(transactions) == NOTHING
    transactions.init("y")
    client.run(100)
    assert fetch(transactions) == NOTHING


def test_offsets_outlive_their_coordinator() -> None:
    client, transactions = offsets(nodes=3)
    transactions.end("x", marked(transactions, 5), True)
    client.run(100)
    marked(transactions, 6, "y")
    client.cluster.crash(transactions.coordinator("g", GROUP))
    client.run(2_000)
    transactions.forget_coordinators()
    assert fetch(transactions) == PENDING
    assert fetch(transactions, require_stable=False).offset == 5
    transactions.end_surely("y", transactions.init("y"), False)
    client.run(100)
    assert fetch(transactions).offset == 5


def test_a_stable_offset_is_never_older_than_what_was_acknowledged() -> None:
    """A new coordinator's high watermark may lag behind what the old one acknowledged."""
    client, transactions = offsets(nodes=3, replica_fetch_ms=(100, 100), metadata_lag_ms=(1, 1))
    for offset in range(2):
        assert transactions.commit_offset_outside("g", "t", offset) == NONE
    cluster = client.cluster
    old = transactions.coordinator("g", GROUP)
    key = partition_for(cluster.controller.image, CONSUMER_OFFSETS, "g")
    assert key is not None
    cluster.elect(CONSUMER_OFFSETS, key.partition, next(node for node in cluster.node_ids if node != old))
    client.run(30)
    transactions.forget_coordinators()
    stale = fetch(transactions, require_stable=False)
    assert (stale.offset, fetch(transactions).offset) == (0, 1)


def test_a_stable_offset_waits_until_it_is_committed() -> None:
    client, transactions = offsets(nodes=3)
    assert transactions.commit_offset_outside("g", "t", 1) == NONE
    for node_id in client.cluster.node_ids:
        client.cluster.isolate(node_id)
    send_only(client, transactions, lambda: transactions.commit_offset_outside("g", "t", 2))
    client.disconnect(transactions.coordinator("g", GROUP))
    assert fetch(transactions, require_stable=False).offset == 1
    sent = send_only(client, transactions, lambda: fetch(transactions))
    client.run(1_000)
    assert sent not in client.answers
    for node_id in client.cluster.node_ids:
        client.cluster.isolate(node_id, False)
    client.run(1_000)
    assert client.answers[sent].groups[0].topics[0].partitions[0].committed_offset == 2
