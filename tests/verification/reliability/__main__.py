"""`make reliability`: write docs/reliability.md from the files of docs/reliability.

    PYTHONPATH=tests/verification python -m reliability > docs/reliability.md

The campaigns write the figures, as JSON. Authors write opening.md and bugs.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from reliability.campaign import Campaign, Figure

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "reliability"
# The order of the page: from single functions to an hour of the whole system.
ORDER = (
    "cases", "simulation", "explorations", "mutants", "mutation", "fidelity", "fuzz", "chaos", "soak", "soak_topics",
)  # fmt: skip


def page(results: Path) -> str:
    """Return the page as Markdown. Raises ValueError if a file of `results` is missing in ORDER."""
    campaigns = {path.stem: Campaign.read(path) for path in results.glob("*.json")}
    if unknown := campaigns.keys() - set(ORDER):
        raise ValueError(f"no place in ORDER for {', '.join(sorted(unknown))}")
    parts = [
        "<!-- Written by `make reliability`; the files of docs/reliability are its source. -->",
        (results / "opening.md").read_text(encoding="utf-8").strip(),
        *("\n".join(section(campaigns[name])) for name in ORDER if name in campaigns),
        (results / "bugs.md").read_text(encoding="utf-8").strip(),
    ]
    return "\n\n".join(parts) + "\n"


def section(campaign: Campaign) -> Iterator[str]:
    yield f"## {campaign.title}"
    yield ""
    yield campaign.about
    yield ""
    yield f"`{campaign.command}`: {'passed' if campaign.passed else '**failed**'}."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {shown(figure)} |" for name, figure in campaign.figures.items())
    if campaign.explained:
        yield ""
        yield from (f"- {sentence}" for sentence in campaign.explained)


def shown(figure: Figure) -> str:
    return f"{figure:,}" if isinstance(figure, int) else str(figure)


if __name__ == "__main__":
    sys.stdout.write(page(RESULTS))
