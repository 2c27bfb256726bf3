"""docs/cases*.md: each test that they name is there, and no case goes without a test or a reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("cases*.md")}
HEADING = re.compile(r"^## (.+): (\d+) cases$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
REASON = re.compile(r"(?<![\w*])\*([^*]+)\*")


def table(text: str) -> Iterator[tuple[str, str]]:
    """Both cells of each row of the first table of `text`."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line == "|---|---|") + 1
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        left, right = line.strip("| ").split(" | ")
        yield left, right


def sections(page: str) -> dict[str, list[tuple[str, str]]]:
    """The rows of each table of cases, by its heading."""
    headings = list(HEADING.finditer(page))
    ends = [*(heading.start() for heading in headings[1:]), len(page)]
    return {heading[0]: list(table(page[heading.end() : end])) for heading, end in zip(headings, ends, strict=True)}


def cases(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def names_in(path: str) -> set[str]:
    """As pytest names them: `test_x`, `TestClass::test_x`."""
    return set(_tests(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, ""))


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_is_named_is_there(page: str) -> None:
    named = TEST.findall(PAGES[page])
    assert named
    assert [f"{path}::{test}" for path, test in named if test not in names_in(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_case_has_a_test_or_a_reason(page: str) -> None:
    reasons = {reason[1] for left, _ in table(PAGES[page]) if (reason := REASON.search(left))}
    given = set()
    for heading, rows in sections(PAGES[page]).items():
        for left, right in rows:
            tests, why = TEST.findall(right), REASON.findall(right)
            assert tests or why, f"{heading}: {left}"
            assert set(why) <= reasons, f"{heading}: {left}"
            given.update(why)
    assert given == reasons


@pytest.mark.parametrize("page", PAGES)
def test_each_case_is_told_of_once_and_all_are_counted(page: str) -> None:
    for heading, rows in sections(PAGES[page]).items():
        names = Counter(name for left, _ in rows for name in cases(left))
        assert max(names.values()) == 1, f"{heading}: {names.most_common(1)}"
        assert heading.endswith(f": {names.total()} cases"), f"{heading}: {names.total()}"
