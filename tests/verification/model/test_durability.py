"""Which rows survive when brokers die, for each setting of acks, replication and election."""

from __future__ import annotations

import pytest

from model.clients import Answer, ByteClient, client_of_topic, record_batch

FAILOVER_MS = 2_000


def fail_over(client: ByteClient, node_id: int = 0) -> None:
    """The broker dies, another leads, the dead one comes back."""
    client.cluster.crash(node_id)
    client.run(FAILOVER_MS)
    client.cluster.restart(node_id)
    client.run(FAILOVER_MS)


def test_acks_1_loses_acknowledged_rows_on_a_leader_crash() -> None:
    client = client_of_topic(3, 2)
    sent = client.produce(0, {("t", 0): record_batch(b"a")}, acks=1)
    assert client.produced(sent) == {0: Answer(0, 0)}
    fail_over(client)
    assert client.committed() == []


def test_acks_all_with_min_insync_replicas_2_loses_no_acknowledged_row() -> None:
    outcomes = set()
    for delay_ms in range(25):
        client = client_of_topic(3, 2, seed=delay_ms)
        sent = client.produce(0, {("t", 0): record_batch(b"a")})
        client.run(delay_ms)
        acknowledged = client.produced(sent) == {0: Answer(0, 0)}
        fail_over(client)
        survived = client.committed() == [b"a"]
        assert survived or not acknowledged
        outcomes.add((acknowledged, survived))
    # All that may happen did: lost, kept without a word, kept and told so.
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_acks_all_with_min_insync_replicas_1_loses_rows_of_a_leader_alone() -> None:
    client = client_of_topic(3, 1, replica_lag_time_max_ms=500, unclean_leader_election=True)
    leader_alone_acknowledges(client, b"a")
    fail_over(client)
    assert client.committed() == []


def leader_alone_acknowledges(client: ByteClient, value: bytes) -> None:
    client.cluster.isolate(1)
    client.cluster.isolate(2)
    sent = client.produce(0, {("t", 0): record_batch(value)})
    client.run(600)
    assert client.cluster.state("t", 0).isr == (0,)
    assert client.code(sent) == 0


def test_replication_factor_1_loses_acknowledged_rows_with_the_disk() -> None:
    client = client_of_topic(1, 1)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.produced(sent) == {0: Answer(0, 0)}
    client.cluster.crash(0, lose_disk=True)
    client.run(FAILOVER_MS)
    assert client.cluster.leader("t", 0) is None
    client.cluster.restart(0)
    client.run(FAILOVER_MS)
    assert client.cluster.leader("t", 0) == 0
    assert client.committed() == []


def test_unclean_election_loses_acknowledged_rows_and_clean_election_waits() -> None:
    for unclean in (False, True):
        client = client_of_topic(3, 1, replica_lag_time_max_ms=500, unclean_leader_election=unclean)
        leader_alone_acknowledges(client, b"a")
        client.cluster.crash(0)
        client.run(FAILOVER_MS)
        assert client.cluster.leader("t", 0) == (1 if unclean else None)
        client.cluster.restart(0)
        client.run(FAILOVER_MS)
        assert client.committed() == ([] if unclean else [b"a"])


@pytest.mark.parametrize("idempotent", [False, True])
def test_follower_has_4_and_5_the_leader_dies_before_the_ack_the_producer_resends(idempotent: bool) -> None:
    client = client_of_topic(3, 2)
    ids = {"producer_id": client.init_producer_id(0), "producer_epoch": 0, "base_sequence": 0} if idempotent else {}
    batch = record_batch(b"4", b"5", **ids)
    sent = client.produce(0, {("t", 0): batch})
    client.run_until(lambda: client.log_of(1) == client.log_of(2) == [b"4", b"5"])
    assert client.produced(sent) is None
    client.cluster.crash(0)
    client.run(FAILOVER_MS)
    resent = client.produce(1, {("t", 0): batch})
    client.run(100)
    assert client.code(resent) == 0
    assert client.committed() == ([b"4", b"5"] if idempotent else [b"4", b"5", b"4", b"5"])


def test_kip_101_scenario_1_a_follower_that_does_not_know_what_is_committed_keeps_it() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"m1")})
    client.run(100)
    sent = client.produce(0, {("t", 0): record_batch(b"m2")})
    client.run_until(lambda: client.produced(sent) is not None)
    assert client.code(sent) == 0
    # All have m2, the leader knows, the last follower does not know yet that it is committed.
    assert client.cluster.high_watermark("t", 0, 2) == 1
    client.cluster.crash(0)
    client.run_until(lambda: leader_epoch(client, 2) == 1)
    client.cluster.crash(1)
    client.run_until(lambda: client.cluster.leader("t", 0) == 2)
    client.cluster.restart(0)
    client.cluster.restart(1)
    client.run(FAILOVER_MS)
    assert client.committed() == [b"m1", b"m2"]


def test_kip_101_scenario_2_a_former_leader_drops_what_the_next_one_has_not() -> None:
    client = client_of_topic(2, 1, nodes=2, unclean_leader_election=True, replica_lag_time_max_ms=500)
    client.produce(0, {("t", 0): record_batch(b"m1")})
    client.run(100)
    client.cluster.isolate(1)
    client.produce(0, {("t", 0): record_batch(b"m2")})
    # Until broker 0 is alone, holds m2 for committed and has that on disk.
    client.run(6_000)
    client.cluster.crash(0)
    client.run(FAILOVER_MS)
    client.cluster.isolate(1, False)
    client.produce(1, {("t", 0): record_batch(b"m3")})
    client.cluster.restart(0)
    client.run(FAILOVER_MS)
    assert client.log_of(0) == client.log_of(1) == [b"m1", b"m3"]


def leader_epoch(client: ByteClient, node_id: int) -> int:
    replica = client.cluster.replica("t", 0, node_id)
    assert replica is not None
    return replica.leader_epoch
