"""Nodes, and the addresses of their names."""

import socket
import threading
import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from kafka_sink.kafka.net.nodes import Node, Nodes, NodeState
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.protocol.apis.metadata import Broker

A, B, C = (("a", 9092), ("b", 9092), ("c", 9092))


def broker(node_id: int, server: tuple[str, int] = A) -> Broker:
    return Broker(node_id, *server)


def test_host_and_port_must_be_the_same_text() -> None:
    nodes = Nodes([A])
    nodes.list_brokers([broker(7, ("a", 9093)), broker(8, ("A", 9092)), broker(9, ("10.0.0.1", 9092))])
    assert nodes[-1].node_id == -1
    assert nodes.get(5) is None


def test_of_two_brokers_with_one_address_the_first_has_the_server() -> None:
    """As behind a tunnel. Each has its own connection, as it always had."""
    nodes = Nodes([A])
    for _ in range(2):
        nodes.list_brokers([broker(7), broker(8)])
        assert nodes[-1] is nodes[7]
        assert nodes[8] is not nodes[7]


BROKERS = st.lists(
    st.builds(broker, st.integers(1, 3), st.sampled_from([A, B, C])), max_size=4, unique_by=lambda each: each.node_id
)


class AnyLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes([A, B])
        self.known: set[int] = set()

    def leave_moved(self, brokers: list[Broker]) -> None:
        for node, _ in self.nodes.moved(brokers):
            self.end(node)

    def end(self, node: Node) -> None:
        node.state = NodeState.DISCONNECTED
        self.nodes.forget_if_gone(node)

    @rule(brokers=BROKERS.filter(bool))
    def list_brokers(self, brokers: list[Broker]) -> None:
        self.leave_moved(brokers)
        self.nodes.list_brokers(brokers)
        self.known = {each.node_id for each in brokers}
        assert [(node.node_id, *node.server) for node in self.nodes.brokers] == [
            (each.node_id, each.host, each.port) for each in brokers
        ]

    @rule(each=st.builds(broker, st.integers(1, 3), st.sampled_from([A, B, C])))
    def learn(self, each: Broker) -> None:
        self.leave_moved([each])
        self.nodes.learn(each)
        self.known.add(each.node_id)
        assert self.nodes[each.node_id].server == (each.host, each.port)

    @precondition(lambda self: any(node.state is NodeState.DISCONNECTED for node in self.nodes))
    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        idle = [node for node in self.nodes if node.state is NodeState.DISCONNECTED]
        data.draw(st.sampled_from(idle)).state = NodeState.READY

    @precondition(lambda self: any(node.state is NodeState.READY for node in self.nodes))
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([node for node in self.nodes if node.state is NodeState.READY])))

    @invariant()
    def one_node_for_each_id(self) -> None:
        by_id = {node.node_id: node for node in self.nodes}
        assert len(by_id) == len(list(self.nodes))
        assert all(self.nodes[node_id] is node for node_id, node in by_id.items())
        assert self.known <= by_id.keys()
        assert all(by_id[node_id].state is NodeState.READY for node_id in by_id.keys() - self.known if node_id >= 0)

    @invariant()
    def bootstrap_servers_keep_their_addresses(self) -> None:
        assert [node.server for node in self.nodes.bootstrap] == [A, B]

    @invariant()
    def an_address_has_no_server_beside_its_broker(self) -> None:
        servers, of_brokers = (
            {node.server for node in self.nodes if (node.node_id < 0) is is_server} for is_server in (True, False)
        )
        assert not servers & of_brokers


TestAnyLists = AnyLists.TestCase
TestAnyLists.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)


def test_a_name_has_each_of_its_addresses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9092, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [six, four, six])
    found = resolve("localhost", 9092)
    assert found == [
        (socket.AF_INET6, ("::1", 9092, 0, 0), "localhost"), (socket.AF_INET, ("127.0.0.1", 9092), "localhost")
    ]  # fmt: skip
    assert [str(address) for address in found] == ["[::1]:9092", "127.0.0.1:9092"]
    monkeypatch.undo()
    # An address is its own name.
    assert resolve("127.0.0.1", 9092) == [(socket.AF_INET, ("127.0.0.1", 9092), "127.0.0.1")]


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "nowhere.invalid", "a\0b", "\x1b[2J", "x" * 100_000])
def test_a_name_that_is_none_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError):
        resolve(host, 9092)


def test_silent_name_servers_are_waited_for_in_time_and_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []
    threads: list[threading.Thread] = []
    system_look_up = socket.getaddrinfo

    def look_up(host: str, *args: Any, **named: Any) -> list[Any]:
        if host != "kafka-1":  # Spark's client looks names up in threads of its own.
            return system_look_up(host, *args, **named)
        asked.append(host)
        threads.append(threading.current_thread())
        over.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"no name server answered within 0\.1 s"):
            resolve("kafka-1", 9092, timeout_s=0.1)
    assert time.monotonic() - begun < 25
    assert asked == ["kafka-1"]
    over.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    # What was found when nobody waited is not kept, nor is what somebody waited for.
    for number in (2, 3):
        assert resolve("kafka-1", 9092)[0].sockaddr == ("127.0.0.1", 9092)
        assert asked == ["kafka-1"] * number
