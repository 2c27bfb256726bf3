"""Gives a name to errors of the process and its host: no more memory, threads or open files.

They come from any place, without a statement about the rows and without advice. Only sockets may become free
again soon, when other connections of the process end. So connecting is retried for PATIENCE_MS, and nothing else is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors.spark import WorkerExhausted

# Connecting is retried for this time while no connection is open.
PATIENCE_MS = 5_000
_OPEN_FILES = {
    errno.EMFILE: "open files of a process (ulimit -n)",
    errno.ENFILE: "open files of the host (fs.file-max)",
}
_MEMORY = frozenset({errno.ENOMEM, errno.ENOBUFS})
# The message of `threading` for every limit.
_NO_THREAD = "can't start new thread"
_ADVICE = {
    "memory": "Lower kafka.buffer.memory, run fewer tasks at a time (spark.executor.cores), or raise "
    "spark.executor.pyspark.memory or the container's limit.",
    "threads": "Raise the limit of processes and threads (ulimit -u, pids.max of the container), or run fewer tasks at "
    "a time (spark.executor.cores).",
    "open files": "Raise the limit of open files (ulimit -n), or look for what keeps files open: ls -l /proc/PID/fd.",
}


def is_exhaustion(code: int | None) -> bool:
    """Return True if this errno means that the process or its host has no memory or no open files left."""
    return code in _OPEN_FILES or code in _MEMORY


def exhausted(error: BaseException) -> WorkerExhausted | None:
    """Return a WorkerExhausted with advice for an error of this kind, or None for any other error."""
    match error:
        case MemoryError():
            what, reason = "memory", str(error) or "an allocation failed"
        case RuntimeError() if str(error) == _NO_THREAD:
            what, reason = "threads", "a thread could not be started"
        case OSError(errno=code) if code in _OPEN_FILES:
            what, reason = "open files", f"the limit of {_OPEN_FILES[code]} is reached"
        case OSError(errno=code) if code in _MEMORY:
            what, reason = "memory", str(error.strerror)
        case _:
            return None
    return WorkerExhausted(what=what, reason=reason, advice=_ADVICE[what])


@contextmanager
def exhaustion_named() -> Iterator[None]:
    """Raise WorkerExhausted from an error of this kind, and pass on all other errors."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        named = exhausted(error)
        if named is None:
            raise
        raise named from error
