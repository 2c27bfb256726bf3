"""The committed page is the one that the table makes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import options_page
from options_page import page

from effort import each
from kafka_sink.options.table import OPTIONS, REFUSED, REFUSED_PREFIXES

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "options.md"


def test_the_committed_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_module_prints_it() -> None:
    command = [sys.executable, str(ROOT / "tools" / "options_page.py")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == page()


PREFIXES = [f"{prefix}*" for prefix in REFUSED_PREFIXES]


@each("name", [*(option.name for option in OPTIONS), *REFUSED, *PREFIXES])
def test_every_name_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in page()


def test_rows_are_rows_whatever_is_in_them() -> None:
    option = replace(OPTIONS[0], doc="a | b * c", redact=True)
    (row,) = options_page.table([option]).splitlines()[2:]  # type: ignore[attr-defined]
    assert row.count(" | ") == 3
    assert "a \\| b \\* c. No message shows the value" in row
