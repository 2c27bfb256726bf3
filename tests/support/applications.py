"""Runs the Spark applications of this folder as users run theirs, in processes and a session of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
JOBS = SUPPORT.parents[1] / "jobs"
DEADLINE_S = 280


def run_application(name: str, *arguments: object, folder: Path | None = None, **variables: str) -> tuple[int, str]:
    """Run it to its end. Return its exit status, and what it printed, stderr included. `variables`: of its environment;
    PYTHONPATH comes before the folders of the tests."""
    # PYTHONSAFEPATH would hide what lies beside the application.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    paths = variables.pop("PYTHONPATH", ""), str(SUPPORT), str(JOBS), inherited.get("PYTHONPATH")
    ended = subprocess.run(
        [sys.executable, SUPPORT / name, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S, start_new_session=True, check=False,
        env={**inherited, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    return ended.returncode, ended.stdout


def told_by(name: str, *arguments: object) -> str:
    """Return the last line that the application, which must succeed, printed on stdout."""
    status, said = run_application(name, *arguments)
    assert status == 0, said[-4_000:]
    return said.splitlines()[-1]
