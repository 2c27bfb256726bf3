"""The committed pages are those that the tables make."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import options_page
from effort import each
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


@pytest.mark.parametrize("arguments", PAGES)
def test_the_module_prints_it(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, str(ROOT / "tools" / "options_page.py"), *arguments]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == MADE[arguments]()


def names(options: OptionTable) -> list[str]:
    prefixes = (f"{prefix}*" for prefix in options.refused_prefixes)
    return [*(option.name for option in options.options), *options.refused, *prefixes]


@each("name", names(WRITING))
def test_every_name_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in page()


@each("name", names(READING))
def test_every_name_of_a_read_is_on_its_page(name: str) -> None:
    assert f"`{name}`" in reading_page()


def test_defaults_are_shown_as_they_are_written() -> None:
    for cells in ("`endingOffsets` | `latest`", "`kafka.isolation.level` | `read_uncommitted`"):
        assert cells in reading_page()


def test_rows_are_rows_whatever_is_in_them() -> None:
    option = replace(WRITING.options[0], doc="a | b * c", redact=True)
    (row,) = options_page.table([option]).splitlines()[2:]  # type: ignore[attr-defined]
    assert row.count(" | ") == 3
    assert "a \\| b \\* c. No message shows the value" in row
