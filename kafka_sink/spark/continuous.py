"""Whether the stream that is being planned has a continuous trigger, under which Spark hands a Python sink no rows.

Spark then plans the write and commits its epochs as usual, but its tasks give the rows to a method that makes an error
and forgets to throw it, and an error of `commit` goes to the log while the query runs on. Planning is the last time
that an error of ours ends the query, and nothing that Spark says then (options, environment, the calls) differs from a
micro-batch. Two things that it does differ:

* The offsets of a micro-batch are in its checkpoint before its write is planned, and their commit is not. A continuous
  query is planned before it has any offsets that are not committed.
* A continuous query has an "epoch update thread" in the driver's JVM, which is an ancestor of this process.

Both together are taken for proof, one alone is not: the path may be that of an old checkpoint while the file system in
use is another, and the thread may be another query's. Where one cannot be seen (a checkpoint that the option does not
name or that is in no folder of this machine, a system without /proc) the answer is no; `commit` refuses the first epoch
in any case.

Source: Spark's MicroBatchExecution, ContinuousExecution, EpochCoordinator, ContinuousWriteRDD,
PythonBatchWriterFactory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_sink.commit.stream_name import local_folder

PROC = Path("/proc")
# "epoch update thread for <query>", of which Linux keeps 15 bytes.
EPOCH_THREAD = "epoch update th"


def is_continuous(checkpoint_location: str | None, *, pid: int | None = None, proc: Path = PROC) -> bool:
    """`checkpoint_location`: the option, as the user wrote it. `pid`: a process started by the driver's JVM, by default
    this one."""
    folder = None if checkpoint_location is None else local_folder(checkpoint_location)
    if folder is None:
        return False
    try:
        return not _awaits_commit(folder) and EPOCH_THREAD in _threads_of_jvm(pid or os.getpid(), proc)
    except OSError:
        return False


def _awaits_commit(checkpoint: Path) -> bool:
    """Whether there are offsets without their commit: a micro-batch is under way, or was when its driver ended."""
    return _newest(checkpoint / "offsets") > _newest(checkpoint / "commits")


def _newest(log: Path) -> int:
    """Of Spark's HDFSMetadataLog, a file a batch or epoch, named by its number; -1 without any."""
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdecimal()), default=-1)


def _threads_of_jvm(pid: int, proc: Path) -> frozenset[str]:
    """The names of the threads of the nearest ancestor that is a JVM; none without one."""
    for ancestor in _ancestors(pid, proc):
        if (proc / ancestor / "comm").read_text().strip() == "java":
            return frozenset(comm.read_text().strip() for comm in (proc / ancestor / "task").glob("*/comm"))
    return frozenset()


def _ancestors(pid: int, proc: Path) -> Iterator[str]:
    parent = str(pid)
    while parent != "1":
        # "pid (name) state ppid ...", and a name may have spaces and parentheses.
        parent = (proc / parent / "stat").read_text().rpartition(")")[2].split()[1]
        if parent == "0":
            return
        yield parent
