"""What a process and all that it started have used: CPU time and memory, from Linux's /proc.

A process's own counts are utime and stime; cutime and cstime are those of children that ended and were waited for,
theirs included. So the sum over a tree counts everything that ever ran in it, as long as every process either waits for
its children or leaves them as zombies. Spark's JVM does the one, `counting_daemon` the other.

Source: proc(5).
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
# Of a Python worker, beyond `kafka.buffer.memory` and what its imports take.
OVER_BUFFER_MEMORY_BYTES = 100 * MB
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """`cpu_ticks`: its own and that of its ended children."""

    pid: int
    parent_pid: int
    cpu_ticks: int


def parse_stat(text: str) -> ProcessStat:
    """One line of /proc/<pid>/stat. The command in brackets may hold blanks and brackets of its own."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(")")[2].split()
    # Field 3 of proc(5), the state, is the first here; 14 to 17 are utime, stime, cutime, cstime.
    return ProcessStat(int(pid), parent_pid=int(fields[4 - 3]), cpu_ticks=sum(map(int, fields[14 - 3 : 18 - 3])))


def tree_of(root_pid: int, processes: Iterable[ProcessStat]) -> list[ProcessStat]:
    """`root_pid` and all below it."""
    children: dict[int, list[ProcessStat]] = {}
    tree: list[ProcessStat] = []
    for process in processes:
        children.setdefault(process.parent_pid, []).append(process)
        if process.pid == root_pid:
            tree.append(process)
    for process in tree:  # grows as it is walked
        tree += children.get(process.pid, [])
    return tree


def running() -> list[ProcessStat]:
    """All processes that /proc shows."""
    stats = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                stats.append(parse_stat((folder / "stat").read_text(errors="replace")))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return stats


def cpu_s(root_pid: int) -> float:
    """CPU seconds that `root_pid` and all below it have used until now."""
    return sum(process.cpu_ticks for process in tree_of(root_pid, running())) / TICKS_PER_S


def memory_of(pid: int, file: str = "status") -> Mapping[str, int]:
    """The sizes in bytes of /proc/<pid>/status, e.g. VmRSS and VmHWM, the largest that VmRSS ever was; or those of
    smaps_rollup, e.g. Rss, and Private_Clean and Private_Dirty, which no other process maps: the kernel walks all pages
    of the process for it, in milliseconds. Empty of a process that has ended."""
    try:
        lines = (line.partition(":") for line in (_PROC / str(pid) / file).read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.endswith(" kB")}


def python_workers(root_pid: int) -> list[int]:
    """The Python processes below `root_pid`; Spark's JVM is not one of them."""
    python = Path(sys.executable).resolve()
    found = []
    for process in tree_of(root_pid, running())[1:]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(os.readlink(_PROC / str(process.pid) / "exe")) == python:
                found.append(process.pid)
    return found


def reset_peak(pid: int) -> None:
    """VmHWM begins anew with what is resident now. Of a process of the same user."""
    (_PROC / str(pid) / "clear_refs").write_text("5")
