"""Installs each wheel that can run here into an empty environment, and runs the demo from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from release.checks import Unfit


def try_wheel(wheel: Path, kernel: str, root: Path, flights: Path) -> None:
    """Run `.ci/wheel_demo.py` of the clone `root`. `kernel`: the one that must be in use, compiled or vectorised.
    `flights`: the demo's archive. Raises Unfit with the output if it fails."""
    line = [sys.executable, root / ".ci" / "wheel_demo.py", wheel, flights, kernel]
    ended = subprocess.run(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        raise Unfit(f"{wheel.name} in an empty environment: {ended.stdout}")
