"""Processes on a leash: they end when this process ends, even by kill -9.

`leash.py` runs between this process and every command that it starts, and explains how and why. The command has its own
session, so that Ctrl-C in a terminal reaches only this process. This process then ends the command cleanly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_LEASH = Path(__file__).with_name("leash.py")

# Added to the leash's grace time. After SIGKILL the kernel unmaps gigabytes of log segments: more than 20 s were
# measured on a busy machine.
_UNMAP_SECONDS = 60.0


class LeashedProcess:
    """A running command.

    Parameters: `command` as for subprocess.Popen. `grace_seconds` is the time between SIGTERM and SIGKILL at the end, 0
    for SIGKILL at once. `remove` is a folder that is deleted after the end (by `end` or by the death of this process).
    Raises OSError if the leash cannot be started. If the command cannot be run, `returncode` is 1.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        grace_seconds: float,
        remove: Path | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._control, leash_end = socket.socketpair()
        arguments = [leash_end.fileno(), os.getpid(), grace_seconds, remove or "", *command]
        with leash_end:
            # -I -S: only the standard library, independent of the environment. It starts in 20 ms instead of 60 ms.
            self._leash = subprocess.Popen(
                [sys.executable, "-I", "-S", _LEASH, *map(str, arguments)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=environ,
                pass_fds=[leash_end.fileno()],
                start_new_session=True,
            )
        with self._control.makefile("rb") as answer:
            self.pid = int(answer.readline() or -1)
        """The process id of the command, not of its leash. -1 if the command could not be run."""

    @property
    def returncode(self) -> int | None:
        """None while the command runs; 128 + n after signal n."""
        return self._leash.poll()

    def communicate(self, input: bytes | None, timeout_seconds: float) -> tuple[bytes, bytes]:
        """Return the complete stdout and stderr of the command. Raises subprocess.TimeoutExpired."""
        return self._leash.communicate(input, timeout_seconds)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the command."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._control.send(b"k")
        self._leash.wait(_UNMAP_SECONDS)

    def terminate(self, timeout_seconds: float) -> bool:
        """Send SIGTERM, and wait for the end of the command.

        Return False if it does not end in time, had ended before, or does not end by SIGTERM.
        """
        if self.returncode is not None:
            return False
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._control.send(b"t")
        try:
            return self._leash.wait(timeout_seconds) == 128 + signal.SIGTERM
        except subprocess.TimeoutExpired:
            return False

    def let_go(self) -> None:
        """Tell the leash to end the command (SIGTERM, grace time, SIGKILL), without waiting."""
        with contextlib.suppress(OSError):  # it was shut down before
            # Shutdown instead of close: a forked child of this process may hold a copy of the socket.
            self._control.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.let_go()
        self._leash.wait(self._grace_seconds + _UNMAP_SECONDS)
        self._control.close()


def run(
    command: Sequence[str | Path], *, timeout_seconds: float, input: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as subprocess.run does, with captured output.

    Raises subprocess.TimeoutExpired with the output so far.
    """
    process = LeashedProcess(
        command,
        grace_seconds=0,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
    )
    try:
        stdout, stderr = process.communicate(input, timeout_seconds)
    finally:
        process.end()
    assert process.returncode is not None
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
