"""What a local cluster is made of: its files, whose pid that is, disks, ports, Java, settings; peers that are none."""

import contextlib
import errno
import fcntl
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.broker import errors, requests, settings, state
from kafka_sink.broker.__main__ import main
from kafka_sink.broker.resolve import find_java, parse_java_major
from kafka_sink.broker.settings import Node, render_properties, server_settings
from kafka_sink.broker.state import ProcessIdentity, RunningCluster
from scripted_peers import Behaviour, drips, peer, says_nothing

RUNNING = RunningCluster(ProcessIdentity(12, "345"), "4.3.1", 1, "127.0.0.1:21001")
WAYS = [
    pytest.param(
        True, marks=pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here"), id="proc"
    ),
    pytest.param(False, marks=pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here"), id="ps"),
]
ONE = [Node(1, 21001, 21002)]
THREE = [Node(1, 21001, 21002), Node(2, 21003, 21004), Node(3, 21005, 21006)]
# CreateTopics v3: correlation id, throttle time, one topic: its name, and behind it error and message.
CREATED = b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\x01t"


@pytest.mark.parametrize("text", [
    "", "{", "[]", "{}", '{"owner": 1}', RUNNING.to_json().replace("12", '"12"'), RUNNING.to_json()[:-20],
])  # fmt: skip
def test_a_broken_file_is_no_cluster(text: str, tmp_path: Path) -> None:
    assert state.read_running(tmp_path) is state.read_running(tmp_path / "nowhere") is None
    with pytest.raises(ValueError):
        RunningCluster.from_json(text)
    (tmp_path / state.RUNNING_FILE).write_text(text)
    assert state.read_running(tmp_path) is state.read_running(tmp_path / state.RUNNING_FILE) is None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    lock = state.open_private(folder / state.LOCK_FILE, os.O_RDWR)
    try:
        yield lock
    finally:
        os.close(lock)


@pytest.mark.parametrize("pid", [0, 1, -1, 2**70, None], ids=lambda pid: "our own" if pid is None else str(pid))
def test_no_other_process_and_no_group_of_processes_is_taken_for_ours(pid: int | None, tmp_path: Path) -> None:
    owner = ProcessIdentity(os.getpid() if pid is None else pid, "1")
    (tmp_path / state.RUNNING_FILE).write_text(replace(RUNNING, owner=owner).to_json())
    with locked(tmp_path):
        assert state.read_running(tmp_path) is None


def test_a_cluster_of_this_process_runs(tmp_path: Path) -> None:
    me = state.identify(os.getpid())
    assert me is not None
    running = replace(RUNNING, owner=me)
    state.write_atomically(tmp_path / state.RUNNING_FILE, running.to_json())
    assert [file.name for file in tmp_path.iterdir()] == [state.RUNNING_FILE]
    assert state.read_running(tmp_path) is None, "without the lock it could be any process"
    with locked(tmp_path):
        assert state.read_running(tmp_path) == running
    assert state.read_running(tmp_path) is None


@pytest.mark.parametrize("is_locked_by_another", [False, True])
def test_a_forged_file_makes_nobody_stop_a_process_that_holds_no_lock(
    is_locked_by_another: bool, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim, locked(tmp_path) as lock:
        found = state.identify(victim.pid)
        assert found is not None
        (tmp_path / state.RUNNING_FILE).write_text(replace(RUNNING, owner=found).to_json())
        if is_locked_by_another:
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            assert state.read_running(tmp_path) is None
            assert main(["stop", "--dir", str(tmp_path)]) == 0
            assert victim.poll() is None
        finally:
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


def test_an_error_of_the_system_in_a_folder_and_what_java_says_of_a_full_disk() -> None:
    for number, error, words in (
        (errno.ENOSPC, errors.DiskFull, "no space left .* in /some/where"),
        (errno.EDQUOT, errors.DiskFull, "no space left .* in /some/where"),
        (errno.ENOTDIR, errors.DirectoryUnusable, "cannot be used by the local broker: .*irectory"),
        (errno.EMFILE, OSError, "Too many open files"),  # no matter of the folder
    ):
        with pytest.raises(error, match=words) as raised, errors.writing_to(Path("/some/where")):
            raise OSError(number, os.strerror(number))
        if isinstance(raised.value, errors.DiskFull):
            assert raised.value.directory == "/some/where" and isinstance(raised.value.__cause__, OSError)
    assert errors.tells_of_full_disk("ERROR Error while writing\njava.io.IOException: No space left on device")
    assert errors.tells_of_full_disk(
        "java.lang.InternalError: a fault occurred in a recent unsafe memory access operation in compiled Java code"
    )
    assert not errors.tells_of_full_disk("java.io.IOException: Permission denied")


def test_ports_are_different_and_a_taken_one_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(settings.free_ports(6, random.Random(1)))) == 6
    first, second = settings.free_ports(2, random.Random(7))
    with socket.create_server((settings.HOST, first)):
        assert not settings.is_free(first)
        assert settings.free_ports(1, random.Random(7)) == [second]
    monkeypatch.setattr(settings, "is_free", lambda port: False)
    with pytest.raises(errors.LocalKafkaError, match="no 2 free ports between"):
        settings.free_ports(2, random.Random(1))


def test_below_the_ephemeral_range() -> None:
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not file.exists():
        pytest.skip("this system does not tell its range here")
    lowest, highest = map(int, file.read_text().split())
    assert lowest > settings.HIGHEST_PORT or highest < settings.LOWEST_PORT


def test_major_version() -> None:
    said = {
        'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)': 17,
        'java version "1.8.0_392"': 8, 'openjdk version "21-ea" 2023-09-19': 21, 'java version "25" 2025-09-16 LTS': 25,
        'Picked up JAVA_TOOL_OPTIONS: -Dx=9\nopenjdk version "11.0.2" 2019-01-15': 11,
        "The operation couldn't be completed. Unable to locate a Java Runtime.": None, "": None,
    }  # fmt: skip
    assert {output: parse_java_major(output) for output in said} == said


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    at_home = java_that_says('openjdk version "21"', tmp_path / "home" / "bin")
    on_path = java_that_says('openjdk version "17"', tmp_path / "path")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ) == at_home
    del environ["JAVA_HOME"]
    assert find_java(environ) == on_path


