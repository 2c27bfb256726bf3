"""The cache of jars, with a stand-in for Ivy, and the real one; real processes, of which none survives its owner."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker import resolve
from kafka_sink.broker.errors import DirectoryUnusable, DiskFull, DownloadFailed, IvyNotFound
from kafka_sink.broker.process import LeashedProcess, run
from kafka_sink.broker.resolve import find_java
from kafka_sink.broker.state import identify
from waiting import wait_until

pytestmark = pytest.mark.programs

VERSION = "4.3.1"
RELEASE = resolve.KAFKA_VERSIONS[VERSION]
NAMES = [f"{name}-1.0.jar" for name in (*resolve.REQUIRED_JARS, "org.apache.logging.log4j_log4j-slf4j-impl")]

# Takes Ivy's arguments, writes what it was called with into a file, and `names` where Ivy would put the jars.
FAKE_IVY = """
import os, sys, time
from pathlib import Path
arguments = sys.argv[1:]
calls = Path({calls!r})
with calls.open("a") as file:
    file.write(" ".join(arguments) + "\\n")
target = Path(arguments[arguments.index("-retrieve") + 1]).parent
time.sleep({takes_seconds})
for name in {names!r}:
    (target / name).touch()
print({says!r})
sys.exit({status})
"""
REFUSED = ":: problems summary ::\n:::: ERRORS\n\tServer access error (Connection refused)\n"
NO_SPACE = "java.io.IOException: No space left on device"
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


class FakeIvy:
    def __init__(self, folder: Path) -> None:
        self.script, self.call_file = folder / "fake_ivy.py", folder / "calls"
        self.will()

    def will(self, names: list[str] = NAMES, says: str = "", status: int = 0, takes_seconds: float = 0) -> None:
        given = {"names": names, "says": says, "status": status, "takes_seconds": takes_seconds}
        self.script.write_text(FAKE_IVY.format(calls=str(self.call_file), **given))

    def __call__(self) -> list[str | Path]:
        return [sys.executable, self.script]

    @property
    def calls(self) -> list[str]:
        return self.call_file.read_text().splitlines() if self.call_file.exists() else []


@pytest.fixture
def ivy(tmp_path: Path) -> FakeIvy:
    return FakeIvy(tmp_path)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def test_fetched_once(ivy: FakeIvy, cache: Path, tmp_path: Path) -> None:
    jars = resolve.resolve_jars(RELEASE, cache, ivy)
    assert jars == cache / "kafka-4.3.1"
    assert sorted(file.name for file in jars.iterdir()) == sorted(NAMES)
    # Nobody asks for Ivy when the jars are there.
    assert resolve.resolve_jars(RELEASE, cache, lambda: pytest.fail("asked for Ivy")) == jars
    (call,) = ivy.calls
    assert "-types jar bundle" in call
    assert not (cache / "kafka-4.3.1.part").exists()
    # A damaged cache is fetched again, and one that is a file is none.
    (jars / NAMES[0]).unlink()
    resolve.resolve_jars(RELEASE, cache, ivy)
    assert (jars / NAMES[0]).exists() and len(ivy.calls) == 2
    with pytest.raises(DirectoryUnusable):
        resolve.resolve_jars(RELEASE, jars / NAMES[0] / "cache", ivy)


@pytest.mark.parametrize(("will", "error", "words"), [
    *(
        ({"names": [name for name in NAMES if left_out not in name]}, DownloadFailed, f"are missing: .*{left_out}")
        for left_out in ("scala-logging", "snappy", "zstd", "log4j-slf4j-impl", "kafka_2.13")
    ),
    ({"names": NAMES[:3], "says": REFUSED, "status": 1}, DownloadFailed, "not be fetched: Server access error"),
    ({"names": [], "says": NO_SPACE, "status": 1}, DiskFull, "XDG_CACHE_HOME"),
    ({"takes_seconds": 60}, DownloadFailed, "no end after"),
])  # fmt: skip
def test_a_failure_is_told_and_leaves_nothing_that_looks_complete(
    ivy: FakeIvy, cache: Path, monkeypatch: pytest.MonkeyPatch, will: dict[str, Any], error: type[Exception], words: str
) -> None:
    if "takes_seconds" in will:
        monkeypatch.setattr(resolve, "IVY_TIMEOUT_SECONDS", 0.2)
    ivy.will(**will)
    with pytest.raises(error, match=words) as raised:
        resolve.resolve_jars(RELEASE, cache, ivy)
    assert not isinstance(raised.value, DownloadFailed) or raised.value.kafka_version == VERSION
    assert not (cache / "kafka-4.3.1").exists()


def test_two_processes_at_once_fetch_once(ivy: FakeIvy, cache: Path) -> None:
    ivy.will(takes_seconds=1)
    program = (
        "import sys; from pathlib import Path; from kafka_sink.broker import resolve;"
        f"release = resolve.KAFKA_VERSIONS[{VERSION!r}];"
        "print(resolve.resolve_jars(release, Path(sys.argv[1]), lambda: [sys.executable, sys.argv[2]]))"
    )
    command = [sys.executable, "-c", program, cache, ivy.script]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0].strip() for process in both]
    assert answers == [str(cache / "kafka-4.3.1")] * 2
    assert len(ivy.calls) == 1


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real Ivy behind a proxy that refuses every connection: port 9, discard, on this machine."""
    proxy = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{proxy} -Duser.home={cache}")
    java = find_java(os.environ)
    with pytest.raises(DownloadFailed, match=r"Connection refused.*check the network"):
        resolve.resolve_jars(RELEASE, cache, lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())])


