"""Processes on a leash: they end when this process does, be it by kill -9.

How and why: `leash.py`, which stands between this process and every command that it starts. The command runs
in a session of its own, so that Ctrl-C in a terminal reaches this process only, which then ends the command
in order.
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

# Beyond the grace that the leash gives: SIGKILL works, but gigabytes of log segments take a moment to unmap, on a busy
# machine more than 20 s (seen).
_UNMAP_SECONDS = 60.0


class LeashedProcess:
    """A running command.

    Parameters: `command` as for subprocess.Popen; `grace_seconds` between SIGTERM and SIGKILL when it is
    ended, 0 for SIGKILL at once; `remove`, a folder deleted after it was ended (by `end` or by the death of
    this process). Raises OSError when the leash cannot be started. A command that cannot be run shows as
    `returncode` 1.
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
            # -I -S: nothing but the standard library, whatever the environment says; 20 ms instead of 60.
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
        """Of the command itself, not of its leash; -1 when it could not be run."""

    @property
    def returncode(self) -> int | None:
        """None while it runs; 128 + n after signal n."""
        return self._leash.poll()

    def communicate(self, input: bytes | None, timeout_seconds: float) -> tuple[bytes, bytes]:
        """What it wrote to stdout and stderr, to their ends; raises subprocess.TimeoutExpired."""
        return self._leash.communicate(input, timeout_seconds)

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._control.send(b"k")
        self._leash.wait(_UNMAP_SECONDS)

    def terminate(self, timeout_seconds: float) -> bool:
        """SIGTERM, and waits for its end. False if it has not ended by then, or had ended before."""
        if self.returncode is not None:
            return False
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._control.send(b"t")
        try:
            return self._leash.wait(timeout_seconds) == 128 + signal.SIGTERM
        except subprocess.TimeoutExpired:
            return False

    def let_go(self) -> None:
        """Has it ended, without waiting: SIGTERM, grace, SIGKILL."""
        with contextlib.suppress(OSError):  # shut down before
            # Not close: a child forked from this process may hold a copy of the socket.
            self._control.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Has it ended and waits for that."""
        self.let_go()
        self._leash.wait(self._grace_seconds + _UNMAP_SECONDS)
        self._control.close()


def run(
    command: Sequence[str | Path],
    *,
    timeout_seconds: float,
    input: bytes | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """As subprocess.run with captured output; raises subprocess.TimeoutExpired with the output so far."""
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
