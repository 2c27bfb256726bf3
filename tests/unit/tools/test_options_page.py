"""The committed pages are those that the tables make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import options_page
from kafka_sink.options.option import OptionTable
from kafka_sink.options.reading import READING
from kafka_sink.options.table import WRITING
from options_page import page, reading_page

ROOT = Path(__file__).resolve().parents[3]
PAGES = {(): "options.md", ("reading",): "reading-options.md"}
MADE = {(): page, ("reading",): reading_page}


@pytest.mark.parametrize("arguments", PAGES)
def test_the_committed_page_is_generated(arguments: tuple[str, ...]) -> None:
    committed = (ROOT / "docs" / PAGES[arguments]).read_text(encoding="utf-8")
    assert committed == MADE[arguments](), "run `make docs`"


@pytest.mark.parametrize(("options", "text"), [(WRITING, page()), (READING, reading_page())], ids=["write", "read"])
def test_every_name_is_on_the_page_with_its_default(options: OptionTable, text: str) -> None:
    prefixes = (f"{prefix}*" for prefix in options.refused_prefixes)
    names = [*(option.name for option in options.options), *options.refused, *prefixes]
    assert [name for name in names if f"`{name}`" not in text] == []
    if options is READING:
        assert "`endingOffsets` | `latest`" in text and "`kafka.isolation.level` | `read_uncommitted`" in text


def test_rows_are_rows_whatever_is_in_them() -> None:
    option = replace(WRITING.options[0], doc="a | b * c", redact=True)
    (row,) = options_page.table([option]).splitlines()[2:]  # type: ignore[attr-defined]
    assert row.count(" | ") == 3
    assert "a \\| b \\* c. No message shows the value" in row
