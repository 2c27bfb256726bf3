"""A stand-in for Java: why a local cluster does not start, the statuses of its command, archives of classes."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from kafka_sink.broker import LocalKafka, cluster, errors, requests, resolve
from kafka_sink.broker.state import identify
from waiting import wait_until

# Notes every main class it is asked to run, then does as it is told in `{main class}.py` beside it.
FAKE_JAVA = """#!{python}
import sys
from pathlib import Path
home = Path({home!r})
arguments = sys.argv[1:]
if arguments[-1] == "-version":
    recorded = next((flag.partition("=")[2] for flag in arguments if "ArchiveClassesAtExit" in flag), None)
    if recorded and (home / "records nothing").exists():
        sys.exit("Error occurred during initialization of VM")
    if recorded:
        Path(recorded).write_text("nothing but the JDK's")
    print('openjdk version "17.0.1"', file=sys.stderr)
    sys.exit()
main_class = arguments[arguments.index("-cp") + 2]
with (home / "calls").open("a") as calls:
    calls.write(main_class + "\\n")
script = home / (main_class + ".py")
if script.exists():
    exec(script.read_text())
"""
pytestmark = pytest.mark.programs
# A JVM that notes how it was begun, and records on SIGTERM if it was told to.
RECORDS = """
import signal
with (home / "begun").open("a") as begun:
    print(next((flag for flag in arguments if ".jsa" in flag), "without"), file=begun)
recorded = next((flag.partition("=")[2] for flag in arguments if "ArchiveClassesAtExit" in flag), None)
def end(*_):
    if recorded:
        Path(recorded).write_text("classes")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)
signal.signal(signal.SIGTERM, end)
(home / "ready").touch()
while True:
    signal.pause()
"""
TIMEOUT_SECONDS = 60


class FakeJava:
    def __init__(self, home: Path) -> None:
        self.home = home
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(FAKE_JAVA.format(python=sys.executable, home=str(home)))
        java.chmod(0o755)

    def will(self, main_class: str, script: str) -> None:
        (self.home / f"{main_class}.py").write_text(script)

    @property
    def calls(self) -> list[str]:
        file = self.home / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def archives(self) -> list[Path]:
        return list(self.home.parent.glob("cache/pykafka/kafka-*/classes*"))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """JAVA_HOME has a stand-in, the cache empty jars, and temporary folders are below tmp_path / "temporary"."""
    for version, release in resolve.KAFKA_VERSIONS.items():
        binding = "_".join(release.logging.binding[:2])
        jars = tmp_path / "cache" / "pykafka" / f"kafka-{version}"
        jars.mkdir(parents=True)
        for name in (*release.required, binding):
            (jars / f"{name}-1.0.jar").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return FakeJava(tmp_path / "java")


def dies(saying: str) -> str:
    return f"print({saying!r}); sys.exit(1)"


def does_not_start(error: type[errors.LocalKafkaError], words: str | None = None, **arguments: Any) -> Any:
    with pytest.raises(error, match=words) as raised, LocalKafka(**arguments):
        pass
    return raised.value


def test_arguments_that_make_no_cluster_and_one_that_is_not_open() -> None:
    for arguments in ({"nodes": 0}, {"nodes": 2}, {"kafka_version": "2.8.0"}):
        with pytest.raises(ValueError, match=re.escape(str(*arguments.values()))):
            LocalKafka(**arguments)
    kafka = LocalKafka()
    for use in (lambda: kafka.dir, lambda: kafka.kill(1), lambda: kafka.create_topic("t", 1)):
        with pytest.raises(errors.LocalKafkaError):
            use()
    kafka.close()


def test_a_process_that_has_no_more_of_something(java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, what in (
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
        (RuntimeError("can't start new thread"), "threads"), (MemoryError(), "memory"),
    ):  # fmt: skip
        monkeypatch.setattr(cluster, "LeashedProcess", Mock(side_effect=error))
        does_not_start(errors.HostExhausted, f"no more {what}: .* Raise that limit")


@pytest.mark.parametrize(("main_class", "script", "error", "words"), [
    (None, "", errors.JavaNotFound, None),
    ("kafka.Kafka", dies("ERROR java.io.IOException: No space left on device"), errors.DiskFull, "node-1"),
    (
        "kafka.tools.StorageTool", dies("Configured metadata.version is wrong"), errors.BrokerStartFailed,
        r"could not be formatted.*\n.*metadata\.version is wrong",
    ),
    (
        "kafka.Kafka", "import signal; print('still loading', flush=True); signal.pause()",
        errors.BrokerStartFailed, r"no answer within 2 s.*\nstill loading",
    ),
], ids=["no Java", "disk full", "storage", "no answer"])  # fmt: skip
def test_why_a_cluster_does_not_start(
    java: FakeJava, monkeypatch: pytest.MonkeyPatch, main_class: str | None, script: str,
    error: type[errors.LocalKafkaError], words: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster, "START_TIMEOUT_SECONDS", 2 if "pause" in script else 60)
    if main_class is None:
        monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", "")
    else:
        java.will(main_class, script)
    does_not_start(error, words)


def test_a_broker_that_dies(java: FakeJava, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies("first\n" + "noise\n" * 100 + "java.lang.Error: last words"))
    error = does_not_start(errors.BrokerStartFailed, r"(?s)node 1 .* ended with status 1\. .*last words")
    assert error.log_tail.endswith("noise\njava.lang.Error: last words")
    assert "first" not in error.log_tail and not error.port_taken
    assert java.calls == ["kafka.tools.StorageTool", "kafka.Kafka"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_port_that_was_taken_in_between_is_replaced(java: FakeJava, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    java.will("kafka.Kafka", dies("java.net.BindException: Address already in use"))
    does_not_start(errors.BrokerStartFailed, "Another process took its port", dir=folder)
    assert java.calls.count("kafka.Kafka") == cluster.PORT_ATTEMPTS
    taken = (folder / "node-1" / "server.properties").read_text()

    java.will("kafka.Kafka", dies("something else"))  # what the log says of earlier starts does not count
    error = does_not_start(errors.BrokerStartFailed, "something else", dir=folder)
    assert not error.port_taken and "BindException" not in error.log_tail
    assert java.calls.count("kafka.Kafka") == cluster.PORT_ATTEMPTS + 1
    assert (folder / "node-1" / "server.properties").read_text() != taken


def test_the_other_nodes_begin_anew_as_well(java: FakeJava, tmp_path: Path) -> None:
    java.will(
        "kafka.Kafka",
        """
