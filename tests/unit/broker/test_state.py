"""kafka_sink.broker.state: the files in a cluster's folder, and whose pid that is."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker import state
from kafka_sink.broker.__main__ import main
from kafka_sink.broker.state import ProcessIdentity, RunningCluster

RUNNING = RunningCluster(ProcessIdentity(12, "345"), "4.3.1", 1, "127.0.0.1:21001")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"owner": 1}', RUNNING.to_json().replace("12", '"12"'), RUNNING.to_json()[:-20]]
)
def test_a_broken_file_is_no_cluster(text: str, tmp_path: Path) -> None:
    assert state.read_running(tmp_path) is state.read_running(tmp_path / "nowhere") is None
    with pytest.raises(ValueError):
        RunningCluster.from_json(text)
    (tmp_path / state.RUNNING_FILE).write_text(text)
    assert state.read_running(tmp_path) is state.read_running(tmp_path / state.RUNNING_FILE) is None


@pytest.mark.parametrize("pid", [0, 1, -1, 2**70, None], ids=lambda pid: "our own" if pid is None else str(pid))
def test_no_other_process_and_no_group_of_processes_is_taken_for_ours(pid: int | None, tmp_path: Path) -> None:
    owner = ProcessIdentity(os.getpid() if pid is None else pid, "1")
    (tmp_path / state.RUNNING_FILE).write_text(replace(RUNNING, owner=owner).to_json())
    lock = state.open_private(tmp_path / state.LOCK_FILE, os.O_RDWR)
    try:
        assert state.read_running(tmp_path) is None
    finally:
        os.close(lock)


def test_a_cluster_of_this_process_runs(tmp_path: Path) -> None:
    me = state.identify(os.getpid())
    assert me is not None
    running = replace(RUNNING, owner=me)
    state.write_atomically(tmp_path / state.RUNNING_FILE, running.to_json())
    assert [file.name for file in tmp_path.iterdir()] == [state.RUNNING_FILE]
    assert state.read_running(tmp_path) is None, "without the lock it could be any process"
    lock = state.open_private(tmp_path / state.LOCK_FILE, os.O_RDWR)
    try:
        assert state.read_running(tmp_path) == running
    finally:
        os.close(lock)
    assert state.read_running(tmp_path) is None


@pytest.mark.parametrize("is_locked_by_another", [False, True])
def test_a_forged_file_makes_nobody_stop_a_process_that_holds_no_lock(
    is_locked_by_another: bool, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        found = state.identify(victim.pid)
        assert found is not None
        (tmp_path / state.RUNNING_FILE).write_text(replace(RUNNING, owner=found).to_json())
        lock = state.open_private(tmp_path / state.LOCK_FILE, os.O_RDWR)
        if is_locked_by_another:
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            assert state.read_running(tmp_path) is None
            assert main(["stop", "--dir", str(tmp_path)]) == 0
            assert victim.poll() is None
        finally:
            os.close(lock)
            victim.kill()


def test_no_link_and_no_pipe_is_read_or_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    for name in (state.RUNNING_FILE, "running.tmp", state.LOCK_FILE):
        (tmp_path / name).symlink_to(elsewhere)
    assert state.read_running(tmp_path) is None
    state.write_atomically(tmp_path / state.RUNNING_FILE, RUNNING.to_json())
    with pytest.raises(OSError, match="symbolic links"):
        state.open_private(tmp_path / state.LOCK_FILE, os.O_RDWR)
    assert elsewhere.read_text() == "kept"
    (tmp_path / state.RUNNING_FILE).unlink()
    os.mkfifo(tmp_path / state.RUNNING_FILE)
    assert state.read_running(tmp_path) is None


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state.write_atomically(tmp_path / state.RUNNING_FILE, "x")
        os.close(state.open_private(tmp_path / state.LOCK_FILE, os.O_RDWR))
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


WAYS = [
    pytest.param(
        True, marks=pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here"), id="proc"
    ),
    pytest.param(False, marks=pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here"), id="ps"),
]


@pytest.mark.parametrize("by_proc", WAYS)
def test_an_ended_process_has_no_start_time_even_as_a_zombie(by_proc: bool) -> None:
    def identify(pid: int) -> state.ProcessIdentity | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os.path, "exists", lambda path: by_proc)
            return state.identify(pid)

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert identify(child.pid) == identify(child.pid) is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped: a zombie
        assert identify(child.pid) is None
    assert identify(child.pid) is None
