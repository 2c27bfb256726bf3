"""What an import says of the Python that Spark will start. That a local Spark starts the right one:
tests/integration/test_python_api.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.spark import driver_python

WARNED = "which has no pyspark-pykafka"


def said(folder: Path, status: int, *command: str, **variables: str) -> str:
    """What an import prints where `python3` ends with `status` if it is asked for the package."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    asked = command or ("-c", "import kafka_sink")
    ended = subprocess.run([sys.executable, *asked], env=environment, capture_output=True, text=True, check=True)
    return ended.stderr


def test_a_python_without_the_package_is_named_with_the_line_to_set(tmp_path: Path) -> None:
    (line,) = said(tmp_path, 1).splitlines()
    assert f"{tmp_path}/python3, {WARNED}" in line
    assert f"PYSPARK_PYTHON={sys.executable} " in line


@pytest.mark.parametrize(
    ("status", "command", "variables"),
    [
        (0, (), {}),
        (1, (), {"PYSPARK_PYTHON": "python3"}),
        (1, (), {"PYSPARK_DRIVER_PYTHON": "python3"}),
        (1, (), {"SPARK_REMOTE": "sc://localhost"}),
        (1, (), {"PYTHON_WORKER_FACTORY_SECRET": "x"}),
        (1, ("-m", "kafka_sink", "version"), {}),
    ],
    ids=["has it", "chosen", "chosen for the driver", "Spark Connect", "a worker", "a command"],
)
def test_nothing_is_said_elsewhere(
    tmp_path: Path, status: int, command: tuple[str, ...], variables: dict[str, str]
) -> None:
    assert WARNED not in said(tmp_path, status, *command, **variables)


def test_nothing_is_said_in_an_environment_that_is_activated(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code = f"import os; os.environ['PATH'] = {path!r}; import kafka_sink"
    assert WARNED not in said(tmp_path, 1, "-c", code)


@pytest.mark.parametrize(
    ("master", "other", "started"),
    [
        ("local[2]", "/usr/bin/python3", sys.executable),
        ("local[2]", None, "python3"),
        ("spark://master:7077", "/usr/bin/python3", "python3"),
        ("yarn", "/usr/bin/python3", "python3"),
    ],
)
def test_only_a_local_spark_is_given_the_running_python(
    monkeypatch: pytest.MonkeyPatch, master: str, other: str | None, started: str
) -> None:
    monkeypatch.setattr(driver_python, "other_python", lambda: other)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec="python3"))
    assert driver_python.use(spark) is (started == sys.executable)
    assert spark.sparkContext.pythonExec == started
