"""The TCP connections of this process, as the kernel lists them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_ESTABLISHED = "01"


def open_connections() -> Mapping[str, int]:
    """Return inode -> remote port of each open TCP connection. A socket in TIME_WAIT belongs to no process."""
    ours = _socket_inodes()
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text(encoding="ascii").splitlines()[1:]:
            _, _, remote, state, _, _, _, _, _, inode, *_ = line.split()
            if state == _ESTABLISHED and inode in ours:
                found[inode] = int(remote.rpartition(":")[2], 16)
    return found


def opened_since(before: Mapping[str, int]) -> Counter[int]:
    """Return remote port -> number of connections that were opened since `before` and are open."""
    return Counter(port for inode, port in open_connections().items() if inode not in before)


def _socket_inodes() -> set[str]:
    inodes = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
    return inodes
