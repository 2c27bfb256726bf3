"""The processes of a test's application, mostly all processes of its session (`setsid`), read from /proc."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until

STOP_DEADLINE_S = 10

# `python -m pyspark.daemon`, and the workers that it forks.
WORKERS_COMMAND = "pyspark.daemon"
# The process that plans the micro-batches of a source. Spark starts it without the daemon.
PLANNERS_MODULE = "python_streaming_source_runner"


@dataclass(frozen=True, slots=True)
class Process:
    process_id: int
    parent_id: int
    command: str


def of_session(session_id: int) -> list[Process]:
    """Return the live processes of the session, without zombies."""
    return living(session_id)


def living(session_id: int | None = None) -> list[Process]:
    """Return all live processes of the machine, or of a session, without zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if session_id is not None and os.getsid(int(folder.name)) != session_id:
                continue
            # `pid (name) state ppid ...`, and a name may have blanks and brackets.
            state, parent_id = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (ProcessLookupError, FileNotFoundError):  # it has ended
            continue
        if state != "Z":
            found.append(Process(int(folder.name), int(parent_id), command))
    return found


def below(process_id: int, processes: Iterable[Process]) -> list[Process]:
    """Return the descendants of a process among them."""
    every = list(processes)
    found, parents = [], {process_id}
    while children := [each for each in every if each.parent_id in parents]:
        found += children
        parents = {each.process_id for each in children}
    return found


def workers(processes: Iterable[Process]) -> list[Process]:
    """Return Spark's Python workers among them, which run tasks, plan, or commit."""
    daemons = {each.process_id: each for each in processes if WORKERS_COMMAND in each.command}
    return [each for each in daemons.values() if each.parent_id in daemons]


def planners(processes: Iterable[Process]) -> list[Process]:
    """Return those that plan what streams read."""
    return [each for each in processes if PLANNERS_MODULE in each.command]


def drivers(processes: Iterable[Process]) -> list[Process]:
    """Return the user's process and its JVM: all processes except the planners, the workers and their daemons."""
    return [each for each in processes if WORKERS_COMMAND not in each.command and PLANNERS_MODULE not in each.command]


def send_signal(processes: Iterable[Process], number: int) -> None:
    for each in processes:
        try:
            os.kill(each.process_id, number)
        except ProcessLookupError:
            continue


def stop(process_id: int) -> None:
    """Send SIGSTOP, and wait until no thread runs: on a busy machine a broker would still answer for milliseconds."""
    os.kill(process_id, signal.SIGSTOP)
    threads = Path(f"/proc/{process_id}/task")
    wait_until(lambda: thread_states(threads) <= {"T", "Z"}, STOP_DEADLINE_S, "all threads stop")


def thread_states(threads: Path) -> set[str]:
    states = set()
    for stat in threads.glob("*/stat"):
        try:
            states.add(stat.read_text().rpartition(")")[2].split()[0])
        except (ProcessLookupError, FileNotFoundError):  # the thread has ended
            continue
    return states


def resume(process_id: int) -> None:
    os.kill(process_id, signal.SIGCONT)


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    stop(process_id)
    try:
        yield
    finally:
        resume(process_id)
