"""A command that ends in time, and with it everything that it started, whatever sessions those processes have."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import processes

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
    family = processes.below(process.pid, processes.living())
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    family += processes.below(process.pid, processes.living())
    if process.returncode is None:
        process.kill()
        process.wait()
    # By its command, too: the number of a process that has ended may be another's by now.
    commands = {(each.process_id, each.command) for each in family}
    left = [each for each in processes.living() if (each.process_id, each.command) in commands]
    processes.send_signal(left, signal.SIGKILL)
