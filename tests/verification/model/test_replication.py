"""Rounds of fetches, the high watermark behind them, and who is in sync."""

from __future__ import annotations

import pytest

from model.byte_client import ByteClient, client_of_topic, record_batch


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


def test_a_follower_that_is_always_a_little_behind_stays_in_sync() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=50)
    for _ in range(300):
        client.produce(0, {("t", 0): record_batch(b"a")}, acks=1)
        client.run(1)
        assert client.cluster.state("t", 0).isr == (0, 1, 2)


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