import os, signal
(home / f"pid-{os.getpid()}").touch()
if "node.id=2" in Path(arguments[-1]).read_text():
    while len(list(home.glob("pid-*"))) % 3:
        pass
    print("java.net.BindException")
    sys.exit(1)
signal.pause()
""",
    )
    does_not_start(errors.BrokerStartFailed, r"(?s)node 2.*BindException", nodes=3)
    pids = [int(file.name.removeprefix("pid-")) for file in java.home.glob("pid-*")]
    assert len(pids) == 3 * cluster.PORT_ATTEMPTS
    assert [pid for pid in pids if identify(pid)] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_it_is_told(java: FakeJava, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies(""))
    config, folder = {"message.max.bytes": 5, "auto.create.topics.enable": True}, tmp_path / "data"
    does_not_start(errors.BrokerStartFailed, nodes=3, kafka_version="3.9.2", dir=folder, config=config)
    for node in (1, 2, 3):
        properties = (folder / f"node-{node}" / "server.properties").read_text().splitlines()
        assert {f"node.id={node}", "message.max.bytes=5", "auto.create.topics.enable=true"} <= set(properties)
    assert "log4j.rootLogger" in (folder / "log4j.properties").read_text()
    assert java.calls.count("kafka.tools.StorageTool") == 3


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_another_cluster_runs_in_or_others_write_into(java: FakeJava, mode: int, tmp_path: Path) -> None:
    with open(tmp_path / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        does_not_start(errors.DirectoryUnusable, "a local cluster is running in it", dir=tmp_path)
    tmp_path.chmod(mode)
    does_not_start(errors.DirectoryUnusable, "other users can write into it", dir=tmp_path)
    assert java.calls == []
    tmp_path.chmod(0o755)
    java.will("kafka.Kafka", dies(""))
    does_not_start(errors.BrokerStartFailed, dir=tmp_path)


def test_a_folder_of_another_version_or_size_or_with_a_broken_identity(java: FakeJava, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies(""))
    folder, file = tmp_path / "data", tmp_path / "data" / "cluster.json"
    does_not_start(errors.BrokerStartFailed, dir=folder)
    identity = file.read_text()
    for other in ({"nodes": 3}, {"kafka_version": "3.9.2"}):
        words = r"holds the data of Kafka 4\.3\.1 with 1 node"
        does_not_start(errors.DirectoryUnusable, words, dir=folder, **other)
    does_not_start(errors.BrokerStartFailed, dir=folder)
    assert file.read_text() == identity
    file.write_text("{}")
    does_not_start(errors.DirectoryUnusable, r"cluster\.json: cluster_id", dir=folder)


def test_a_tool_that_fails(java: FakeJava, tmp_path: Path) -> None:
    kafka = LocalKafka(dir=tmp_path / "data")
    java.will("kafka.Kafka", dies(""))
    with patch.object(kafka, "close"), pytest.raises(errors.BrokerStartFailed):
        kafka.__enter__()
    try:
        java.will("org.apache.kafka.tools.X", "print(input()); print(*arguments[-2:], file=sys.stderr); sys.exit(7)")
        with pytest.raises(errors.ToolFailed, match=r"tools\.X ended with status 7\..*\nhello\n--a b") as raised:
            kafka.run_tool("org.apache.kafka.tools.X", "--a", "b", input="hello\n")
        assert raised.value.output_tail == "hello\n--a b"
        java.will("org.apache.kafka.tools.X", "print('begun', flush=True); import signal; signal.pause()")
        with pytest.raises(errors.ToolFailed, match=r"did not end within 2 s.*\nbegun"):
            kafka.run_tool("org.apache.kafka.tools.X", timeout=2)
    finally:
        kafka.close()


@pytest.fixture
def begun(java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a line for each broker's JVM: its archive options. Brokers answer as soon as they run."""
    java.will("kafka.Kafka", RECORDS)

    def fetch_metadata(*_: object) -> SimpleNamespace:
        if not (java.home / "ready").exists():
            raise ConnectionRefusedError
        return SimpleNamespace(brokers={1, 2, 3})

    monkeypatch.setattr(requests, "fetch_metadata", fetch_metadata)
    return Path(java.home, "begun")


