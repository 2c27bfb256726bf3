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

DIES = "print('last words'); sys.exit(1)"
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
def test_no_java(tmp_path: Path, detach: list[str]) -> None:
    ended = broker("start", *detach, "--dir", tmp_path, JAVA_HOME=str(tmp_path))
    assert ended.returncode == 4
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: no Java for the local broker: JAVA_HOME is")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_broker_that_dies(java: Any, tmp_path: Path, detach: list[str]) -> None:
    java.will("kafka.Kafka", DIES)
    ended = broker("start", *detach, "--dir", tmp_path / "data")
    assert ended.returncode == 1
    assert "error: node 1 of the local cluster did not start" in ended.stderr
    assert "last words" in ended.stderr


def test_an_unusable_folder(java: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = broker("start", "--dir", tmp_path / "file")
    assert ended.returncode == 6
    assert f"error: {tmp_path / 'file'} cannot be used" in ended.stderr


def test_no_download(java: Any, tmp_path: Path) -> None:
    (java.home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n[ $1 = -version ]\n")
    ended = broker("start", "--dir", tmp_path / "data", XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert ended.returncode == 5
    assert "the jars of Kafka 4.3.1 could not be fetched" in ended.stderr


def test_interrupted_before_it_answers(java: Any, tmp_path: Path) -> None:
    java.will("kafka.Kafka", "import signal; signal.pause()")
    command = [sys.executable, "-m", "kafka_sink.broker", "start", "--dir", tmp_path / "data"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        wait_for_call(java, "kafka.Kafka", started)
        started.send_signal(signal.SIGTERM)
        assert started.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
        assert "Traceback" not in started.stderr.read()


def wait_for_call(java: Any, main_class: str, started: subprocess.Popen[str]) -> None:
    wait_until(
        lambda: main_class in java.calls or started.poll() is not None, TIMEOUT_SECONDS, f"{main_class} is called"
    )
    assert started.poll() is None


def test_nothing_runs(tmp_path: Path) -> None:
    status = broker("status", "--dir", tmp_path)
    assert (status.returncode, status.stdout) == (3, "")
    assert status.stderr == f"no local cluster runs in {tmp_path}.\n"
    document = broker("status", "--dir", tmp_path, "--json")
    assert (document.returncode, document.stderr) == (3, "")
    assert json.loads(document.stdout) == {"running": False, "dir": str(tmp_path)}
    stop = broker("stop", "--dir", tmp_path)
    assert (stop.returncode, stop.stdout, stop.stderr) == (0, "", status.stderr)


def test_stop_leaves_a_process_alone_that_only_has_the_pid(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "running.json").write_text(
            f'{{"owner": {{"pid": {other.pid}, "start_time": "1"}}, "kafka_version": "4.3.1", "nodes": 1, '
            '"bootstrap_servers": "127.0.0.1:1"}'
        )
        assert broker("stop", "--dir", tmp_path).returncode == 0
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("arguments", [["start", "--nodes", "2"], ["start", "--kafka-version", "1.0"], ["stopp"], []])
def test_wrong_usage(arguments: list[str]) -> None:
    assert broker(*arguments).returncode == 2


def test_help_says_what_it_is_for() -> None:
    shown = broker("--help").stdout
    assert "for development and tests only" in " ".join(shown.split())
    for command in ("start", "stop", "status"):
        said = broker(command, "--help").stdout
        assert "exit status:" in said and f"\n    pykafka broker {command}" in said
