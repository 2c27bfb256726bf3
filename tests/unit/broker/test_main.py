"""kafka_sink.broker.__main__: exit statuses and messages, with a stand-in for Java. (Real ones: tests/integration.)"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waiting import wait_until

pytestmark = pytest.mark.programs

TIMEOUT_SECONDS = 60


def broker(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafka_sink.broker", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_each_failure_has_its_status_and_no_traceback(java: Any, tmp_path: Path, detach: list[str]) -> None:
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


def test_interrupted_before_it_answers(java: Any, tmp_path: Path) -> None:
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
