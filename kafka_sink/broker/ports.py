"""Chooses free ports for brokers that stay free until the brokers bind them.

A broker must know its port before it binds it: the voters of the quorum name each other's ports, and a restarted node
uses its old port. `bind(0)` and close would return a port of the kernel's ephemeral range. Any new connection may take
such a port before the broker binds it. This happens in tests that kill brokers while clients reconnect.

So the ports are random ones below that range (it starts at 32768 on Linux, at 49152 on macOS and for IANA). Only
another process with the same rule can take one, in the second between choice and bind. Then `cluster` chooses again.
"""

from __future__ import annotations

import itertools
import random
import socket

from kafka_sink.broker.errors import LocalClusterUnusable

HOST = "127.0.0.1"
LOWEST_PORT = 20000
HIGHEST_PORT = 32767
ATTEMPTS = 1000


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Return `count` different ports on which nothing listens. Raises LocalClusterUnusable if there are too few."""
    candidates = rng.sample(range(LOWEST_PORT, HIGHEST_PORT + 1), ATTEMPTS)
    found = list(itertools.islice(filter(is_free, candidates), count))
    if len(found) < count:
        raise LocalClusterUnusable(
            f"no {count} free ports between {LOWEST_PORT} and {HIGHEST_PORT} on {HOST} in {ATTEMPTS} attempts. "
            "End the programs that listen there, e.g. brokers of earlier runs."
        )
    return found


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets it on its listening sockets too: ports with connections in TIME_WAIT count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
