"""Transaction coordinators that are looked for, move, crash, and are asked by operators."""

from __future__ import annotations

from typing import Any

import pytest

from model.byte_client import ByteClient, client_of, client_of_topic, values_of
from model.internal_topics import TRANSACTION_STATE, partition_for
from model.settings import (
    API_VERSIONS,
    KAFKA_3_3,
    KAFKA_3_9,
    KAFKA_4,
    KAFKA_4_TRANSACTION_VERSION_1,
    Generation,
    TransactionSettings,
)
from model.transaction_client import (
    GROUP,
    VERSION_1,
    VERSION_2,
    Producer,
    TransactionClient,
    Versions,
    transaction_client,
)
from model.wire import kio_module

NONE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, INVALID_EPOCH = 0, 14, 15, 16, 47
INVALID_PATTERN = 128

both_versions = pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])


def three_brokers(versions: Versions = VERSION_2, **settings: Any) -> tuple[ByteClient, TransactionClient]:
    generation = KAFKA_4 if versions == VERSION_2 else KAFKA_3_9
    client = client_of_topic(3, 2, partitions=2, generation=generation, **settings)
    transactions = transaction_client(client, versions)
    transactions.init("x")
    return client, transactions


def move(client: ByteClient, transactional_id: str = "x") -> int:
    """Another broker coordinates the id, as soon as it knows."""
    key = partition_for(client.cluster.controller.image, TRANSACTION_STATE, transactional_id)
    assert key is not None
    state = client.cluster.state(TRANSACTION_STATE, key.partition)
    other = next(node for node in state.isr if node != state.leader)
    client.cluster.elect(TRANSACTION_STATE, key.partition, other)
    return other


def committed(client: ByteClient, partition: int = 0) -> list[bytes | None]:
    return values_of(client.cluster.read_committed("t", partition))


# Version 0 knows groups only.
@pytest.mark.parametrize(
    ("version", "key_type"), [(0, GROUP), *((version, key_type) for version in range(1, 7) for key_type in (GROUP, 1))]
)
def test_whoever_looks_first_has_to_come_again(version: int, key_type: int) -> None:
    client = client_of(3)
    transactions = transaction_client(client)
    assert transactions.find_coordinator("x", key_type, version) == (NOT_AVAILABLE, -1)
    client.run(100)
    code, node_id = transactions.find_coordinator("x", key_type, version)
    assert (code, client.cluster.is_alive(node_id)) == (NONE, True)


def test_only_the_coordinator_answers_and_not_before_it_has_read() -> None:
    client, transactions = three_brokers(
        metadata_lag_ms=(1, 1), transactions=TransactionSettings(coordinator_load_ms=(50, 50))
    )
    producer = transactions.init("x")
    old = transactions.coordinator("x")
    new = move(client)
    client.run(5)
    assert transactions.end("x", producer, True).code == NOT_COORDINATOR
    assert transactions.describe_once("x")[0] == NOT_COORDINATOR
    transactions.forget_coordinators()
    assert transactions.coordinator("x") == new != old
    assert transactions.try_init("x")[0] == LOADING
    assert transactions.list(new)[0] == LOADING
    client.run(50)
    assert transactions.try_init("x") == (NONE, Producer(producer.producer_id, 2))


@both_versions
@pytest.mark.parametrize("dies", [True, False], ids=["crash", "move"])
def test_an_open_transaction_survives_its_coordinator(versions: Versions, dies: bool) -> None:
    client, transactions = three_brokers(versions)
    producer = transactions.init("x")
    assert transactions.write("x", producer, "t") == NONE
    client.cluster.crash(transactions.coordinator("x")) if dies else move(client)
    client.run(3_000)
    transactions.forget_coordinators()
    described = transactions.describe("x")
    assert (described.state, described.producer, described.partitions) == ("Ongoing", producer, (("t", 0),))
    assert transactions.end("x", producer, True).code == NONE
    client.run(1_000)
    assert committed(client) == [b"v"]


@both_versions
@pytest.mark.parametrize("dies", [True, False], ids=["crash", "move"])
def test_who_coordinates_next_finishes_what_was_decided(versions: Versions, dies: bool) -> None:
    client, transactions = three_brokers(versions, transactions=TransactionSettings(inter_broker_ms=(300, 300)))
    producer = transactions.init("x")
    assert transactions.write("x", producer, "t") == NONE
    assert transactions.end("x", producer, True).code == NONE
    assert committed(client) == []
    client.cluster.crash(transactions.coordinator("x")) if dies else move(client)
    client.run(5_000)
    transactions.forget_coordinators()
    assert transactions.describe("x").state == "CompleteCommit"
    assert transactions.end("x", producer, True).code == NONE
    assert committed(client) == [b"v"]


def test_a_coordinator_that_does_not_know_it_was_replaced_decides_nothing() -> None:
    client, transactions = three_brokers(metadata_lag_ms=(500, 500))
    producer = transactions.init("x")
    assert transactions.write("x", producer, "t") == NONE
    for node_id in client.cluster.node_ids:
        if node_id != transactions.coordinator("x"):
            client.cluster.isolate(node_id)
    move(client)
    assert transactions.end("x", producer, True).code == NOT_COORDINATOR
    for node_id in client.cluster.node_ids:
        client.cluster.isolate(node_id, False)
    client.run(3_000)
    transactions.forget_coordinators()
    assert transactions.describe("x").state == "Ongoing"
    assert committed(client) == []


