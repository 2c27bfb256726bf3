"""The seam: bytes in, bytes out, time from outside, and nothing left to chance but the seed."""

from __future__ import annotations

from model.byte_client import Answer, client_of_topic, record_batch


def test_a_cluster_at_rest_plans_nothing() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.cluster.next_event_ms() is not None
    client.run(100)
    assert client.cluster.next_event_ms() is None


def test_requests_are_executed_although_their_client_is_gone() -> None:
    client = client_of_topic(3, 2)
    first = client.produce(0, {("t", 0): record_batch(b"a")})
    second = client.produce(0, {("t", 0): record_batch(b"b")})
    client.disconnect(0)
    client.run(200)
    assert client.committed() == [b"a", b"b"]
    assert client.produced(first) is client.produced(second) is None


def test_requests_of_a_connection_are_answered_one_after_the_other() -> None:
    client = client_of_topic(3, 2)
    waiting = client.produce(0, {("t", 0): record_batch(b"a")})
    behind = client.produce(0, {("t", 0): record_batch(b"b")}, acks=1)
    assert client.cluster.log_end_offset("t", 0, 0) == 1
    client.run_until(lambda: client.produced(waiting) is not None)
    assert client.produced(behind) == {0: Answer(0, 1)}
