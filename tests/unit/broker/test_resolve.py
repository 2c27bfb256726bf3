"""kafka_sink.broker.resolve: the cache, with a stand-in for Ivy, and the Ivy jar of the installed PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker import resolve
from kafka_sink.broker.errors import DirectoryUnusable, DiskFull, DownloadFailed, IvyNotFound
from kafka_sink.broker.java import find_java

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


class FakeIvy:
    def __init__(self, folder: Path) -> None:
        self.script = folder / "fake_ivy.py"
        self.call_file = folder / "calls"
        self.will()

    def will(self, names: list[str] = NAMES, says: str = "", status: int = 0, takes_seconds: float = 0) -> None:
        text = FAKE_IVY.format(
            calls=str(self.call_file), names=names, says=says, status=status, takes_seconds=takes_seconds
        )
        self.script.write_text(text)

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


def test_fetched_once(ivy: FakeIvy, cache: Path) -> None:
    jars = resolve.resolve_jars(RELEASE, cache, ivy)
    assert jars == cache / "kafka-4.3.1"
    assert sorted(file.name for file in jars.iterdir()) == sorted(NAMES)
    # Nobody asks for Ivy when the jars are there.
    assert resolve.resolve_jars(RELEASE, cache, lambda: pytest.fail("asked for Ivy")) == jars
    (call,) = ivy.calls
    assert "-types jar bundle" in call
    assert not (cache / "kafka-4.3.1.part").exists()
    # A damaged cache is fetched again.
    (jars / NAMES[0]).unlink()
    resolve.resolve_jars(RELEASE, cache, ivy)
    assert (jars / NAMES[0]).exists()
    assert len(ivy.calls) == 2


REFUSED = ":: problems summary ::\n:::: ERRORS\n\tServer access error (Connection refused)\n"
NO_SPACE = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("will", "error", "words"),
    [
        *(
            ({"names": [name for name in NAMES if left_out not in name]}, DownloadFailed, f"are missing: .*{left_out}")
            for left_out in ("scala-logging", "snappy", "zstd", "log4j-slf4j-impl", "kafka_2.13")
        ),
        ({"names": NAMES[:3], "says": REFUSED, "status": 1}, DownloadFailed, "not be fetched: Server access error"),
        ({"names": [], "says": NO_SPACE, "status": 1}, DiskFull, "XDG_CACHE_HOME"),
        ({"takes_seconds": 60}, DownloadFailed, "no end after"),
    ],
)
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


def test_a_cache_that_is_a_file(ivy: FakeIvy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable):
        resolve.resolve_jars(RELEASE, tmp_path / "file" / "cache", ivy)


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


def test_ivy_jar_by_glob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IvyNotFound, match=r"holds no jars/ivy-\*\.jar.*install"):
        resolve.find_ivy_jar(tmp_path)
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "ivy-9.9.9.jar"
    jar.touch()
    assert resolve.find_ivy_jar(tmp_path) == jar
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(IvyNotFound, match="PySpark is not installed"):
        resolve.installed_pyspark()


def test_ivy_jar_of_the_installed_pyspark() -> None:
    assert resolve.find_ivy_jar(resolve.installed_pyspark()).is_file()
    program = "import sys; from kafka_sink.broker import resolve; resolve.installed_pyspark(); print(*sys.modules)"
    assert "pyspark.sql" not in subprocess.check_output([sys.executable, "-c", program], text=True)