def test_a_coordinator_without_its_replicas_is_not_available() -> None:
    client, transactions = three_brokers(replica_lag_time_max_ms=500)
    producer = transactions.init("x")
    for node_id in client.cluster.node_ids:
        if node_id != transactions.coordinator("x"):
            client.cluster.isolate(node_id)
    client.run(2_000)
    assert transactions.try_init("x")[0] == NOT_AVAILABLE
    for node_id in client.cluster.node_ids:
        client.cluster.isolate(node_id, False)
    client.run(1_000)
    assert transactions.init("x") == Producer(producer.producer_id, 2)


@both_versions
def test_ids_timeouts_and_epochs_survive(versions: Versions) -> None:
    client, transactions = three_brokers(versions)
    producer = transactions.init("x", timeout_ms=15_000)
    assert transactions.write("x", producer, "t") == NONE
    move(client)
    client.run(31_000)
    transactions.forget_coordinators()
    assert transactions.describe("x").state == "CompleteAbort"
    client.cluster.spend_epochs("x")
    client.run(100)
    last = transactions.init("x")
    assert last.producer_epoch == 2**15 - 2
    move(client)
    client.run(1_000)
    transactions.forget_coordinators()
    following = transactions.init("x")
    assert (following.producer_id != last.producer_id, following.producer_epoch) == (True, 0)


def test_one_request_can_be_refused() -> None:
    client, transactions = three_brokers()
    producer = transactions.init("x")
    client.cluster.refuse(transactions.coordinator("x"), 26, 53)
    assert transactions.end("x", producer, False).code == 53
    assert transactions.end("x", producer, False).code == NONE


def test_brokers_before_3_6_believe_every_producer() -> None:
    """A late batch opens a transaction that no marker ends."""
    client = client_of_topic(1, 1, nodes=1, generation=KAFKA_3_3)
    transactions = transaction_client(client, Versions(produce=9, end_txn=3, txn_offset_commit=3))
    producer = transactions.init("x")
    assert transactions.write("x", producer, "t") == NONE
    assert transactions.end("x", producer, True).code == NONE
    client.run(100)
    assert transactions.produce("x", producer, "t", base_sequence=1) == NONE
    client.run(100_000)
    assert client.cluster.last_stable_offset("t", 0) == 2
    assert transactions.open_producers("t") == (NONE, {producer: 2})


@pytest.mark.parametrize(
    ("generation", "level", "end_txn"),
    [(KAFKA_3_3, None, 3), (KAFKA_3_9, None, 4), (KAFKA_4_TRANSACTION_VERSION_1, 1, 5), (KAFKA_4, 2, 5)],
    ids=["3.3", "3.9", "4 with version 1", "4"],
)
def test_brokers_tell_which_version_they_are_for(generation: Generation, level: int | None, end_txn: int) -> None:
    client = client_of(1, generation=generation)
    kio_version = kio_module(API_VERSIONS, 3, "request")
    message = kio_version.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = client.answers[client.send(0, API_VERSIONS, 3, message)]
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels.get("transaction.version") == level
    assert {api.api_key: api.max_version for api in answer.api_keys}[26] == end_txn


def test_a_list_is_filtered() -> None:
    client = client_of_topic(1, 1, nodes=1)
    transactions = transaction_client(client)
    producers = {name: transactions.init(name) for name in ("a.0", "a.1", "ab")}
    assert transactions.write("a.1", producers["a.1"], "t") == NONE
    every = {"a.0": "Empty", "a.1": "Ongoing", "ab": "Empty"}
    assert transactions.list(0) == (NONE, every, ())
    assert transactions.list(0, version=0) == (NONE, every, ())
    assert transactions.list(0, state_filters=("Ongoing", "x")) == (NONE, {"a.1": "Ongoing"}, ("x",))
    assert transactions.list(0, producer_id_filters=(producers["ab"].producer_id,))[1] == {"ab": "Empty"}
    assert transactions.list(0, transactional_id_pattern=r"a\..*")[1] == {"a.0": "Empty", "a.1": "Ongoing"}
    assert transactions.list(0, transactional_id_pattern="a")[1] == {}
    assert transactions.list(0, transactional_id_pattern="(")[0] == INVALID_PATTERN
    client.run(5_000)
    assert "a.1" in transactions.list(0, duration_filter=4_000)[1]
    assert "a.1" not in transactions.list(0, duration_filter=400_000)[1]


def test_an_operator_can_end_a_transaction_that_hangs() -> None:
    client = client_of_topic(
        1, 1, nodes=3, partitions=3, transactions=TransactionSettings(leaderless_partitions_lose_markers=True)
    )
    transactions = transaction_client(client)
    producer = transactions.init("x")
    dead = next(node for node in range(3) if node != transactions.coordinator("x"))
    assert transactions.write("x", producer, "t", dead) == NONE
    client.cluster.crash(dead)
    client.run(2_000)
    assert transactions.end("x", producer, True).code == NONE
    client.cluster.restart(dead)
    client.run(1_000)
    assert transactions.open_producers("t", dead) == (NONE, {producer: 0})
    described = transactions.describe("x")
    assert described.state == "CompleteCommit"
    assert transactions.write_marker(described.producer, True, "t", dead) == NONE
    assert transactions.open_producers("t", dead) == (NONE, {})
    assert committed(client, dead) == [b"v"]
    assert transactions.write_marker(producer, False, "t", dead) == INVALID_EPOCH
