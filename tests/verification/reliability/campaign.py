"""The results of a test campaign: its figures, in a JSON file of docs/reliability.

    make simulate, mutation, fidelity, fuzz, chaos, soak ── --results FILE ──> docs/reliability/<campaign>.json
    docs/reliability/*.json ── make reliability ──> docs/reliability.md

A campaign always writes its file. The number of failures is one of its figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

Figure = str | int | float


@dataclass(frozen=True, slots=True)
class Campaign:
    """The results of one run.

    `name`: name of the JSON file without its suffix. `command`: the command that was run, as a user types it. `about`:
    what the command does, in a few sentences. `figures`: the printed figures by their labels. `explained`: answers to
    questions about the figures, for example why a mutant survives."""

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
