"""The nodes of a client by id: the brokers of its cluster, and the bootstrap servers.

    bootstrap server -1, boot:9092 ── a response names broker 7, boot:9092 ──> broker 7, which -1 also leads to
                                   <── broker 7 has moved, or is gone ───────

A bootstrap server whose host and port are a broker's is that broker: one node with two ids. So the broker takes over
the connection, with the requests in flight, the session and the throttle, and an attempt to connect with its backoff.
Addresses compare as text: two names of one host are two nodes.

Pure. Source: librdkafka 2.3 (rd_kafka_broker_update) and kafkajs (BrokerPool.refreshMetadata) do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kafka_sink.kafka.net.node import Node, NodeState, Server
from kafka_sink.kafka.protocol.apis.metadata import Broker


class Nodes:
    """Either id of a node that has two leads to it. Iteration yields each node once."""

    def __init__(self, bootstrap_servers: Iterable[Server]) -> None:
        # Negative ids, as in Java, because no broker has one.
        self._bootstrap_ids = {server: -1 - i for i, server in enumerate(dict.fromkeys(bootstrap_servers))}
        self._by_id = {node_id: Node(node_id, *server) for server, node_id in self._bootstrap_ids.items()}
        # Bootstrap id -> id of the broker at that address.
        self._broker_at: dict[int, int] = {}
        # The last list of all brokers, and the brokers that a response has named since.
        self._listed: tuple[int, ...] = ()
        self._learned: set[int] = set()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._by_id.values())

    def __getitem__(self, node_id: int) -> Node:
        return self._by_id[self._broker_at.get(node_id, node_id)]

    def get(self, node_id: int) -> Node | None:
        return self._by_id.get(self._broker_at.get(node_id, node_id))

    @property
    def brokers(self) -> Sequence[Node]:
        """The brokers of the last list."""
        return [self[node_id] for node_id in self._listed]

    @property
    def bootstrap(self) -> Sequence[Node]:
        """The bootstrap servers. Some may be brokers."""
        return [self[node_id] for node_id in self._bootstrap_ids.values()]

    def moved(self, brokers: Iterable[Broker]) -> Iterator[tuple[Node, Broker]]:
        """Yield the known brokers that have another address in `brokers`, each with its entry there."""
        for broker in brokers:
            node = self._by_id.get(broker.node_id)
            if node is not None and node.server != _server(broker):
                yield node, broker

    # --- what is known. Brokers that moved must have no connection any more. ------------------------------------------

    def list_brokers(self, brokers: Sequence[Broker]) -> None:
        """Set the brokers of the cluster. A removed broker stays until it has no connection, as it may still answer."""
        self._listed = tuple(dict.fromkeys(broker.node_id for broker in brokers))
        self._learned.clear()
        self._place(brokers)
        for node in list(self):
            self.forget_if_gone(node)

    def learn(self, broker: Broker) -> None:
        """Add one broker, until the next list."""
        self._learned.add(broker.node_id)
        self._place((broker,))

    def forget_if_gone(self, node: Node) -> None:
        """Remove a broker that is not known any more, once it has no connection."""
        if node.node_id >= 0 and not self._is_known(node.node_id) and node.state is NodeState.DISCONNECTED:
            self._remove(node)

    def _is_known(self, broker_id: int) -> bool:
        return broker_id in self._listed or broker_id in self._learned

    def _place(self, brokers: Sequence[Broker]) -> None:
        # First all that leave an address: another broker of the same list may be there now.
        for node, _ in list(self.moved(brokers)):
            self._remove(node)
        for broker in brokers:
            if broker.node_id not in self._by_id:
                self._by_id[broker.node_id] = self._node_for(broker)

    def _node_for(self, broker: Broker) -> Node:
        """Return the bootstrap server at the broker's address, which is this broker from now on, or a new node."""
        bootstrap_id = self._bootstrap_ids.get(_server(broker))
        holder = None if bootstrap_id is None else self._broker_at.get(bootstrap_id)
        # Two brokers may have one address, as behind a tunnel. The first keeps the bootstrap server.
        if bootstrap_id is None or (holder is not None and self._is_known(holder)):
            return Node(broker.node_id, broker.host, broker.port)
        self._broker_at[bootstrap_id] = broker.node_id
        adopted = self._by_id.pop(bootstrap_id, None)
        if adopted is None:
            # A removed broker may still answer over the old connection.
            return Node(broker.node_id, broker.host, broker.port)
        adopted.node_id = broker.node_id
        return adopted

    def _remove(self, node: Node) -> None:
        """Remove a broker. Its address may be that of a bootstrap server, which is a node of its own again."""
        del self._by_id[node.node_id]
        bootstrap_id = self._bootstrap_ids.get(node.server)
        if bootstrap_id is None or self._broker_at.get(bootstrap_id) != node.node_id:
            return
        heir = next((each for each in self if each.server == node.server), None)
        if heir is not None:
            self._broker_at[bootstrap_id] = heir.node_id
        else:
            del self._broker_at[bootstrap_id]
            self._by_id[bootstrap_id] = Node(bootstrap_id, *node.server)


def _server(broker: Broker) -> Server:
    return broker.host, broker.port
