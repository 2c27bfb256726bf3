"""kafka_sink.broker.process and leash: nothing survives its owner, whatever kills that one.

Real processes: the owner is a Python of its own, the command a Python that waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.broker.process import LeashedProcess, run
from kafka_sink.broker.state import identify
from waiting import wait_until

pytestmark = pytest.mark.programs

DEADLINE_SECONDS = 60
WAIT = "import signal; signal.pause()"
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"

# Starts a command, prints its pid and its leash's, and waits. What it does first is in {prelude}.
OWNER = """
import os, subprocess, sys, signal
from pathlib import Path
from kafka_sink.broker.process import LeashedProcess
process = LeashedProcess([sys.executable, "-c", {command!r}], grace_seconds=0.2, remove=Path(sys.argv[1]))
{prelude}
leash = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(process.pid)], text=True)
print(process.pid, int(leash), flush=True)
signal.pause()
"""
FORK = "if os.fork() == 0: signal.pause()"  # holds a copy of the socket to the leash


def test_a_timeout_ends_it() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run(["/bin/sh", "-c", "echo $$; exec sleep 600"], timeout_seconds=2)
    assert raised.value.output is not None
    assert identify(int(raised.value.output)) is None


@pytest.mark.parametrize(
    ("command", "stop", "by"),
    [
        (WAIT, LeashedProcess.kill, signal.SIGKILL),
        (WAIT, LeashedProcess.end, signal.SIGTERM),
        (IGNORE_SIGTERM, LeashedProcess.end, signal.SIGKILL),
    ],
    ids=["killed", "ended", "ended, and ignores SIGTERM"],
)
def test_its_end(command: str, stop: Callable[[LeashedProcess], None], by: signal.Signals) -> None:
    begun, its_stdout = os.pipe()
    grace_seconds = DEADLINE_SECONDS if command == WAIT else 0.3
    process = LeashedProcess([sys.executable, "-c", command], grace_seconds=grace_seconds, stdout=its_stdout)
    os.close(its_stdout)
    with open(begun, "rb") as lines:
        if command == IGNORE_SIGTERM:
            lines.readline()
    pid = process.pid
    assert identify(pid) is not None and process.returncode is None
    assert os.getsid(pid) != os.getsid(0), "a terminal's signals go to its own session"
    stop(process)
    assert identify(pid) is None
    assert process.returncode == 128 + by
    if stop is LeashedProcess.kill:
        process.kill()  # again: nothing to do
        process.end()


def test_the_folder_goes_when_it_is_ended_and_stays_when_it_is_killed(tmp_path: Path) -> None:
    for name, stop in (("killed", LeashedProcess.kill), ("ended", LeashedProcess.end)):
        (tmp_path / name).mkdir()
        stop(LeashedProcess([sys.executable, "-c", WAIT], grace_seconds=0, remove=tmp_path / name))
    assert [folder.name for folder in tmp_path.iterdir()] == ["killed"]


@pytest.mark.parametrize("prelude", ["", FORK], ids=["", "with a fork that holds the socket"])
@pytest.mark.parametrize("command", [WAIT, IGNORE_SIGTERM], ids=["", "sigterm ignored"])
def test_kill_9_of_the_owner(tmp_path: Path, command: str, prelude: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    owner, pid, leash_pid = start_owner(folder, command, prelude)
    try:
        owner.kill()
        owner.wait()
        wait_until(lambda: identify(pid) is None and identify(leash_pid) is None, DEADLINE_SECONDS, "both are gone")
        wait_until(lambda: not folder.exists(), DEADLINE_SECONDS, "the folder is gone")
    finally:
        with contextlib.suppress(ProcessLookupError):  # the fork, where there is one
            os.killpg(owner.pid, signal.SIGKILL)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_kill_9_of_the_leash(tmp_path: Path) -> None:
    owner, pid, leash_pid = start_owner(tmp_path / "data", WAIT, "")
    try:
        os.kill(leash_pid, signal.SIGKILL)
        wait_until(lambda: identify(pid) is None, DEADLINE_SECONDS, "the process is gone")
    finally:
        owner.kill()
        owner.wait()


def test_it_survives_the_thread_that_started_it() -> None:
    started: list[LeashedProcess] = []
    command = [sys.executable, "-c", WAIT]
    thread = threading.Thread(target=lambda: started.append(LeashedProcess(command, grace_seconds=0)))
    thread.start()
    thread.join()
    (process,) = started
    try:
        with pytest.raises(subprocess.TimeoutExpired):  # a signal at the thread's end would come at once
            process.communicate(None, 0.3)
    finally:
        process.end()


def start_owner(folder: Path, command: str, prelude: str) -> tuple[subprocess.Popen[bytes], int, int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(command=command, prelude=prelude), folder],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert owner.stdout is not None
    pid, leash_pid = map(int, owner.stdout.readline().split())
    owner.stdout.close()
    return owner, pid, leash_pid
