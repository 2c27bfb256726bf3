"""Runs a command and ends it when the process that asked for it is gone, however that one died.

A script of its own, started by `process.py` and never imported:

    leash.py CONTROL_FD OWNER_PID GRACE_SECONDS REMOVE COMMAND...

CONTROL_FD is a socket shared with the owner. First the leash writes the command's pid on it. Then a byte `k`
kills the command, a byte `t` sends it SIGTERM, and the end of the stream ends it: SIGTERM, GRACE_SECONDS to
comply, SIGKILL. The owner's kernel closes the socket whatever kills the owner, so kill -9 of the owner ends the
command too. REMOVE, unless empty, is a folder that is deleted once the command was ended by the end of the
stream: a killed owner cannot do it any more.

Why a process between the two, when Linux has PR_SET_PDEATHSIG? The signal is tied to the THREAD that forked:
a broker started by a pool's thread would die with that thread, in mid-test. And it cannot be set safely in a
child of a process with threads, as Python would have to run between fork and exec. This process has one
thread, which lives as long as it does: so here the signal is both safe and right, and it closes the last gap,
kill -9 of the leash. (Where there is no prctl, as on macOS, that gap stays.)

Why look at the parent's pid as well, when the stream ends anyway? A child which the owner forked without exec
(multiprocessing) holds a copy of the owner's end and keeps the stream open beyond the owner's death.
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
    """Waits for the command's end (True) or the owner's (False)."""
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
    """A descriptor that becomes readable when a child ends, so that `select` sees it at once."""
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
