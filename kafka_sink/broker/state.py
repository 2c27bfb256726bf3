"""What one process must know of a cluster that another one runs, and of one that ran before: files in its
folder.

* `cluster.json`: which cluster the data in this folder belongs to; there for good.
* `running.json`: who runs it now and where it answers; `stop` and `status` read it. It may be stale, after
  kill -9 or a power cut, and its pid may have gone to another process since: so the pid counts together with
  the time that the process was started. It may be forged, and `stop` signals that pid: so the process must hold
  the folder's lock, and be of the user who owns the file.
* `owner.lock`: held by whoever runs the cluster.

Files are readable for their owner only, and none is reached through a symbolic link.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

CLUSTER_FILE = "cluster.json"
RUNNING_FILE = "running.json"
LOCK_FILE = "owner.lock"
MAX_STATE_BYTES = 64 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What the data in a folder belongs to."""

    cluster_id: str
    kafka_version: str
    nodes: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError when the text is something else."""
        fields = _object(text)
        return cls(_get(fields, "cluster_id", str), _get(fields, "kafka_version", str), _get(fields, "nodes", int))


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, told apart from any later one with the same pid."""

    pid: int
    start_time: str


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """Who runs the cluster, and where it answers."""

    owner: ProcessIdentity
    kafka_version: str
    nodes: int
    bootstrap_servers: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError when the text is something else."""
        fields = _object(text)
        owner = _get(fields, "owner", dict)
        return cls(
            ProcessIdentity(_get(owner, "pid", int), _get(owner, "start_time", str)),
            _get(fields, "kafka_version", str),
            _get(fields, "nodes", int),
            _get(fields, "bootstrap_servers", str),
        )


def _object(text: str) -> dict[str, Any]:
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def _get(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"{name} is not of type {kind.__name__}")
    return value


def write_atomically(path: Path, text: str) -> None:
    """A reader sees all of it or what was there before."""
    temporary = path.with_suffix(".tmp")
    # What a crash left, or somebody else put there.
    temporary.unlink(missing_ok=True)
    with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file that its owner alone may read, made if it is missing. Raises OSError (ELOOP) for a
    symbolic link."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def read_running(directory: Path) -> RunningCluster | None:
    """What runs in this folder now; None when nothing does, a stale, broken or forged file included."""
    try:
        # A pipe in its place would never end, a link lead elsewhere.
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
    """Whether the process is `user_id`'s and has the lock file open. Without /proc: whether anybody holds it."""
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
    """None when there is no such process, or it has ended and only waits for its parent to notice."""
    start_time = _start_time_from_proc(pid) if os.path.exists("/proc/self/stat") else _start_time_from_ps(pid)
    return None if start_time is None else ProcessIdentity(pid, start_time)


def _start_time_from_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): pid (comm) state ...; comm may hold blanks and brackets. Field 3 is the state, field 22 the
    # start time in clock ticks since boot.
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
    """Where a detached cluster lives when no folder is named (XDG Base Directory Specification, state)."""
    xdg = Path(environ.get("XDG_STATE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "state") / "pykafka" / "broker"
