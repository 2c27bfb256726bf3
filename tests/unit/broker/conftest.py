"""A stand-in for Java, and a cache that looks complete: what goes wrong with a broker, without a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_sink.broker import resolve

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


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """JAVA_HOME has a stand-in, the cache empty jars, and temporary folders are below tmp_path / "temporary"."""
    for version, release in resolve.KAFKA_VERSIONS.items():
        binding = f"{release.logging.binding_organisation}_{release.logging.binding_module}"
        jars = tmp_path / "cache" / "pykafka" / f"kafka-{version}"
        jars.mkdir(parents=True)
        for name in (*release.required, binding):
            (jars / f"{name}-1.0.jar").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return FakeJava(tmp_path / "java")
