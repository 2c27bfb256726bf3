"""Errors of the process and its host, by name: no more memory, threads or open files.

They come as MemoryError, RuntimeError and OSError from anywhere, and say neither what they mean for the rows nor what
to do. Only sockets may come free again soon, as other connections of the process end: connecting is retried for
PATIENCE_MS. Nothing else is retried.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors import WorkerExhausted

# While connections are tried again without one that stands.
PATIENCE_MS = 5_000
_OPEN_FILES = {
    errno.EMFILE: "open files of a process (ulimit -n)",
    errno.ENFILE: "open files of the host (fs.file-max)",
}
_MEMORY = frozenset({errno.ENOMEM, errno.ENOBUFS})
# Of threading, whichever limit it was.
_NO_THREAD = "can't start new thread"
_ADVICE = {
    "memory": "Lower kafka.buffer.memory, run fewer tasks at a time (spark.executor.cores), or raise "
    "spark.executor.pyspark.memory or the container's limit.",
    "threads": "Raise the limit of processes and threads (ulimit -u, pids.max of the container), or run fewer tasks at "
    "a time (spark.executor.cores).",
    "open files": "Raise the limit of open files (ulimit -n), or look for what keeps files open: ls -l /proc/PID/fd.",
}


def is_exhaustion(code: int | None) -> bool:
    """Whether this errno says that the process or its host has no more of something."""
    return code in _OPEN_FILES or code in _MEMORY


def exhausted(error: BaseException) -> WorkerExhausted | None:
    """The error with a name and an advice; None for any other."""
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
    """Raises WorkerExhausted instead of what it names."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        named = exhausted(error)
        if named is None:
            raise
        raise named from error
