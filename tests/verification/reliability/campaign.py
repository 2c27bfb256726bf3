"""The results of a test campaign: its figures, in a JSON file of docs/reliability.

    make campaigns, or one of them with --results FILE ──> docs/reliability/<campaign>.json
    docs/reliability/*.json ── make reliability ──> docs/reliability.md

A campaign always writes its file. The number of failures is one of its figures.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# What campaigns write themselves.
RESULTS = ("docs/reliability", "docs/reliability.md")
CHANGED = " with changes"

Figure = str | int | float


@dataclass(frozen=True, slots=True)
class Campaign:
    """The results of one run.

    `name`: name of the JSON file without its suffix. `command`: the command that was run, as a user types it. `about`:
    what the command does, in a few sentences. `figures`: the printed figures by their labels. `explained`: answers to
    questions about the figures, for example why a mutant survives. `commit`: of the sources, empty where git is not."""

    name: str
    title: str
    command: str
    about: str
    figures: Mapping[str, Figure]
    passed: bool
    explained: tuple[str, ...] = ()
    commit: str = ""

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = asdict(self) | {"commit": self.commit or commit_of(ROOT)}
        path.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Campaign:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"explained": tuple(fields["explained"])})


def commit_of(tree: Path) -> str:
    """Return the hash of the commit, `CHANGED` if files other than results differ from it, or nothing without git."""

    def git(*arguments: str) -> str:
        said = subprocess.run(["git", "-C", tree, *arguments], capture_output=True, text=True, check=True).stdout
        return said.strip()

    try:
        others = (f":(top,exclude){path}" for path in RESULTS)
        return git("rev-parse", "HEAD") + (CHANGED if git("status", "--porcelain", ":/", *others) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
