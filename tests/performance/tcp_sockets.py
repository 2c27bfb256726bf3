"""Which process has how many connections to a broker: Linux's tables of TCP sockets, joined with open files.

A connection over the loopback interface is in the tables twice, once for each end. The end that counts is the broker's,
at its listener; the other end's inode tells whose connection it is.

Source: proc(5), and tcp_states.h and tcp_ipv4.c (get_tcp4_sock) of Linux for the columns.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal

ESTABLISHED = 1
_PROC = Path("/proc")
_OPEN_SOCKET = "socket:["

Address = tuple[IPv4Address | IPv6Address, int]


@dataclass(frozen=True, slots=True)
class Socket:
    """`inode`: 0 when no process has the socket open any more."""

    local: Address
    remote: Address
    state: int
    inode: int


def parse_sockets(text: str, byte_order: Literal["little", "big"] = sys.byteorder) -> list[Socket]:
    """The rows of /proc/net/tcp or /proc/net/tcp6. An IPv4 address that IPv6 maps, as Java's sockets have it, is given
    as the IPv4 address. `byte_order`: of the machine that wrote the text."""
    rows = (line.split() for line in text.splitlines()[1:])
    return [
        Socket(_address(row[1], byte_order), _address(row[2], byte_order), int(row[3], 16), int(row[9])) for row in rows
    ]


def _address(text: str, byte_order: Literal["little", "big"]) -> Address:
    """An address is 32-bit words of the machine's byte order, each in hex; a port is a plain hex number."""
    host, _, port = text.partition(":")
    words = (int(host[at : at + 8], 16) for at in range(0, len(host), 8))
    packed = b"".join(word.to_bytes(4, byte_order) for word in words)
    if len(packed) == 4:
        return IPv4Address(packed), int(port, 16)
    address = IPv6Address(packed)
    return address.ipv4_mapped or address, int(port, 16)


def connections(
    sockets: Iterable[Socket], listeners: Mapping[int, int], owners: Mapping[int, int]
) -> Counter[tuple[int, int]]:
    """(process, node) -> established connections of the process at the node's listener.

    `listeners`: port -> node. `owners`: inode -> process; connections of other processes are left out.
    """
    established = [each for each in sockets if each.state == ESTABLISHED]
    inodes = {(each.local, each.remote): each.inode for each in established}
    found: Counter[tuple[int, int]] = Counter()
    for each in established:
        node = listeners.get(each.local[1])
        owner = owners.get(inodes.get((each.remote, each.local), 0))
        if node is not None and owner is not None:
            found[owner, node] += 1
    return found


def open_sockets(pids: Iterable[int]) -> dict[int, int]:
    """Inode -> process, of all sockets that these processes have open."""
    found = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for entry in os.scandir(_PROC / str(pid) / "fd"):
                with contextlib.suppress(FileNotFoundError):
                    target = os.readlink(entry.path)
                    if target.startswith(_OPEN_SOCKET):
                        found[int(target[len(_OPEN_SOCKET) : -1])] = pid
    return found


def all_sockets() -> list[Socket]:
    """Of this machine, or of this container."""
    return [each for name in ("tcp", "tcp6") for each in parse_sockets((_PROC / "net" / name).read_text())]
