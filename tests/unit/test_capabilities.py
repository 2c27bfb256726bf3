"""Each capability of tests/capabilities.md has its test in the gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gate

TESTS = Path(__file__).resolve().parents[1]
ROWS = re.findall(r"^\| (.+?) \| `(\w+)::(\w+)` \|", (TESTS / "capabilities.md").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize(("module", "test"), [(module, test) for _, module, test in ROWS])
def test_a_capability_has_its_test_in_the_gate(module: str, test: str) -> None:
    # `.ci/run` runs the tests of Kerberos, too.
    leaves = re.compile(r"pytest\.mark\.(long|chaos)\b")
    assert gate.stays(TESTS / "integration" / f"{module}.py", test, leaves)


def test_every_capability_is_shown_but_the_one_that_needs_clusters() -> None:
    text = (TESTS / "capabilities.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) - len(ROWS) == 1
    assert len({capability for capability, *_ in ROWS}) == len(ROWS) > 50
