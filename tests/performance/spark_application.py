"""The processes of a Spark application by their part in it, and what each part has: connections and memory.

    Python, the application
      └─ JVM of the driver ─┬─ JVM of an executor ── Python daemon ── a Python worker for each running task
                            └─ Python daemons and workers that plan and commit

With a `local` master the driver's JVM runs the tasks, so it is the only executor. With `local-cluster` every executor
is a JVM of its own, as on a cluster. A process that a worker has started belongs to the executor, and goes on when that
worker ends. It is known by the daemon's process group, which `pyspark.daemon` makes and its children inherit.
"""

import contextlib
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from open_connections import connections_of
from process_tree import MB, memory_of, running, tree_of

LOCAL_EXECUTOR = "driver"


@dataclass(frozen=True, slots=True)
class Executor:
    """Process ids. `daemon`: what the Python workers are forked from; None before the first task. `helpers`: what the
    workers have started."""

    jvm: int
    daemon: int | None = None
    workers: tuple[int, ...] = ()
    helpers: tuple[int, ...] = ()

    @property
    def python(self) -> tuple[int, ...]:
        return () if self.daemon is None else (self.daemon, *self.workers, *self.helpers)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running application. `workers`: Python's, of all executors. Sockets: the mean of the nodes, of
    executors, and of the Python processes beside the driver's JVM that run no task. Memory: MB of an executor, the
    median of all. `python_mb`: private memory of its Python processes, and the most that one of them shares with
    others, once, as they share much the same. `worker_mb`: the median of the workers' private memory."""

    workers: int
    sockets_a_broker: float
    planning_sockets_a_broker: float
    python_mb: float
    worker_mb: float
    jvm_mb: float


def executors_of(
    tree: Sequence[int], parents: Mapping[int, int], commands: Mapping[int, Sequence[str]], groups: Mapping[int, int]
) -> dict[str, Executor]:
    """By executor id. `tree`: of the application, parents before children. `commands`: the arguments of all processes
    of this machine that run; an ended one has none. `groups`: process -> its process group."""
    jvms = {pid: _executor_id(commands[pid]) for pid in tree if commands.get(pid, ("",))[0].endswith("java")}
    if len(jvms) > 1:  # then the driver's JVM runs no task
        jvms = {pid: name for pid, name in jvms.items() if name != LOCAL_EXECUTOR}
    of_tasks = [pid for pid in tree if commands.get(pid, ("",))[-1] == "pyspark.worker"]
    daemons = {parents[pid]: pid for pid in of_tasks if parents[pid] in jvms}
    executors = {}
    for pid, name in jvms.items():
        daemon = daemons.get(pid)
        workers = tuple(each for each in of_tasks if parents[each] == daemon)
        in_group = (each for each, group in groups.items() if group == daemon and each in commands)
        helpers = tuple(each for each in in_group if each not in {daemon, *workers})
        executors[name] = Executor(pid, daemon, workers, helpers)
    return executors


def _executor_id(command: Sequence[str]) -> str:
    if any(argument.endswith("CoarseGrainedExecutorBackend") for argument in command):
        return command[command.index("--executor-id") + 1]
    return LOCAL_EXECUTOR


def sample(root_pid: int, listeners: Mapping[int, int]) -> Sample:
    """Looks at the application that is the process `root_pid` and all below it. `listeners`: port -> node."""
    everything = running()
    tree = [each.pid for each in tree_of(root_pid, everything)]
    commands: dict[int, list[str]] = {}
    groups: dict[int, int] = {}
    for each in everything:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            groups[each.pid] = os.getpgid(each.pid)
            if text := Path("/proc", str(each.pid), "cmdline").read_text(errors="replace"):
                commands[each.pid] = text.rstrip("\0").split("\0")
    executors = executors_of(tree, {each.pid: each.parent_pid for each in everything}, commands, groups)
    python = {pid for executor in executors.values() for pid in executor.python}
    planning = {pid for pid in tree[1:] if pid in commands and pid not in python}
    planning -= {pid for pid in planning if commands[pid][0].endswith("java")}
    sockets: Counter[bool] = Counter()
    of_executors = python | {executor.jvm for executor in executors.values()}
    for (pid, _), number in connections_of(of_executors | planning, listeners).items():
        sockets[pid in planning] += number
    sizes = {pid: found for pid in of_executors if (found := memory_of(pid, "smaps_rollup"))}
    private = {pid: (of["Private_Clean"] + of["Private_Dirty"]) / MB for pid, of in sizes.items()}

    def python_mb(executor: Executor) -> float:
        there = [pid for pid in executor.python if pid in sizes]
        shared = max((sizes[pid]["Rss"] / MB - private[pid] for pid in there), default=0)
        return shared + sum(private[pid] for pid in there)

    def worker_mb(executor: Executor) -> float:
        return statistics.median([private[pid] for pid in executor.workers if pid in private] or [0])

    nodes, every = len(set(listeners.values())), [*executors.values()]
    return Sample(
        workers=sum(len(executor.workers) for executor in every), sockets_a_broker=sockets[False] / nodes,
        planning_sockets_a_broker=sockets[True] / nodes, python_mb=statistics.median(map(python_mb, every)),
        worker_mb=statistics.median(map(worker_mb, every)),
        jvm_mb=statistics.median(sizes[executor.jvm]["Rss"] / MB for executor in every),
    )  # fmt: skip
