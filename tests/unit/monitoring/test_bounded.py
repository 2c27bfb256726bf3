"""However many names there are, so many are kept."""

from __future__ import annotations

from kafka_sink.monitoring.bounded import MOST_NAMED, OTHER, Names
from kafka_sink.monitoring.micro_batch import Totals, Written


def test_names_that_come_late_are_counted_together() -> None:
    names = Names()
    first = [f"t{number}" for number in range(MOST_NAMED)]
    assert [names(name) for name in first] == first
    assert names("late") == OTHER
    assert names("t0") == "t0"
    assert names("late") == OTHER


def test_topics_of_a_micro_batch_are_bounded_and_their_sum_is_not() -> None:
    written = Written()
    for number in range(3 * MOST_NAMED):
        written = written.plus(Written({f"t{number}": Totals(1, 1, 10)}))
    assert len(written.topics) == MOST_NAMED + 1
    assert written.topics[OTHER] == Totals(2 * MOST_NAMED, 2 * MOST_NAMED, 20 * MOST_NAMED)
    assert written.plus(written).topics[OTHER].row_count == 4 * MOST_NAMED