def test_ivy_jar_of_the_installed_pyspark_or_by_glob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve.find_ivy_jar(resolve.installed_pyspark()).is_file()
    program = "import sys; from kafka_sink.broker import resolve; resolve.installed_pyspark(); print(*sys.modules)"
    assert "pyspark.sql" not in subprocess.check_output([sys.executable, "-c", program], text=True)
    with pytest.raises(IvyNotFound, match=r"holds no jars/ivy-\*\.jar.*install"):
        resolve.find_ivy_jar(tmp_path)
    jar = tmp_path / "jars" / "ivy-9.9.9.jar"
    jar.parent.mkdir()
    jar.touch()
    assert resolve.find_ivy_jar(tmp_path) == jar
    # The cluster's pyspark is below SPARK_HOME, the jars too.
    assert resolve.find_ivy_jar(tmp_path / "python" / "pyspark").samefile(jar)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(IvyNotFound, match="no pyspark is installed"):
        resolve.installed_pyspark()


def test_a_timeout_ends_it() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run(["/bin/sh", "-c", "echo $$; exec sleep 600"], timeout_seconds=2)
    assert raised.value.output is not None
    assert identify(int(raised.value.output)) is None


@pytest.mark.parametrize(("command", "stop", "by"), [
    (WAIT, LeashedProcess.kill, signal.SIGKILL), (WAIT, LeashedProcess.end, signal.SIGTERM),
    (IGNORE_SIGTERM, LeashedProcess.end, signal.SIGKILL),
], ids=["killed", "ended", "ended, and ignores SIGTERM"])  # fmt: skip
def test_its_end(command: str, stop: Callable[[LeashedProcess], None], by: signal.Signals, tmp_path: Path) -> None:
    """The folder goes when it is ended, and stays when it is killed."""
    begun, its_stdout = os.pipe()
    (folder := tmp_path / "data").mkdir()
    process = LeashedProcess(
        [sys.executable, "-c", command], grace_seconds=DEADLINE_SECONDS if command == WAIT else 0.3, remove=folder,
        stdout=its_stdout,
    )  # fmt: skip
    os.close(its_stdout)
    with open(begun, "rb") as lines:
        if command == IGNORE_SIGTERM:
            lines.readline()
    pid = process.pid
    assert identify(pid) is not None and process.returncode is None
    assert os.getsid(pid) != os.getsid(0), "a terminal's signals go to its own session"
    stop(process)
    assert identify(pid) is None
    assert (process.returncode, folder.exists()) == (128 + by, stop is LeashedProcess.kill)
    if stop is LeashedProcess.kill:
        process.kill()  # again: nothing to do
        process.end()


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