def test_why_no_java_is_found(tmp_path: Path) -> None:
    java_that_says("Unable to locate a Java Runtime.", tmp_path / "tells")
    for environ, words in (
        ({"PATH": ""}, "JAVA_HOME is not set and no java is on the PATH.*Install Java 17"),
        ({"PATH": str(tmp_path)}, "JAVA_HOME is not set and no java is on the PATH.*Install Java 17"),
        ({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}, "JAVA_HOME is .*, which has no bin/java"),
        ({"PATH": str(tmp_path / "tells")}, "is no working Java: Unable to locate"),
    ):
        with pytest.raises(errors.JavaNotFound, match=words):
            find_java(environ)
    java = java_that_says('openjdk version "11.0.2" 2019-01-15', tmp_path)
    with pytest.raises(errors.JavaVersionUnsupported, match="is Java 11; the local broker needs 17") as raised:
        find_java({"PATH": str(tmp_path)})
    assert (raised.value.java, raised.value.major, raised.value.minimum) == (str(java), 11, 17)


def java_that_says(text: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return java


def test_a_node_of_three_and_internal_topics_that_fit_the_cluster() -> None:
    expected = {
        "process.roles": "broker,controller", "node.id": "2", "log.dirs": "/data/2",
        "controller.quorum.voters": "1@127.0.0.1:21002,2@127.0.0.1:21004,3@127.0.0.1:21006",
        "listeners": "PLAINTEXT://127.0.0.1:21003,CONTROLLER://127.0.0.1:21004",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:21003", "auto.create.topics.enable": "false",
    }  # fmt: skip
    assert expected.items() <= server_settings(THREE[1], THREE, Path("/data/2"), {}).items()
    for cluster, replicas, min_isr in ((ONE, "1", "1"), (THREE, "3", "2")):
        settings = server_settings(cluster[0], cluster, Path("/data"), {})
        assert settings["offsets.topic.replication.factor"] == replicas
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            of_topic = settings[f"{topic}.replication.factor"], settings[f"{topic}.min.isr"]
            assert of_topic == (replicas, min_isr)
    for name in (
        "process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "listeners",
        "advertised.listeners", "listener.security.protocol.map", "log.dirs",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(name)):
            server_settings(ONE[0], ONE, Path("/data"), {name: "1"})


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_every_text_survives(settings: dict[str, str]) -> None:
    rendered = render_properties(settings)
    rendered.encode("ascii")
    assert java_properties(rendered) == settings


def java_properties(text: str) -> dict[str, str]:
    """java.util.Properties.load, as its documentation has it, without continuation lines."""
    found = {}
    for line in text.split("\n"):
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        key = re.match(r"(?:\\.|[^\\=: \t\f])*", line)
        assert key is not None
        rest = re.sub(r"^[ \t\f]*[=:]?[ \t\f]*", "", line[key.end() :])
        found[unescape(key[0])] = unescape(rest)
    return found


def unescape(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def answers(answer: bytes) -> Behaviour:
    def behave(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(answer)
        sock.close()

    return behave


def sized(body: bytes, cut: int = 0) -> bytes:
    return (len(body) + cut).to_bytes(4, "big") + body


@pytest.mark.parametrize("answer", [
    b"", b"\0\0", b"\0\0\0\x08\0\0\0\x01", b"\0\0\0\x06\0\0\0\x01\0\0", b"\0\0\0\x0c\0\0\0\x01\0\0\0\0\0\0\0\x05",
])  # fmt: skip
def test_an_answer_cut_short(answer: bytes) -> None:
    with peer(answers(answer)) as port, pytest.raises(ConnectionError):
        requests.fetch_metadata(("127.0.0.1", port), None, 5)


def test_a_refusal_carries_the_brokers_words() -> None:
    for answer, error, words in (
        (sized(CREATED + b"\0\x24" + b"\0\x06exists"), errors.LocalKafkaError, "'t' was not created: error 36, exists"),
        # It says enough, and is cut short all the same.
        (sized(CREATED + b"\0\0" + b"\xff\xff", cut=1), ConnectionError, None),
    ):
        with peer(answers(answer)) as port, pytest.raises(error, match=words):
            requests.create_topic(("127.0.0.1", port), "t", 1, 1, {}, 5)


@pytest.mark.parametrize("behaviour", [says_nothing, drips(b"\0\0\4\0", b"\0")], ids=["silent", "single bytes"])
def test_an_answer_in_single_bytes_is_waited_for_as_long_as_none(behaviour: Behaviour) -> None:
    begun = time.monotonic()
    with peer(behaviour) as port, pytest.raises(TimeoutError):
        requests.fetch_metadata(("127.0.0.1", port), None, 0.3)
    assert time.monotonic() - begun < 60
    with pytest.raises(OSError):
        requests.fetch_metadata(("127.0.0.1", port), None, 5)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 2**31 - 1])
def test_a_size_that_no_answer_has_is_not_waited_for(size: int) -> None:
    begun = time.monotonic()
    with peer(drips(size.to_bytes(4, "big", signed=True))) as port, pytest.raises(ConnectionError, match="no broker"):
        requests.fetch_metadata(("127.0.0.1", port), None, 600)
    assert time.monotonic() - begun < 60
