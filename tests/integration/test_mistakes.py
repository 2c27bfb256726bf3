"""A newcomer's mistakes, made in one session: the line that docs/mistakes.md shows is the one that Python prints."""

from __future__ import annotations

import traceback

import pytest

import kafka_sink
from code_blocks import ROOT
from here import Here
from mistakes import MISTAKES, Mistake, Place, answer_in, normalised, row

PAGE = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8")


# `make first-hour` makes the same mistakes outside of pytest, and compares the answers with the page.
@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_line_that_says_what_to_do(here: Here, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = here.topic(2)
    monkeypatch.setenv("SERVERS", here.servers)
    monkeypatch.setenv("TOPIC", name)
    with pytest.raises(Exception) as raised:
        exec(compile(mistake.program, f"{mistake.name}.py", "exec"), {"__name__": "__main__"})
    answer = answer_in("".join(traceback.format_exception(raised.value)), mistake.place)
    assert answer is not None
    assert row(mistake, normalised(answer, here.servers, name)) in PAGE.splitlines()
    error = kafka_sink.error_of(raised.value)
    if mistake.place is Place.SINK:
        assert answer == f"kafka_sink.errors.{type(error).__name__}: {error}"


def test_the_page_has_these_mistakes_and_no_others() -> None:
    shown = [line for line in PAGE.splitlines() if any(line.startswith(row(each, "")[:-5]) for each in MISTAKES)]
    assert len(shown) == len(MISTAKES)
