"""Names to addresses, by the operating system."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from concurrent.futures import Future

from kafka_sink.kafka.deadline import started
from kafka_sink.kafka.net.transport import Address
from kafka_sink.text.quoting import MAX_HOST_CHARACTERS, quoted

# Room for two dead name servers before one that answers, at resolv.conf's 5 s each, and for its answer.
LOOK_UP_TIMEOUT_S = 20.0

_pending: dict[tuple[int, str, int], Future[list[Address]]] = {}
_pending_lock = threading.Lock()


def resolve(host: str, port: int, *, timeout_s: float = LOOK_UP_TIMEOUT_S) -> list[Address]:
    """All addresses of `host`, in the system's order of preference (RFC 6724). Blocks for `timeout_s` at most; raises
    OSError.

    Name servers that do not answer hold `getaddrinfo` for as long as /etc/resolv.conf says, and nothing can interrupt
    it. It runs in a thread of its own, and whoever asks again in the meantime waits for that one.
    """
    if is_address(host):
        return _looked_up(host, port)
    # A forked child has no threads of its parent's.
    key = os.getpid(), host, port
    with _pending_lock:
        look_up = _pending.get(key)
        # One that ended when nobody waited any more may have ended hours ago.
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
        # The IDNA codec's way to say that no such name can exist; ValueError: a null character.
        raise OSError(f"{quoted(host, MAX_HOST_CHARACTERS)!r} is not a host name") from error
    except socket.gaierror:
        # Without files it says that the name is not known, or no server can be asked: raises what is the matter.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise
    return list(dict.fromkeys(Address(family, sockaddr, host) for family, _, _, _, sockaddr in found))


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
