"""Resolves names to addresses with the operating system."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from concurrent.futures import Future

from kafka_sink.errors.quoting import MAX_HOST_CHARACTERS, quoted
from kafka_sink.kafka.clock import started
from kafka_sink.kafka.net.transport import Address

# Enough for two dead name servers, at resolv.conf's 5 s each, and for the answer of the next.
LOOK_UP_TIMEOUT_S = 20.0

_pending: dict[tuple[int, str, int], Future[list[Address]]] = {}
_pending_lock = threading.Lock()


def resolve(host: str, port: int, *, timeout_s: float = LOOK_UP_TIMEOUT_S) -> list[Address]:
    """Return all addresses of `host`, in the system's order of preference (RFC 6724).

    Blocks for at most `timeout_s`. Raises OSError.

    If name servers do not answer, `getaddrinfo` blocks for as long as /etc/resolv.conf says, and cannot be interrupted.
    So it runs in its own thread. Further calls for the same name wait for that thread.
    """
    if is_address(host):
        return _looked_up(host, port)
    # The process id is in the key, because a forked child does not have its parent's threads.
    key = os.getpid(), host, port
    with _pending_lock:
        look_up = _pending.get(key)
        # A finished lookup that no call waited for may be hours old.
        if look_up is None or look_up.done():
            look_up = _pending[key] = started(lambda: _looked_up(host, port))
    try:
        return look_up.result(timeout_s)
    except TimeoutError:
        if look_up.done():
            raise
        raise TimeoutError(f"no name server answered within {timeout_s:g} s") from None
    finally:
        if look_up.done():
            with _pending_lock:
                _pending.pop(key, None)


def _looked_up(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (UnicodeError, ValueError) as error:
        # UnicodeError: the IDNA codec found the name impossible. ValueError: the name has a null character.
        raise OSError(f"{quoted(host, MAX_HOST_CHARACTERS)!r} is not a host name") from error
    except socket.gaierror:
        # Without free files, getaddrinfo reports an unknown name or no server. Opening a file raises the real error.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise
    return list(dict.fromkeys(Address(family, sockaddr, host) for family, _, _, _, sockaddr in found))


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
