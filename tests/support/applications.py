"""Runs the Spark applications of this folder as users run theirs, in processes and a session of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent
FOLDERS = SUPPORT, SUPPORT.parents[1] / "jobs", SUPPORT.parent / "performance"
DEADLINE_S = 280


def run_application(name: str, *arguments: object, folder: Path | None = None, **variables: str) -> tuple[int, str]:
    """Run it to its end. Return its exit status, and what it printed, stderr included. `variables`: of its environment;
    PYTHONPATH comes before the folders of the tests."""
    ended = _ended(name, arguments, folder, variables, DEADLINE_S)
    return ended.returncode, ended.stdout + ended.stderr


def told_by(name: str, *arguments: object, deadline_s: float = DEADLINE_S) -> Any:
    """Return what the application, which must succeed, printed last on stdout: a line of JSON."""
    ended = _ended(name, arguments, None, {}, deadline_s)
    assert ended.returncode == 0, _without_frames(ended.stderr)[-4_000:]
    return json.loads(ended.stdout.splitlines()[-1])


def _without_frames(stderr: str) -> str:
    """Leave out Java's frames: they are longer than all that the application says."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith("\tat "))


def _ended(
    name: str, arguments: Sequence[object], folder: Path | None, variables: Mapping[str, str], deadline_s: float
) -> subprocess.CompletedProcess[str]:
    # PYTHONSAFEPATH would hide what lies beside the application.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    paths = variables.get("PYTHONPATH"), *map(str, FOLDERS), inherited.get("PYTHONPATH")
    environment = {**inherited, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, SUPPORT / name, *map(str, arguments)],
        # Spark's workers would find the sources in the working directory, and not what is installed.
        cwd=folder or sys.prefix, env=environment, capture_output=True, text=True, timeout=deadline_s,
        start_new_session=True,
    )  # fmt: skip
