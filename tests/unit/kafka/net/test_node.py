from __future__ import annotations

import random
import socket

import pytest

from kafka_sink.kafka.net.node import Node, NodeState
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.apis.api_versions import ApiVersionsRequest
from kafka_sink.kafka.protocol.connection import Connection

A, B, C = (Address(socket.AF_INET, (f"10.0.0.{n}", 9092)) for n in (1, 2, 3))


def connection() -> Connection:
    return Connection(client_id="me", software=ApiVersionsRequest("test", "1"))


def attempt(node: Node, *resolved: Address) -> Address:
    if node.needs_resolving:
        node.resolved(resolved)
    return node.connecting(1, connection(), now_ms=0, setup_timeout_ms=10)


class TestAddresses:
    def test_are_tried_in_turn_and_then_asked_for_again(self) -> None:
        node = Node(1, "host", 9092)
        tried = []
        for _ in range(3):
            tried.append(attempt(node, A, B, C))
            node.disconnected(0)
        assert tried == [A, B, C]
        assert node.needs_resolving

    def test_the_one_that_failed_is_not_tried_twice_in_a_row(self) -> None:
        node = Node(1, "host", 9092)
        assert attempt(node, A) == A
        node.disconnected(0)
        assert attempt(node, A, B) == B
        node.disconnected(0)
        assert attempt(node) == A

    def test_a_connection_that_was_good_is_resolved_anew(self) -> None:
        node = Node(1, "host", 9092)
        attempt(node, A, B)
        node.connected(0)
        node.ready(0)
        node.disconnected(0)
        assert node.needs_resolving

    @pytest.mark.parametrize("state", [NodeState.CONNECTING, NodeState.NEGOTIATING])
    def test_one_that_never_was_good_leaves_the_others_to_try(self, state: NodeState) -> None:
        node = Node(1, "host", 9092)
        attempt(node, A, B)
        if state is NodeState.NEGOTIATING:
            node.connected(0)
        node.disconnected(0)
        assert attempt(node) == B


class TestBackoff:
    def test_doubles_up_to_its_limit_with_jitter(self) -> None:
        node = Node(1, "host", 9092)
        rng = random.Random(7)
        waits = []
        for _ in range(2000):
            node.back_off(0, 50, 1000, rng)
            waits.append(node.retry_at_ms)
        for wait, exponential in zip(waits[:5], [50, 100, 200, 400, 800], strict=True):
            assert 0.8 * exponential - 1 <= wait <= min(1.2 * exponential, 1000)
        assert {800 <= wait <= 1000 for wait in waits[5:]} == {True}
        assert len(set(waits[5:])) == 1  # far beyond the limit, jitter has nothing left to say

    def test_starts_over_once_ready(self) -> None:
        node = Node(1, "host", 9092)
        for _ in range(6):
            node.back_off(0, 50, 1000, random.Random(7))
        node.ready(0)
        node.back_off(0, 50, 1000, random.Random(7))
        assert node.retry_at_ms <= 60

    def test_nothing_is_tried_meanwhile(self) -> None:
        node = Node(1, "host", 9092)
        node.back_off(1_000, 100, 100, random.Random(7))
        assert not node.can_connect(node.retry_at_ms - 1)
        assert node.can_connect(node.retry_at_ms)
        assert node.delay_ms(1_000) == node.retry_at_ms - 1_000
        assert node.delay_ms(node.retry_at_ms) == 0


class TestThrottle:
    def test_is_not_shortened_by_a_later_answer(self) -> None:
        node = Node(1, "host", 9092, state=NodeState.READY)
        node.throttle(500, 0)
        node.throttle(300, 0)
        assert node.delay_ms(100) == 400
        assert node.delay_ms(500) is None


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Node(3, "broker.example", 9092), "broker 3 broker.example:9092"),
        (Node(-1, "localhost", 9092, address=A), "bootstrap server localhost:9092 (10.0.0.1:9092)"),
    ],
)
def test_a_node_says_who_it_is(node: Node, text: str) -> None:
    assert str(node) == text
