"""What a campaign of tests leaves behind: its figures, as a JSON file of docs/reliability.

    make simulate, mutation, fidelity, fuzz, chaos, soak ── --results FILE ──> docs/reliability/<campaign>.json
    docs/reliability/*.json ── make reliability ──> docs/reliability.md

A campaign writes its file whether it passed or not; what failed is a figure as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

Figure = str | int | float


@dataclass(frozen=True, slots=True)
class Campaign:
    """`name`: of the file and of the section's anchor. `command`: what was run, as a user types it. `about`: what that
    does, in a sentence or two. `figures`: what it printed, by what each figure is. `explained`: what a reader would
    ask about the figures, such as each mutant that lives, and why."""

    name: str
    title: str
    command: str
    about: str
    figures: Mapping[str, Figure]
    passed: bool
    explained: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Campaign:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"explained": tuple(fields["explained"])})
