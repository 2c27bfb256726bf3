"""docs/reliability.md: written from the files beside it, which keep what the campaigns printed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from reliability.__main__ import main, page
from reliability.campaign import CHANGED, Campaign, commit_of

DOCS = Path(__file__).resolve().parents[2] / "docs"

FIGURES = {"inputs": 1_234_567, "longest": "0.4 s"}
FUZZ = Campaign(
    "fuzz", "Fuzzing", "make fuzz", "Answers nobody sent.", FIGURES, True, ("None hangs.",), commit="c0ffee"
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


def test_a_campaign_that_failed_or_that_no_section_shows_is_told(tmp_path: Path) -> None:
    failed = Campaign("soak", "Soak", "make soak", "An hour.", {"lost": 1}, passed=False, commit="c0ffee")
    assert "`make soak`: **failed**." in page(folder_with(tmp_path, failed))
    stray = Campaign("notes", "Notes", "make notes", "", {}, passed=True)
    with pytest.raises(ValueError, match="notes"):
        page(folder_with(tmp_path, stray))


def test_the_page_says_the_one_commit_that_all_figures_are_of(tmp_path: Path) -> None:
    assert "All figures are of commit `c0ffee`." in page(folder_with(tmp_path, FUZZ, replace(FUZZ, name="soak")))


@pytest.mark.parametrize("other", ["", "decade", "c0ffee" + CHANGED])
def test_figures_of_several_commits_are_refused_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    folder = folder_with(tmp_path, FUZZ)
    (folder / "soak.json").write_text(json.dumps(asdict(replace(FUZZ, name="soak", commit=other))))
    assert main(folder) == 1
    said = capsys.readouterr()
    assert not said.out
    assert "c0ffee: fuzz.json" in said.err
    assert f"{other or 'no commit'}: soak.json" in said.err


def test_results_say_the_commit_and_whether_other_files_than_results_differ(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert commit_of(tmp_path) == ""
    (tmp_path / "source").write_text("1")
    git("init", "--quiet")
    git("add", "source")
    git("commit", "--quiet", "--message", "first")
    commit = git("rev-parse", "HEAD").strip()
    FUZZ.write(tmp_path / "docs" / "reliability" / "fuzz.json")
    assert commit_of(tmp_path) == commit
    (tmp_path / "new").write_text("1")
    assert commit_of(tmp_path) == commit + CHANGED
