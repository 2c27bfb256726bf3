"""chaos.results: what is counted of the tests' reports."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from chaos.results import campaign


def report(test: str, outcome: Literal["passed", "failed", "skipped"], when: Any = "call", **properties: Any) -> Any:
    why = ("file.py", 1, "Skipped: no root") if outcome == "skipped" else None
    return pytest.TestReport(
        f"tests/integration/test_x.py::{test}", ("", 0, ""), {}, outcome, why, when, duration=30.0,
        user_properties=list(properties.items()),
    )  # fmt: skip


def test_faults_are_counted_by_kind_and_numbers_add_up() -> None:
    found = campaign(
        [
            report("a", "passed", "setup"),
            report("a", "passed", fault="kill -9", rows=10),
            # Teardown has the properties again.
            report("a", "passed", "teardown", fault="kill -9", rows=10),
            report("b", "passed", fault="kill -9", rows=5),
            report("c", "skipped", "setup"),
        ],
        seconds=100.0,
    )
    assert found.passed
    assert found.figures == {
        "tests": 3, "passed": 2, "failed": 0, "skipped": 1, "minutes": 2, "fault: kill -9": 2, "rows": 15,
    }  # fmt: skip
    assert found.explained == ("c: Skipped: no root",)


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_test_that_failed_anywhere_fails_the_campaign(when: str) -> None:
    found = campaign([report("a", "passed"), report("b", "failed", when)], seconds=1.0)
    assert not found.passed
    assert (found.figures["failed"], found.figures["passed"]) == (1, 1)
