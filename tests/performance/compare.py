"""`make bench-compare OLD=... NEW=...`: the figures of two runs of `make bench-core`, and their ratios.

    python tests/performance/compare.py build/bench-old/core.json build/bench/core.json --limit 0.9

A figure is a rate: more is better. Exit status 1 if a figure of NEW is below the limit times that of OLD, or is
missing; 2 if the files have no figures. Rates of two machines say nothing about each other: another processor is told.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT = 0.9


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compare.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD", help="core.json or decoder.json of the older run")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same of the newer one")
    parser.add_argument("--limit", type=float, default=LIMIT, help="of NEW to OLD, at least (default: %(default)s)")
    arguments = parser.parse_args(given)
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (arguments.old, arguments.new))
    if not old.get("figures") or not new.get("figures"):
        print("error: no figures in one of the files: `make bench-core` writes them", file=sys.stderr)
        return 2
    print(table(old["figures"], new["figures"], arguments.limit))
    if old.get("processor") != new.get("processor"):
        print(f"two processors: {old.get('processor')}, {new.get('processor')}")
    return 1 if below(old["figures"], new["figures"], arguments.limit) else 0


def below(old: Mapping[str, float], new: Mapping[str, float], limit: float) -> list[str]:
    """The names of figures of `old` that are missing in `new`, or have become less than `limit` times as much."""
    return [name for name, figure in old.items() if name not in new or new[name] < limit * figure]


def table(old: Mapping[str, float], new: Mapping[str, float], limit: float) -> str:
    lines = ["| figure | old | new | new / old | |", "|---|---|---|---|---|"]
    failed = below(old, new, limit)
    for name in dict.fromkeys((*old, *new)):
        ratio = f"{new[name] / old[name]:.2f}" if name in old and name in new else ""
        verdict = f"below {limit:g}" if name in failed and name in new else "missing" if name in failed else ""
        lines.append(f"| {name} | {_millions(old.get(name))} | {_millions(new.get(name))} | {ratio} | {verdict} |")
    return "\n".join(lines)


def _millions(figure: Any) -> str:
    return "" if figure is None else f"{figure / 1e6:.2f} M"


if __name__ == "__main__":
    sys.exit(main())
