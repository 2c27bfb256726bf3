"""`make campaigns`: every campaign has its place, and one that leaves no figures has failed and says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from reliability.__main__ import ORDER
from reliability.campaign import Campaign
from reliability.campaigns import PLAN, Planned, passes

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
SOAK = Planned("soak", "Soak", "soak", 7, ("BATCHES=150",), "--apart 12 20")


def test_each_campaign_of_the_page_is_planned_once_and_has_a_target_with_its_budget() -> None:
    # The page's cases are a list, which no campaign makes.
    assert sorted(planned.name for planned in PLAN) == sorted(set(ORDER) - {"cases"})
    for planned in PLAN:
        rule = re.search(rf"^{planned.target}:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
        assert rule, planned.target
        for name in ("ARGS", *(variable.partition("=")[0] for variable in planned.budget)):
            assert f"$({name})" in rule.group(1)


@pytest.mark.parametrize(
    ("status", "figures_say", "verdict"), [(0, True, True), (0, False, False), (1, True, False), (None, True, False)]
)
def test_a_campaign_passes_by_its_status_and_by_its_figures(
    tmp_path: Path, status: int | None, figures_say: bool, verdict: bool
) -> None:
    def run(command: Sequence[str], limit_s: float) -> int | None:
        assert command == ("make", "soak", "BATCHES=150", "ARGS=--results build/campaigns/soak.json --apart 12 20")
        assert limit_s == 7 * 60
        Campaign("soak", "Soak", "make soak", "", {}, passed=figures_say).write(tmp_path / SOAK.results)
        return status

    assert passes(SOAK, tmp_path, run) == verdict


@pytest.mark.parametrize(("status", "why"), [(2, "It ended with status 2."), (None, "It was ended at its limit.")])
def test_a_campaign_without_figures_has_failed_and_its_old_figures_are_gone(
    tmp_path: Path, status: int | None, why: str
) -> None:
    Campaign("soak", "Soak", "make soak", "An hour.", {"lost": 0}, passed=True).write(tmp_path / SOAK.results)
    assert not passes(SOAK, tmp_path, lambda command, limit_s: status)
    written = Campaign.read(tmp_path / SOAK.results)
    assert (written.passed, written.explained) == (False, (why,))
    assert "BATCHES=150" in written.command
