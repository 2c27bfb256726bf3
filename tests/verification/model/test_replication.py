"""Rounds of fetches, the high watermark behind them, and who is in sync."""

from __future__ import annotations

import pytest

from model.byte_client import ByteClient, client_of_topic, record_batch

NEXT_FETCH_MS = 5


def high_watermarks(client: ByteClient) -> list[int]:
    return [client.cluster.high_watermark("t", 0, node_id) for node_id in range(3)]


def end_offsets(client: ByteClient) -> list[int]:
    return [client.cluster.log_end_offset("t", 0, node_id) for node_id in range(3)]


def test_a_batch_is_known_to_be_committed_in_the_third_round_of_the_followers() -> None:
    client = client_of_topic(3, 2, replica_fetch_ms=(10, 10))
    client.produce(0, {("t", 0): record_batch(b"a")})
    seen = []
    for _ in range(4):
        seen.append((end_offsets(client), high_watermarks(client)))
        client.run(10)
    assert seen == [([1, 0, 0], [0, 0, 0]), ([1, 1, 1], [0, 0, 0]), ([1, 1, 1], [1, 0, 0]), ([1, 1, 1], [1, 1, 1])]


def test_the_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=500)
    client.cluster.isolate(2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(500)
    assert high_watermarks(client)[0] == 0
    assert client.cluster.state("t", 0).isr == (0, 1, 2)
    client.run(1)
    assert client.cluster.state("t", 0).isr == (0, 1)
    assert high_watermarks(client)[0] == 1


def test_a_follower_that_caught_up_joins_the_isr_again() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=500)
    client.cluster.isolate(2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(600)
    client.cluster.isolate(2, False)
    client.run(100)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)
    assert client.log_of(2) == [b"a"]


def test_it_joins_when_the_leader_has_seen_that_it_caught_up_and_not_before() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=500, replica_fetch_ms=(10, 10))
    client.cluster.isolate(2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(600)
    client.cluster.isolate(2, False)
    client.run(10)
    assert (end_offsets(client), client.cluster.state("t", 0).isr) == ([1, 1, 1], (0, 1))
    client.run(10)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)


def test_a_follower_that_is_always_a_little_behind_stays_in_sync() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=50)
    for _ in range(300):
        client.produce(0, {("t", 0): record_batch(b"a")}, acks=1)
        client.run(1)
        assert client.cluster.state("t", 0).isr == (0, 1, 2)


def test_a_follower_that_had_nothing_to_fetch_for_long_is_in_sync() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=50)
    client.run(10_000)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(NEXT_FETCH_MS)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)


def test_an_isolated_follower_of_a_partition_at_rest_stays_in_the_isr_until_it_lags() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=50)
    client.cluster.isolate(2)
    client.run(10_000)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(NEXT_FETCH_MS)
    assert client.cluster.state("t", 0).isr == (0, 1)


def test_a_dead_follower_leaves_the_isr_when_the_controller_notices() -> None:
    client = client_of_topic(3, 2, failure_detection_ms=(300, 300))
    client.cluster.crash(2)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(290)
    assert client.produced(sent) is None
    client.run(100)
    assert client.cluster.state("t", 0).isr == (0, 1)
    assert client.code(sent) == 0


def test_a_broker_that_comes_back_before_anybody_noticed_is_no_leader_any_more() -> None:
    client = client_of_topic(3, 2)
    client.cluster.crash(0)
    client.cluster.restart(0)
    assert client.cluster.leader("t", 0) == 1
    client.run(2_000)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)
    assert client.code(client.produce(0, {("t", 0): record_batch(b"a")})) == 6


@pytest.mark.parametrize(("after_ms", "high_watermark"), [(100, 0), (6_000, 1)])
def test_a_broker_that_comes_back_has_the_high_watermark_of_its_last_checkpoint(
    after_ms: int, high_watermark: int
) -> None:
    client = client_of_topic(3, 2, high_watermark_checkpoint_interval_ms=5_000)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(after_ms)
    assert high_watermarks(client) == [1, 1, 1]
    client.cluster.crash(2)
    client.cluster.restart(2)
    assert (end_offsets(client)[2], high_watermarks(client)[2]) == (1, high_watermark)


def test_the_high_watermark_waits_a_while_for_a_follower_that_was_in_sync_just_now() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=500)
    client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(100)
    client.cluster.crash(2)
    client.cluster.isolate(2)
    client.cluster.restart(2)
    client.run(50)
    assert client.cluster.state("t", 0).isr == (0, 1)
    client.produce(0, {("t", 0): record_batch(b"b")}, acks=1)
    client.run(100)
    assert high_watermarks(client)[0] == 1
    client.run(500)
    client.produce(0, {("t", 0): record_batch(b"c")}, acks=1)
    client.run(100)
    assert high_watermarks(client)[0] == 3
