"""A test of many cases runs all of them, and fails if one of them does."""

from __future__ import annotations

import pytest

from effort import each


def test_every_case_runs_and_the_failing_ones_are_named() -> None:
    seen = []

    @each("number", range(5))
    def check(number: int, limit: int) -> None:
        seen.append(number)
        assert number < limit

    check(limit=5)
    with pytest.raises(AssertionError) as failed:
        check(limit=3)
    assert seen == [*range(5)] * 2
    assert failed.value.__notes__ == ["fails for 2 of 5 numbers: 3, 4"]
