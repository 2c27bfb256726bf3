"""Detects a continuous trigger when a stream is planned. With this trigger Spark passes no rows to a Python sink.

With a continuous trigger Spark plans the write and commits its epochs as usual. But its tasks pass the rows to a method
that creates an error and never throws it. An error in `commit` only goes to the log, and the query continues. So only
an error in planning can end the query. Options, environment and calls are the same as for a micro-batch at that time.
Two facts differ:

* A micro-batch has offsets in its checkpoint before its write is planned, and no commit for them. A continuous query is
  planned while all of its offsets are committed.
* A continuous query has an "epoch update thread" in the driver's JVM, which is an ancestor of this process.

Only both facts together are proof. The path may belong to an old checkpoint on another file system, and the thread may
belong to another query. If a fact cannot be read, the answer is False: the option names no checkpoint, the checkpoint
is not on this host, or there is no /proc. Then `commit` refuses the first epoch.

Source: Spark's MicroBatchExecution, ContinuousExecution, EpochCoordinator, ContinuousWriteRDD,
PythonBatchWriterFactory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_sink.commit.stream_name import local_folder

PROC = Path("/proc")
# Linux keeps 15 bytes of "epoch update thread for <query>".
EPOCH_THREAD = "epoch update th"


def is_continuous(checkpoint_location: str | None, *, pid: int | None = None, proc: Path = PROC) -> bool:
    """Return True if the stream has a continuous trigger.

    `checkpoint_location`: the option as the user wrote it. `pid`: a process that the driver's JVM started, by default
    this process.
    """
    folder = None if checkpoint_location is None else local_folder(checkpoint_location)
    if folder is None:
        return False
    try:
        return not _awaits_commit(folder) and EPOCH_THREAD in _threads_of_jvm(pid or os.getpid(), proc)
    except OSError:
        return False


def _awaits_commit(checkpoint: Path) -> bool:
    """Return True if offsets have no commit: a micro-batch is running, or its driver ended before the commit."""
    return _newest(checkpoint / "offsets") > _newest(checkpoint / "commits")


def _newest(log: Path) -> int:
    """Return the newest number in Spark's HDFSMetadataLog, which has a file for each batch or epoch; -1 if empty."""
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdecimal()), default=-1)


def _threads_of_jvm(pid: int, proc: Path) -> frozenset[str]:
    """Return the thread names of the nearest ancestor that is a JVM, or none if there is no JVM."""
    for ancestor in _ancestors(pid, proc):
        if (proc / ancestor / "comm").read_text().strip() == "java":
            return frozenset(comm.read_text().strip() for comm in (proc / ancestor / "task").glob("*/comm"))
    return frozenset()


def _ancestors(pid: int, proc: Path) -> Iterator[str]:
    parent = str(pid)
    while parent != "1":
        # Format: "pid (name) state ppid ...". The name may have spaces and parentheses.
        parent = (proc / parent / "stat").read_text().rpartition(")")[2].split()[1]
        if parent == "0":
            return
        yield parent
