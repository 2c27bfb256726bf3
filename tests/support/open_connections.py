"""TCP connections to brokers of this machine, as the kernel lists them. A socket in TIME_WAIT belongs to no process."""

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

_ESTABLISHED = "01"


def connections_to(bootstrap_servers: str) -> dict[int, int]:
    """The processes, other than this one, that are connected to the brokers: socket's inode -> process id."""
    ports = _established(_ports_of(bootstrap_servers))
    others = {int(each.name) for each in Path("/proc").glob("[0-9]*")} - {os.getpid()}
    return {inode: process_id for process_id in others for inode in _sockets(process_id) if inode in ports}


def own_connections(bootstrap_servers: str) -> dict[int, int]:
    """Those of this process: socket's inode -> the broker's port."""
    ports = _established(_ports_of(bootstrap_servers))
    return {inode: ports[inode] for inode in _sockets(os.getpid()) if inode in ports}


def opened_since(before: Iterable[int], bootstrap_servers: str) -> Counter[int]:
    """A broker's port -> how many connections to it this process has opened since `before` and not closed."""
    return Counter(port for inode, port in own_connections(bootstrap_servers).items() if inode not in before)


def connections_of(process_ids: Iterable[int], ports: Collection[int]) -> Counter[tuple[int, int]]:
    """(process id, remote port) -> how many connections the process has to one of these ports."""
    there = _established(ports)
    return Counter((each, there[inode]) for each in process_ids for inode in _sockets(each) if inode in there)


def _ports_of(bootstrap_servers: str) -> set[int]:
    return {int(server.rpartition(":")[2]) for server in bootstrap_servers.split(",")}


def _established(ports: Collection[int]) -> dict[int, int]:
    """Inode -> remote port."""
    tables = (Path("/proc/self/net", table).read_text(encoding="ascii") for table in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    found = {int(line[9]): int(line[2].rpartition(":")[2], 16) for line in lines if line[3] == _ESTABLISHED}
    return {inode: port for inode, port in found.items() if port in ports}


def _sockets(process_id: int) -> set[int]:
    inodes = set()
    with contextlib.suppress(OSError):  # the process has ended, or is not ours
        for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
            with contextlib.suppress(OSError):  # that of this list itself
                kind, _, inode = os.readlink(descriptor).partition(":")
                if kind == "socket":
                    inodes.add(int(inode.strip("[]")))
    return inodes
