"""The processes of a test's application, mostly all processes of its session (`setsid`), read from /proc."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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


# For what a test's fixtures do at their end: they stop brokers and Spark.
GRACE_S = 60.0


def run(command: Sequence[str | Path], limit_s: float, env: Mapping[str, str] | None = None) -> int | None:
    """Return the exit status, or None for a command that was ended because it did not end within `limit_s`."""
    with started(command, env) as process, contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(limit_s)
    return None


@contextmanager
def started(
    command: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
    output: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which ends with the block. It prints into `output`, or where this process does."""
    process = subprocess.Popen(
        command, env=env, stdout=output, stderr=output, start_new_session=True, preexec_fn=_heed_interrupts
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process, grace_s)


def _heed_interrupts() -> None:
    """A shell starts a background job with SIGINT ignored, and its children would ignore it, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt the command, as Ctrl-C does; after `grace_s` kill it, and then whatever it has left behind."""
    family = below(process.pid, living())
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    family += below(process.pid, living())
    if process.returncode is None:
        process.kill()
        process.wait()
    # By its command, too: the number of a process that has ended may be another's by now.
    commands = {(each.process_id, each.command) for each in family}
    left = [each for each in living() if (each.process_id, each.command) in commands]
    send_signal(left, signal.SIGKILL)
