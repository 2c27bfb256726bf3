from __future__ import annotations

import pickle

import numpy as np
import pytest

from kafka_sink.errors import TooManyBadRows
from kafka_sink.kafka.producer.bad_row_tally import (
    FIRST_ROWS,
    BadRowCounts,
    BadRowLimits,
    BadRowPolicy,
    BadRowTally,
    check_limits,
    total,
)
from kafka_sink.records.bad_rows import Reason
from kafka_sink.records.dead_letters import Origin


def tally(letters: str | None = None, **limits: float) -> BadRowTally:
    made = BadRowLimits(**limits)  # type: ignore[arg-type]
    return BadRowTally(BadRowPolicy(letters, made, Origin(None, None, 3), lambda topics: {}))


def test_refused_rows_count_and_have_no_number() -> None:
    tallying = tally(max_rows=3)
    add(tallying, (4, Reason.TopicNull))
    tallying.add_refused(2, rows=10)
    assert tallying.receipt().dropped == {"TopicNull": 1, "RefusedByLeader": 2}
    assert tallying.receipt().first_rows == ((3, 4),)
    with pytest.raises(TooManyBadRows, match="4 of 11 rows"):
        tallying.add_refused(1, rows=11)


def add(to: BadRowTally, *bad: tuple[int, Reason]) -> None:
    to.add(np.array([reason for _, reason in bad], np.uint8), np.array([number for number, _ in bad], np.int64))


BAD = ((4, Reason.TopicNull), (9, Reason.RecordTooLarge), (11, Reason.TopicNull))


@pytest.mark.parametrize("letters", [None, "letters"])
def test_counts_by_reason_are_of_what_became_of_them(letters: str | None) -> None:
    made = tally(letters)
    add(made, *BAD)
    add(made, (20, Reason.TopicNull))
    receipt = made.receipt()
    counts = {"TopicNull": 3, "RecordTooLarge": 1}
    assert (receipt.dropped, receipt.dead_lettered) == ((counts, {}) if letters is None else ({}, counts))
    assert (receipt.dropped_count, receipt.dead_lettered_count) == ((4, 0) if letters is None else (0, 4))
    assert receipt.first_rows == ((3, 4), (3, 9), (3, 11), (3, 20))
    assert pickle.loads(pickle.dumps(receipt)) == receipt


def test_the_first_rows_are_few() -> None:
    made = tally()
    for start in range(0, 100, 7):
        add(made, *((number, Reason.TopicNull) for number in range(start, start + 7)))
    assert made.receipt().first_rows == tuple((3, number) for number in range(FIRST_ROWS))


def test_one_more_than_max_rows_is_too_many_at_once() -> None:
    made = tally(max_rows=3)
    add(made, *BAD)
    with pytest.raises(TooManyBadRows) as failure:
        add(made, (20, Reason.HeaderKeyNull))
    assert failure.value.counts == {"TopicNull": 2, "RecordTooLarge": 1, "HeaderKeyNull": 1}
    assert (failure.value.limit, failure.value.allowed, failure.value.rows) == ("maxBadRows", 3, 21)
    assert failure.value.first_rows == ((3, 4), (3, 9), (3, 11), (3, 20))


def test_a_fraction_is_looked_at_in_the_end() -> None:
    made = tally(max_fraction=0.1)
    add(made, (0, Reason.TopicNull))
    check_limits(made.receipt(), 10, rows_are_written=False)
    with pytest.raises(TooManyBadRows) as failure:
        check_limits(made.receipt(), 9, rows_are_written=True)
    assert (failure.value.limit, failure.value.allowed) == ("maxBadRowFraction", 0.1)
    assert "all other rows of the write are in Kafka" in str(failure.value)


def test_no_bad_row_is_never_too_many() -> None:
    for limits in (BadRowLimits(), BadRowLimits(0, 0.0)):
        check_limits(BadRowCounts(limits=limits), 0, rows_are_written=True)


def test_a_total_is_of_all_tasks_with_the_limits_they_had() -> None:
    limits = BadRowLimits(max_rows=4)
    one = BadRowCounts({"TopicNull": 2}, {}, ((0, 1), (0, 5)), limits)
    other = BadRowCounts({"TopicNull": 1, "HeaderKeyNull": 2}, {}, ((1, 0),), limits)
    nothing = BadRowCounts()
    summed = total([one, nothing, other, nothing])
    assert summed == BadRowCounts({"TopicNull": 3, "HeaderKeyNull": 2}, {}, ((0, 1), (0, 5), (1, 0)), limits)
    with pytest.raises(TooManyBadRows, match="5 of 100 rows"):
        check_limits(summed, 100, rows_are_written=True)
    assert total([]) == nothing