def run_a_cluster(java: FakeJava, *, killed: bool = False) -> None:
    (java.home / "ready").unlink(missing_ok=True)
    with LocalKafka(1) as kafka:
        if killed:
            kafka.kill(1)


def test_what_the_first_broker_records_is_what_the_next_begins_with(java: FakeJava, begun: Path) -> None:
    """One that is killed leaves nothing."""
    run_a_cluster(java, killed=True)
    assert java.archives == []
    begun.unlink()
    run_a_cluster(java)
    (archive,) = java.archives
    assert archive.read_text() == "classes"
    run_a_cluster(java)
    first, second = begun.read_text().splitlines()
    assert "ArchiveClassesAtExit" in first and second == f"-XX:SharedArchiveFile={archive}"
    assert java.archives == [archive]


def test_a_jvm_that_cannot_record_runs_the_broker_all_the_same(java: FakeJava, begun: Path) -> None:
    (java.home / "records nothing").touch()
    run_a_cluster(java)
    assert begun.read_text().split() == ["without"] and java.archives == []


def test_a_broker_that_does_not_end_is_killed(java: FakeJava, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RECORDING_GRACE_SECONDS", 0.2)
    java.will("kafka.Kafka", RECORDS.replace("signal.SIGTERM, end", "signal.SIGTERM, signal.SIG_IGN"))
    run_a_cluster(java)
    assert java.archives == []


def broker(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafka_sink.broker", *arguments], env={**os.environ, **environ}, capture_output=True,
        text=True, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_each_failure_has_its_status_and_no_traceback(java: FakeJava, tmp_path: Path, detach: list[str]) -> None:
    (tmp_path / "file").touch()
    java.will("kafka.Kafka", "print('last words'); sys.exit(1)")
    only_tells = "#!/bin/sh\necho 'openjdk version \"17\"' >&2\n[ $1 = -version ]\n"
    for folder, environ, status, words in (
        ("file", {}, 6, [f"error: {tmp_path / 'file'} cannot be used"]),
        ("data", {"JAVA_HOME": str(tmp_path)}, 4, ["error: no Java for the local broker: JAVA_HOME is"]),
        ("data", {}, 1, ["error: node 1 of the local cluster did not start", "last words"]),
        ("data", {"XDG_CACHE_HOME": "empty"}, 5, ["the jars of Kafka 4.3.1 could not be fetched"]),
    ):
        if status == 5:
            (java.home / "bin" / "java").write_text(only_tells)
            environ = {"XDG_CACHE_HOME": str(tmp_path / "empty")}
        ended = broker("start", *detach, "--dir", tmp_path / folder, **environ)
        assert (ended.returncode, ended.stdout) == (status, "")
        assert all(each in ended.stderr for each in words) and "Traceback" not in ended.stderr


def test_interrupted_before_it_answers(java: FakeJava, tmp_path: Path) -> None:
    java.will("kafka.Kafka", "import signal; signal.pause()")
    command = [sys.executable, "-m", "kafka_sink.broker", "start", "--dir", tmp_path / "data"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        has_ended = started.poll
        wait_until(lambda: "kafka.Kafka" in java.calls or has_ended() is not None, TIMEOUT_SECONDS, "Kafka is called")
        assert has_ended() is None
        started.send_signal(signal.SIGTERM)
        assert started.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
        assert "Traceback" not in started.stderr.read()


def test_nothing_runs(tmp_path: Path) -> None:
    status = broker("status", "--dir", tmp_path)
    assert (status.returncode, status.stdout) == (3, "")
    assert status.stderr == f"no local cluster runs in {tmp_path}.\n"
    document = broker("status", "--dir", tmp_path, "--json")
    assert (document.returncode, document.stderr) == (3, "")
    assert json.loads(document.stdout) == {"running": False, "dir": str(tmp_path)}
    stop = broker("stop", "--dir", tmp_path)
    assert (stop.returncode, stop.stdout, stop.stderr) == (0, "", status.stderr)


@pytest.mark.parametrize("arguments", [["start", "--nodes", "2"], ["start", "--kafka-version", "1.0"], ["stopp"], []])
def test_wrong_usage(arguments: list[str]) -> None:
    assert broker(*arguments).returncode == 2
