"""chaos.comparison: which rows are missing, double, or there too early."""

from __future__ import annotations

from collections import Counter

from chaos.comparison import Difference, difference, first_whole


def test_no_difference_with_rows_of_a_micro_batch_that_is_not_committed_yet() -> None:
    assert difference(Counter(range(12)), first=0, committed=10) == Difference(0, 0, 0)


def test_each_difference_is_counted() -> None:
    rows = Counter([3, 10, 11, 11, 11, 13])
    assert difference(rows, first=10, committed=14) == Difference(lost=1, doubled=2, too_early=1)


def test_a_row_that_is_double_before_it_is_committed_is_double() -> None:
    assert difference(Counter([0, 1, 2, 2]), first=0, committed=2) == Difference(lost=0, doubled=1, too_early=0)


def test_a_topic_begins_with_a_whole_micro_batch() -> None:
    torn = Counter(range(15, 30))
    first = first_whole(torn, 10)
    assert first == 10
    assert difference(torn, first=first, committed=30).lost == 5
    assert first_whole(Counter(), 10) == 0
