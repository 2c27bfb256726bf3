"""Runs a command, and ends it when the process that requested it (the owner) has ended, for any reason.

This is a separate script. `process.py` starts it, and nothing imports it:

    leash.py CONTROL_FD OWNER_PID GRACE_SECONDS REMOVE COMMAND...

CONTROL_FD is a socket shared with the owner. First the leash writes the command's pid to it. Then a byte `k` kills the
command, and a byte `t` sends SIGTERM. The end of the stream ends the command: SIGTERM, GRACE_SECONDS of waiting,
SIGKILL. The kernel closes the socket when the owner dies, so kill -9 of the owner ends the command too. REMOVE, unless
empty, is a folder that the leash deletes after the end of the stream, because a killed owner cannot delete it.

Why a process between owner and command, although Linux has PR_SET_PDEATHSIG? That signal comes when the THREAD that
forked ends: a broker started by a pool's thread would die with that thread, during a test. And it cannot be set safely
in a child of a process with threads, because Python would have to run between fork and exec. The leash has one thread,
which lives as long as its process. So here the signal is safe, and it covers kill -9 of the leash. Without prctl, as on
macOS, kill -9 of the leash leaves the command running.

Why check the parent's pid too? A child that the owner forked without exec (multiprocessing) has a copy of the owner's
end of the socket. It keeps the stream open after the owner's death.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT_CHECK_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    control_fd, owner_pid, grace_seconds, remove, *command = arguments
    control = socket.socket(fileno=int(control_fd))
    child_ended = wake_up_on_child()
    child = subprocess.Popen(command, preexec_fn=die_with_this_process(), restore_signals=True)
    try:
        control.sendall(b"%d\n" % child.pid)
        owner_is_there = hold(child, control, int(owner_pid), child_ended)
    except ConnectionError:  # the owner went away before it knew the pid, or with a byte unread
        owner_is_there = False
    if not owner_is_there:
        end(child, float(grace_seconds))
        if remove:
            shutil.rmtree(remove, ignore_errors=True)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def hold(child: subprocess.Popen[bytes], control: socket.socket, owner_pid: int, child_ended: int) -> bool:
    """Wait for the end of the command (return True) or of the owner (return False)."""
    while child.poll() is None:
        readable, _, _ = select.select([control.fileno(), child_ended], [], [], PARENT_CHECK_SECONDS)
        if control.fileno() in readable:
            match control.recv(1):
                case b"k":
                    child.kill()
                    child.wait()
                case b"t":
                    child.terminate()
                case _:
                    return False
        elif child_ended in readable:
            os.read(child_ended, 64)
        elif os.getppid() != owner_pid:
            return False
    return True


def end(child: subprocess.Popen[bytes], grace_seconds: float) -> None:
    if grace_seconds:
        child.terminate()
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
    child.kill()
    child.wait()


def wake_up_on_child() -> int:
    """Return a descriptor that becomes readable when a child ends, so that `select` returns at once."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def die_with_this_process() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    leash_pid = os.getpid()

    def ask_for_the_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != leash_pid:  # it died before the request: no signal would come
            os._exit(1)

    return ask_for_the_signal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
