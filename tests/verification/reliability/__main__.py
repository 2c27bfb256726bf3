"""`make reliability`: write docs/reliability.md from the files of docs/reliability.

    PYTHONPATH=tests/verification python -m reliability > docs/reliability.md

The campaigns write the figures, as JSON. Authors write opening.md and bugs.md. The exit status is 1, and nothing is
written, if the figures are of several commits.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from reliability.campaign import CHANGED, Campaign, Figure

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "reliability"
# The order of the page: from single functions to an hour of the whole system.
ORDER = (
    "cases", "simulation", "explorations", "mutants", "mutation", "fidelity", "fuzz", "chaos", "soak", "soak_topics",
    "flakes",
)  # fmt: skip


def page(results: Path) -> str:
    """Return the page as Markdown. Raises ValueError for a file that is missing in ORDER, and for figures
    of more than one commit."""
    campaigns = {path.stem: Campaign.read(path) for path in results.glob("*.json")}
    if unknown := campaigns.keys() - set(ORDER):
        raise ValueError(f"no place in ORDER for {', '.join(sorted(unknown))}")
    commit = only_commit(campaigns)
    parts = [
        "<!-- Written by `make reliability`; the files of docs/reliability are its source. -->",
        (results / "opening.md").read_text(encoding="utf-8").strip(),
        *([f"All figures are of commit `{commit}`."] if commit else []),
        *("\n".join(section(campaigns[name])) for name in ORDER if name in campaigns),
        (results / "bugs.md").read_text(encoding="utf-8").strip(),
    ]
    return "\n\n".join(parts) + "\n"


def only_commit(campaigns: Mapping[str, Campaign]) -> str:
    """Return the commit that all figures are of. Raises ValueError if there are several, or changes beside it."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, campaign in sorted(campaigns.items()):
        files[campaign.commit].append(f"{name}.json")
    if len(files) > 1 or any(commit.endswith(CHANGED) for commit in files):
        told = "".join(f"\n  {commit or 'no commit'}: {', '.join(names)}" for commit, names in files.items())
        raise ValueError(f"the page needs all figures of one commit without changes (`make campaigns`):{told}")
    return next(iter(files), "")


def section(campaign: Campaign) -> Iterator[str]:
    verdict = "passed" if campaign.passed else "**failed**"
    yield from (f"## {campaign.title}", "", campaign.about, "", f"`{campaign.command}`: {verdict}.", "")
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {shown(figure)} |" for name, figure in campaign.figures.items())
    if campaign.explained:
        yield ""
        yield from (f"- {sentence}" for sentence in campaign.explained)


def shown(figure: Figure) -> str:
    return f"{figure:,}" if isinstance(figure, int) else str(figure)


def main(results: Path = RESULTS) -> int:
    try:
        text = page(results)
    except ValueError as refusal:
        print(f"docs/reliability.md is not written: {refusal}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
