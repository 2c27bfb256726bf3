"""`make campaigns`: every campaign has its place, ends in time, and has failed if it leaves no figures. And
docs/reliability.md, which is written from the files beside it, which keep what the campaigns printed."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import processes
from reliability.__main__ import ORDER, main, page
from reliability.campaign import CHANGED, Campaign, commit_of
from reliability.campaigns import PLAN, Planned, passes
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SOAK = Planned("soak", "Soak", "soak", 7, ("BATCHES=150",), "--apart 12 20")


def test_each_campaign_of_the_page_is_planned_once_and_has_a_target_with_its_budget() -> None:
    # The page's cases are a list, which no campaign makes.
    assert sorted(planned.name for planned in PLAN) == sorted(set(ORDER) - {"cases"})
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for planned in PLAN:
        rule = re.search(rf"^{planned.target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert rule, planned.target
        for name in ("ARGS", *(variable.partition("=")[0] for variable in planned.budget)):
            assert f"$({name})" in rule.group(1)


@pytest.mark.parametrize(
    ("status", "figures_say", "verdict"), [(0, True, True), (0, False, False), (1, True, False), (None, True, False)]
)
def test_a_campaign_passes_by_status_and_figures(
    tmp_path: Path, status: int | None, figures_say: bool, verdict: bool
) -> None:
    def run(command: Sequence[str], limit_s: float) -> int | None:
        assert command == ("make", "soak", "BATCHES=150", "ARGS=--results build/campaigns/soak.json --apart 12 20")
        assert limit_s == 7 * 60
        Campaign("soak", "Soak", "make soak", "", {}, passed=figures_say).write(tmp_path / SOAK.results)
        return status

    assert passes(SOAK, tmp_path, run) == verdict


@pytest.mark.parametrize(("status", "why"), [(2, "It ended with status 2."), (None, "It was ended at its limit.")])
def test_a_campaign_without_figures_has_failed_whatever_it_left_once(
    tmp_path: Path, status: int | None, why: str
) -> None:
    Campaign("soak", "Soak", "make soak", "An hour.", {"lost": 0}, passed=True).write(tmp_path / SOAK.results)
    assert not passes(SOAK, tmp_path, lambda command, limit_s: status)
    written = Campaign.read(tmp_path / SOAK.results)
    assert (written.passed, written.explained) == (False, (why,))
    assert "BATCHES=150" in written.command


# Starts a process in a session of its own, as tests start Spark and brokers, and does not heed an interrupt.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(f"{child.pid}\\n")
time.sleep(300)
"""
TIDY = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).write_text("began\\n")
    time.sleep(300)
finally:
    pathlib.Path(sys.argv[1]).write_text("tidied up\\n")
"""


def begin(program: str, says_in: Path, grace_s: float = processes.GRACE_S) -> str:
    """Start and end a program, and return the first line that it said in its file."""
    with processes.started([sys.executable, "-c", program, says_in], grace_s=grace_s):
        wait_until(lambda: says_in.exists() and says_in.read_text().endswith("\n"), 60, "the program begins")
        return says_in.read_text()


def test_a_command_that_takes_too_long_is_ended_and_any_other_says_how_it_ended() -> None:
    assert processes.run([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3
    assert processes.run(["sleep", "300"], 0.1) is None


def test_a_command_that_is_ended_may_tidy_up_and_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    assert begin(TIDY, tmp_path / "said") == "began\n"
    assert (tmp_path / "said").read_text() == "tidied up\n"
    child = int(begin(STUBBORN, tmp_path / "child", grace_s=0.1))
    wait_until(lambda: child not in {each.process_id for each in processes.living()}, 10, "the child ends")


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
    assert (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8") == page(ROOT / "docs" / "reliability")


def test_a_section_says_the_command_its_figures_and_what_explains_them(tmp_path: Path) -> None:
    text = page(folder_with(tmp_path, FUZZ, replace(FUZZ, name="soak")))
    assert text.index("# Opening") < text.index("## Fuzzing") < text.index("## Bugs")
    said = "`make fuzz`: passed.", "| inputs | 1,234,567 |", "| longest | 0.4 s |", "- None hangs."
    for expected in (*said, "All figures are of commit `c0ffee`."):
        assert expected in text


def test_a_campaign_that_failed_or_that_no_section_shows_is_told(tmp_path: Path) -> None:
    assert "`make fuzz`: **failed**." in page(folder_with(tmp_path, replace(FUZZ, passed=False)))
    with pytest.raises(ValueError, match="notes"):
        page(folder_with(tmp_path, replace(FUZZ, name="notes")))


@pytest.mark.parametrize("other", ["", "decade", "c0ffee" + CHANGED])
def test_figures_of_several_commits_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    folder = folder_with(tmp_path, FUZZ)
    (folder / "soak.json").write_text(json.dumps(asdict(replace(FUZZ, name="soak", commit=other))))
    assert main(folder) == 1
    said = capsys.readouterr()
    assert not said.out and "c0ffee: fuzz.json" in said.err and f"{other or 'no commit'}: soak.json" in said.err


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
