"""Ports for brokers that are free and that nobody takes in between.

A broker must know its port before it binds it: the voters of the quorum name each other's ports, and a node
that was killed comes back on its old one. `bind(0)` and close would hand out a port of the kernel's ephemeral
range, and any connection that anybody opens before the broker binds may take it: in a test that kills brokers
while clients reconnect, that happens. So ports come from below that range (32768 on Linux, 49152 on macOS,
IANA's too), at random; only two choosers like this one can meet, in the second between choice and bind, and
then `cluster` chooses again.
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
    """`count` different ports that nothing listens on; raises LocalClusterUnusable when there are none."""
    candidates = rng.sample(range(LOWEST_PORT, HIGHEST_PORT + 1), ATTEMPTS)
    found = list(itertools.islice(filter(is_free, candidates), count))
    if len(found) < count:
        raise LocalClusterUnusable(
            f"no {count} free ports between {LOWEST_PORT} and {HIGHEST_PORT} on {HOST} in {ATTEMPTS} attempts. "
            "End what listens there, e.g. brokers of earlier runs."
        )
    return found


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java sets it on the sockets it listens on: ports with connections in TIME_WAIT are free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
