"""A campaign that does not end in time is ended, with all processes that it started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import bounded
import processes
from waiting import wait_until

# Starts a process in a session of its own, as tests start Spark and brokers, and does not heed an interrupt.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(f"{child.pid}\\n")
time.sleep(300)
"""
TIDY = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).write_text("began\\n")
    time.sleep(300)
finally:
    pathlib.Path(sys.argv[1]).write_text("tidied up\\n")
"""


def begin(program: str, says_in: Path, grace_s: float = bounded.GRACE_S) -> str:
    """Start and end a program, and return the first line that it said in its file."""
    with bounded.started([sys.executable, "-c", program, says_in], grace_s=grace_s):
        wait_until(lambda: says_in.exists() and says_in.read_text().endswith("\n"), 60, "the program begins")
        return says_in.read_text()


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_ends_in_time_says_how(status: int) -> None:
    assert bounded.run([sys.executable, "-c", f"raise SystemExit({status})"], 60) == status


def test_a_command_that_takes_too_long_is_ended() -> None:
    assert bounded.run(["sleep", "300"], 0.1) is None


def test_a_command_that_is_ended_may_tidy_up(tmp_path: Path) -> None:
    assert begin(TIDY, tmp_path / "said") == "began\n"
    assert (tmp_path / "said").read_text() == "tidied up\n"


def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    child = int(begin(STUBBORN, tmp_path / "child", grace_s=0.1))
    wait_until(lambda: child not in {each.process_id for each in processes.living()}, 10, "the child ends")
