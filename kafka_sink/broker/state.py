"""The files in a cluster's folder, by which other processes find the cluster.

* `cluster.json`: the identity of the cluster whose data is in the folder. It is never removed.
* `running.json`: the process that runs the cluster, and the cluster's addresses. `stop` and `status` read it.
* `owner.lock`: the process that runs the cluster holds this lock.

`running.json` may be stale after kill -9 or a power cut, and another process may have the pid now. So a process is
identified by its pid and its start time. The file may also be forged, and `stop` sends a signal to the pid. So the
process must hold the folder's lock, and belong to the user who owns the file.

Only their owner can read the files, and they are never opened through a symbolic link.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, get_type_hints

CLUSTER_FILE = "cluster.json"
RUNNING_FILE = "running.json"
LOCK_FILE = "owner.lock"
MAX_STATE_BYTES = 64 * 1024

T = TypeVar("T")


class _Stored:
    """A base of dataclasses that are stored as JSON."""

    __slots__ = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError when the text is something else."""
        return _made(cls, json.loads(text))


def _made(kind: type[T], found: Any, name: str = "the text") -> T:
    if not is_dataclass(kind):
        if not isinstance(found, kind):
            raise ValueError(f"{name} is not of type {kind.__name__}")
        return found
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a JSON object")
    return kind(**{each: _made(of, found.get(each), each) for each, of in get_type_hints(kind).items()})


@dataclass(frozen=True, slots=True)
class ClusterIdentity(_Stored):
    """The identity of the cluster whose data is in a folder."""

    cluster_id: str
    kafka_version: str
    nodes: int


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process. The start time distinguishes it from a later process with the same pid."""

    pid: int
    start_time: str


@dataclass(frozen=True, slots=True)
class RunningCluster(_Stored):
    """The process that runs the cluster, and the cluster's addresses."""

    owner: ProcessIdentity
    kafka_version: str
    nodes: int
    bootstrap_servers: str


def write_atomically(path: Path, text: str) -> None:
    """Write the file by renaming. A reader sees the complete new text, or the old one."""
    temporary = path.with_suffix(".tmp")
    # A crash, or another user, may have left this file.
    temporary.unlink(missing_ok=True)
    with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def open_private(path: Path, flags: int) -> int:
    """Open a file that only its owner may read. Create it if it is missing. Raises OSError (ELOOP) for a symbolic
    link."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def read_running(directory: Path) -> RunningCluster | None:
    """Return the cluster that runs in this folder, or None. A stale, broken or forged file gives None."""
    try:
        # O_NONBLOCK and O_NOFOLLOW, because another user may have put a pipe or a link there.
        descriptor = os.open(directory / RUNNING_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                return None
            running = RunningCluster.from_json(file.read(MAX_STATE_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None
    pid = running.owner.pid
    is_ours = pid > 1 and is_running(running.owner) and _holds_lock(pid, directory / LOCK_FILE, facts.st_uid)
    return running if is_ours else None


def _holds_lock(pid: int, lock: Path, user_id: int) -> bool:
    """Return True if the process belongs to `user_id` and has the lock file open.

    Without /proc, return True if any process holds the lock.
    """
    try:
        found = os.stat(lock, follow_symlinks=False)
        if not os.path.exists("/proc/self/fd"):
            return _is_locked(lock)
        if os.stat(f"/proc/{pid}").st_uid != user_id:
            return False
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), found):
                return True
        except OSError:  # closed meanwhile
            continue
    return False


def _is_locked(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_running(process: ProcessIdentity) -> bool:
    return identify(process.pid) == process


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process, or None if it does not exist or is a zombie."""
    start_time = _start_time_from_proc(pid) if os.path.exists("/proc/self/stat") else _start_time_from_ps(pid)
    return None if start_time is None else ProcessIdentity(pid, start_time)


def _start_time_from_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): pid (comm) state ...; comm may contain spaces and brackets. Field 3 is the state, field 22 the start
    # time in clock ticks since boot.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[22 - 3]


def _start_time_from_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )
    state, _, start_time = answer.stdout.strip().partition(" ")
    return None if not start_time or state.startswith("Z") else start_time.strip()


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the default folder of a detached cluster (XDG Base Directory Specification, state)."""
    xdg = Path(environ.get("XDG_STATE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "state") / "pykafka" / "broker"
