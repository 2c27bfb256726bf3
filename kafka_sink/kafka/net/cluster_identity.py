"""Which cluster a client belongs to, and when another cluster has replaced it.

Every connection tells the id of its cluster before it carries a request. A connection to another cluster has failed, as
any other may fail: a container or a cloud gives an address to somebody else. Only bootstrap servers tell that the
cluster was replaced, because the user chose their addresses. It was replaced if one of them leads to another cluster
while no connection is open, and after that every other one was tried in vain.

An address that leads elsewhere puts the list of brokers in doubt. Bootstrap servers are then asked first, until another
list comes or a broker is connected.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.errors import ClusterChanged
from kafka_sink.kafka.net.nodes import Server


class ClusterIdentity:
    def __init__(self, cluster_id: str | None, bootstrap_servers: Iterable[Server]) -> None:
        """`cluster_id`: None for that of the first broker that names one."""
        self.cluster_id = cluster_id
        self._bootstrap_servers = frozenset(bootstrap_servers)
        # An address led elsewhere since the last list of brokers.
        self._is_in_doubt = False
        # Since the last open connection: the first bootstrap server that led elsewhere.
        self._elsewhere: ClusterChanged | None = None
        # The bootstrap servers that were tried in vain since either began.
        self._tried: set[Server] = set()

    def is_ours(self, found: str | None) -> bool:
        """Return True if a connection leads to this client's cluster, or to a broker that does not know its cluster."""
        if self.cluster_id is None:
            self.cluster_id = found
        return found is None or found == self.cluster_id

    def connected(self, server: Server) -> None:
        """Note that a connection to this cluster is open."""
        self._elsewhere = None
        self._tried.clear()
        if server not in self._bootstrap_servers:
            self._is_in_doubt = False

    def brokers_listed(self) -> None:
        """Note that there is a new list of brokers."""
        self._is_in_doubt = False

    def failed(self, server: Server, elsewhere: ClusterChanged | None, *, is_last: bool) -> ClusterChanged | None:
        """Note a connection, or an attempt to connect, that failed, so that none is open. Return the error if the
        cluster was replaced.

        `elsewhere`: it led to another cluster.
        `is_last`: no address that the server's name resolved to is left to try.
        """
        is_bootstrap = server in self._bootstrap_servers
        if elsewhere is not None and not self._is_in_doubt:
            self._is_in_doubt = True
            self._tried.clear()
        if elsewhere is not None and is_bootstrap and self._elsewhere is None:
            self._elsewhere = elsewhere
            self._tried.clear()
        if is_bootstrap and is_last:
            self._tried.add(server)
        return self._elsewhere if self._tried == self._bootstrap_servers else None

    def is_to_be_asked(self, server: Server) -> bool:
        """Return True if the list of brokers is in doubt, and this bootstrap server was not tried in vain."""
        return self._is_in_doubt and server not in self._tried
