"""The processes of a Spark application by their part in it, and what each part has: connections and memory.

    Python, the application
      └─ JVM of the driver ─┬─ JVM of an executor ── Python daemon ── a Python worker for each running task
                            └─ Python daemons and workers that plan and commit

With a `local` master the driver's JVM runs the tasks, so it is the only executor. With `local-cluster` every executor
is a JVM of its own, as on a cluster. A process that a worker has started belongs to the executor, and goes on when that
worker ends. It is known by the daemon's process group, which `pyspark.daemon` makes and its children inherit.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from open_connections import connections_of
from process_tree import ProcessStat, mapped_memory_of, running, tree_of

LOCAL_EXECUTOR = "driver"
PLANNING = "planning"
_EXECUTOR_BACKEND = "CoarseGrainedExecutorBackend"
_WORKER = "pyspark.worker"
_PROC = Path("/proc")


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
class Application:
    """`executors`: by executor id. `planning`: the Python processes beside the driver's JVM that run no task."""

    executors: Mapping[str, Executor]
    planning: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PythonMemory:
    """Bytes. `private`: of all processes together, what no other process has; `shared`: the most that one of them
    shares with others, once, as they share much the same; `of_a_worker`: the median of the workers' private bytes."""

    private: int
    shared: int
    of_a_worker: int

    @property
    def total(self) -> int:
        return self.private + self.shared


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running application. By executor id: Python workers, memory; `connections`: executor id, or
    PLANNING, -> node -> established connections at the node's listener."""

    workers: Mapping[str, int]
    connections: Mapping[str, Mapping[int, int]]
    python: Mapping[str, PythonMemory]
    jvm_bytes: Mapping[str, int]
    nodes: Sequence[int]

    @property
    def sockets_a_broker(self) -> float:
        """Of executors, the mean of the nodes."""
        found = sum(sum(of.values()) for name, of in self.connections.items() if name != PLANNING)
        return found / len(self.nodes)

    @property
    def planning_sockets_a_broker(self) -> float:
        return sum(self.connections.get(PLANNING, {}).values()) / len(self.nodes)


def application_of(
    tree: Sequence[ProcessStat], commands: Mapping[int, Sequence[str]], groups: Mapping[int, int]
) -> Application:
    """`tree`: of the application, parents before children. `commands`: the arguments of all processes of this machine
    that run; an ended one has none. `groups`: process -> its process group."""
    running_here = {each.pid: commands[each.pid] for each in tree if each.pid in commands}
    jvms = {pid: _executor_id(command) for pid, command in running_here.items() if command[0].endswith("java")}
    if len(jvms) > 1:  # then the driver's JVM runs no task
        jvms = {pid: name for pid, name in jvms.items() if name != LOCAL_EXECUTOR}
    of_tasks = [each for each in tree if running_here.get(each.pid, ("",))[-1] == _WORKER]
    daemons = {each.parent_pid: each.pid for each in of_tasks if each.parent_pid in jvms}
    executors = {}
    for pid, name in jvms.items():
        daemon = daemons.get(pid)
        workers = tuple(each.pid for each in of_tasks if each.parent_pid == daemon)
        in_group = (each for each, group in groups.items() if group == daemon and each in commands)
        helpers = tuple(each for each in in_group if each not in {daemon, *workers})
        executors[name] = Executor(pid, daemon, workers, helpers)
    known = {tree[0].pid, *(pid for each in executors.values() for pid in each.python)}
    planning = [pid for pid, command in running_here.items() if pid not in known and not command[0].endswith("java")]
    return Application(executors, tuple(planning))


def _executor_id(command: Sequence[str]) -> str:
    if any(argument.endswith(_EXECUTOR_BACKEND) for argument in command):
        return command[command.index("--executor-id") + 1]
    return LOCAL_EXECUTOR


def python_memory(executor: Executor, sizes: Mapping[int, Mapping[str, int]]) -> PythonMemory:
    """`sizes`: process -> the sizes of its smaps_rollup; ended ones are missing."""
    own = {pid: _private(sizes[pid]) for pid in executor.python if pid in sizes}
    return PythonMemory(
        private=sum(own.values()),
        shared=max((sizes[pid]["Rss"] - private for pid, private in own.items()), default=0),
        of_a_worker=int(statistics.median([own[pid] for pid in executor.workers if pid in own] or [0])),
    )


def _private(sizes: Mapping[str, int]) -> int:
    return sizes["Private_Clean"] + sizes["Private_Dirty"]


def sample(root_pid: int, listeners: Mapping[int, int]) -> Sample:
    """Looks at the application that is the process `root_pid` and all below it. `listeners`: port -> node."""
    everything = running()
    tree = tree_of(root_pid, everything)
    application = application_of(tree, dict(_commands(everything)), dict(_groups(everything)))
    name_of = dict.fromkeys(application.planning, PLANNING)
    for name, executor in application.executors.items():
        name_of |= dict.fromkeys((executor.jvm, *executor.python), name)
    found: dict[str, dict[int, int]] = {}
    for (pid, port), number in connections_of(name_of, listeners).items():
        node, of_name = listeners[port], found.setdefault(name_of[pid], {})
        of_name[node] = of_name.get(node, 0) + number
    sizes = dict(_sizes(pid for pid, name in name_of.items() if name != PLANNING))
    return Sample(
        workers={name: len(executor.workers) for name, executor in application.executors.items()},
        connections=found,
        python={name: python_memory(executor, sizes) for name, executor in application.executors.items()},
        jvm_bytes={name: sizes[executor.jvm]["Rss"] for name, executor in application.executors.items()},
        nodes=sorted(set(listeners.values())),
    )


def _commands(processes: Iterable[ProcessStat]) -> Iterable[tuple[int, list[str]]]:
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = (_PROC / str(process.pid) / "cmdline").read_text(errors="replace")
            if text:
                yield process.pid, text.rstrip("\0").split("\0")


def _groups(processes: Iterable[ProcessStat]) -> Iterable[tuple[int, int]]:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            yield process.pid, os.getpgid(process.pid)


def _sizes(pids: Iterable[int]) -> Iterable[tuple[int, Mapping[str, int]]]:
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield pid, mapped_memory_of(pid)
