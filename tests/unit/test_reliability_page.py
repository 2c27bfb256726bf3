"""docs/reliability.md: written from the files beside it, which keep what the campaigns printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from reliability.__main__ import page
from reliability.campaign import Campaign

DOCS = Path(__file__).resolve().parents[2] / "docs"

FIGURES = {"inputs": 1_234_567, "longest": "0.4 s"}
FUZZ = Campaign(
    "fuzz", "Fuzzing", "make fuzz", "Answers nobody sent.", FIGURES, passed=True, explained=("None hangs.",)
)


def folder_with(folder: Path, *campaigns: Campaign) -> Path:
    (folder / "opening.md").write_text("# Opening\n")
    (folder / "bugs.md").write_text("## Bugs\n")
    for campaign in campaigns:
        campaign.write(folder / f"{campaign.name}.json")
    return folder


def test_the_committed_page_is_what_its_sources_say() -> None:
    assert (DOCS / "reliability.md").read_text(encoding="utf-8") == page(DOCS / "reliability")


def test_a_section_says_the_command_its_figures_and_what_explains_them(tmp_path: Path) -> None:
    text = page(folder_with(tmp_path, FUZZ))
    assert text.index("# Opening") < text.index("## Fuzzing") < text.index("## Bugs")
    for expected in ("`make fuzz`: passed.", "| inputs | 1,234,567 |", "| longest | 0.4 s |", "- None hangs."):
        assert expected in text


def test_a_campaign_that_failed_says_so(tmp_path: Path) -> None:
    failed = Campaign("soak", "Soak", "make soak", "An hour.", {"lost": 1}, passed=False)
    assert "`make soak`: **failed**." in page(folder_with(tmp_path, failed))


def test_a_result_that_no_section_shows_is_refused(tmp_path: Path) -> None:
    stray = Campaign("notes", "Notes", "make notes", "", {}, passed=True)
    with pytest.raises(ValueError, match="notes"):
        page(folder_with(tmp_path, stray))
