"""Names to addresses, by the operating system."""

from __future__ import annotations

import socket

from kafka_sink.net.transport import Address
from kafka_sink.quoting import MAX_HOST_CHARACTERS, quoted


def resolve(host: str, port: int) -> list[Address]:
    """All addresses of `host`, in the system's order of preference (RFC 6724). Blocks; raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # The IDNA codec's way to say that no such name can exist.
        raise OSError(f"{quoted(host, MAX_HOST_CHARACTERS)!r} is not a host name") from error
    return list(dict.fromkeys(Address(family, sockaddr, host) for family, _, _, _, sockaddr in found))
