"""kafka_sink.broker.state: the files in a cluster's folder, and whose pid that is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.broker import state
from kafka_sink.broker.state import ClusterIdentity, ProcessIdentity, RunningCluster

RUNNING = RunningCluster(ProcessIdentity(12, "345"), "4.3.1", 1, "127.0.0.1:21001")


@given(st.builds(ClusterIdentity, st.text(), st.text(), st.integers()))
def test_identity_round_trip(identity: ClusterIdentity) -> None:
    assert ClusterIdentity.from_json(identity.to_json()) == identity


@given(
    st.builds(RunningCluster, st.builds(ProcessIdentity, st.integers(), st.text()), st.text(), st.integers(), st.text())
)
def test_running_round_trip(running: RunningCluster) -> None:
    assert RunningCluster.from_json(running.to_json()) == running


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"owner": 1}', RUNNING.to_json().replace("12", '"12"'), RUNNING.to_json()[:-20]],
)
def test_a_broken_file_is_no_cluster(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        RunningCluster.from_json(text)
    (tmp_path / state.RUNNING_FILE).write_text(text)
    assert state.read_running(tmp_path) is None


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    assert state.read_running(tmp_path) is None
    assert state.read_running(tmp_path / "nowhere") is None
    (tmp_path / "file").touch()
    assert state.read_running(tmp_path / "file") is None


def test_a_cluster_of_this_process_runs(tmp_path: Path) -> None:
    me = state.identify(os.getpid())
    assert me is not None
    running = replace(RUNNING, owner=me)
    state.write_atomically(tmp_path / state.RUNNING_FILE, running.to_json())
    assert state.read_running(tmp_path) == running
    assert [file.name for file in tmp_path.iterdir()] == [state.RUNNING_FILE]


def test_a_pid_that_went_to_another_process_is_not_taken_for_ours(tmp_path: Path) -> None:
    me = state.identify(os.getpid())
    assert me is not None
    stale = replace(RUNNING, owner=replace(me, start_time=me.start_time + "1"))
    (tmp_path / state.RUNNING_FILE).write_text(stale.to_json())
    assert state.read_running(tmp_path) is None


WAYS = [
    pytest.param(
        state._start_time_from_proc,
        marks=pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here"),
    ),
    pytest.param(state._start_time_from_ps, marks=pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")),
]


@pytest.mark.parametrize("start_time", WAYS)
def test_an_ended_process_has_no_start_time_even_as_a_zombie(start_time: object) -> None:
    assert callable(start_time)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert start_time(child.pid) == start_time(child.pid) is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped: a zombie
        assert start_time(child.pid) is None
    assert start_time(child.pid) is None


def test_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert state.default_directory({}) == Path("/home/someone/.local/state/pykafka/broker")
    assert state.default_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/pykafka/broker")
    assert state.default_directory({"XDG_STATE_HOME": "relative"}) == state.default_directory({})
