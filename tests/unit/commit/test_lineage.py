"""What may follow upon the last decision, one case at a time."""

from __future__ import annotations

import pytest

from exchange import (
    DECIDED_MS,
    GENERATION,
    LATER_MS,
    NOTHING,
    SINK,
    SOON_MS,
    WHOLE,
    facts,
    outcome,
    prepared,
)
from kafka_sink.commit.lineage import OFFSETS_RETENTION_MS, check_decision, check_replay
from kafka_sink.commit.markers import Ids, Marker
from kafka_sink.commit.sink import Facts, SlotPrepared
from kafka_sink.errors import (
    CheckpointBehind,
    CommittedDataMissing,
    ExactlyOnceError,
    NonDeterministicReplay,
    StateExpired,
    TornBatch,
)


@pytest.mark.parametrize(
    ("found", "again", "micro_batch_id", "expected"),
    [
        # the first micro-batch of a lineage, and a later one of which nothing is known
        (NOTHING, prepared("a", "b"), 0, None),
        (NOTHING, prepared("a", "b"), 5, StateExpired),
        (facts(9, WHOLE, query_id="another"), prepared("a", "b"), 0, None),
        (facts(9, WHOLE, query_id="another"), prepared("a", "b"), 5, StateExpired),
        # the one after the last
        (facts(4, WHOLE), prepared("c", "d"), 5, None),
        (facts(4, WHOLE), prepared("c"), 5, None),
        (facts(4, {0: "a"}), prepared("c", "d"), 5, CommittedDataMissing),
        (facts(4, {}), prepared("c", "d"), 5, CommittedDataMissing),
        (facts(3, WHOLE), prepared("c", "d"), 5, CommittedDataMissing),
        # the last one again
        (facts(5, WHOLE), prepared("a", "b"), 5, None),
        (facts(5, {0: "a"}), prepared("a", "b"), 5, None),
        (facts(5, {0: "a"}), prepared("a", "other"), 5, None),
        (facts(5, {}), prepared("x", "y", "z"), 5, None),
        (facts(5, {0: "a"}), prepared("x", "b"), 5, TornBatch),
        (facts(5, {1: "b"}), prepared("a"), 5, TornBatch),
        (facts(5, WHOLE), prepared("a", "x"), 5, NonDeterministicReplay),
        (facts(5, WHOLE), prepared("a"), 5, NonDeterministicReplay),
        # an older checkpoint
        (facts(6, WHOLE), prepared("a", "b"), 5, CheckpointBehind),
    ],
)
def test_what_may_follow_upon_the_last_decision(
    found: Facts, again: list[SlotPrepared], micro_batch_id: int, expected: type[ExactlyOnceError] | None
) -> None:
    assert outcome(found, again, micro_batch_id) is expected


def test_a_query_that_another_has_decided_after_is_told_whose_the_name_is() -> None:
    with pytest.raises(StateExpired) as raised:
        check_decision(
            SINK, facts(0, WHOLE, query_id="another"), prepared("a", "b"), micro_batch_id=1, now_ms=SOON_MS,
            allow_lost_state=False,
        )  # fmt: skip
    assert (raised.value.query_id, raised.value.decided_query_id) == ("q", "another")


@pytest.mark.parametrize(
    ("found", "micro_batch_id"), [(NOTHING, 5), (facts(4, {0: "a"}), 5), (facts(3, WHOLE), 5)]
)
def test_lost_state_can_be_allowed(found: Facts, micro_batch_id: int) -> None:
    assert outcome(found, prepared("c", "d"), micro_batch_id, allowed=True) is None


def test_a_checkpoint_that_is_behind_cannot_be_allowed() -> None:
    assert outcome(facts(6, WHOLE), prepared("a", "b"), 5, allowed=True) is CheckpointBehind


def test_markers_older_than_the_retention_of_offsets_prove_nothing_by_being_gone() -> None:
    assert outcome(facts(4, {0: "a"}), prepared("c"), 5, now_ms=LATER_MS) is StateExpired
    assert outcome(facts(4, WHOLE), prepared("c"), 5, now_ms=LATER_MS) is None
    # Nor for the last one again: its rows may be there, and a second time then.
    assert outcome(facts(5, {}), prepared("a", "b"), 5, now_ms=LATER_MS) is StateExpired
    assert outcome(facts(5, {0: "a"}), prepared("a", "b"), 5, now_ms=LATER_MS) is StateExpired
    assert outcome(facts(5, WHOLE), prepared("a", "b"), 5, now_ms=LATER_MS) is None
    assert outcome(facts(5, {}), prepared("a", "b"), 5, now_ms=LATER_MS, allowed=True) is None


def test_markers_are_gone_before_the_decision_by_as_much_as_a_transaction_may_last() -> None:
    last_ms = DECIDED_MS + OFFSETS_RETENTION_MS - SINK.timeout_ms
    assert outcome(facts(5, {}), prepared("a", "b"), 5, now_ms=last_ms) is None
    assert outcome(facts(5, {}), prepared("a", "b"), 5, now_ms=last_ms + 1) is StateExpired


def test_a_marker_of_an_earlier_micro_batch_does_not_show_the_last_one() -> None:
    older = Facts(GENERATION, facts(4, {}).decision, {0: Marker(3, "q", "a"), 1: Marker(4, "another", "b")})
    assert outcome(older, prepared("c"), 5) is CommittedDataMissing


def test_a_torn_batch_says_which_slots_are_visible() -> None:
    with pytest.raises(TornBatch) as raised:
        check_decision(
            SINK, facts(5, {0: "a"}), prepared("x", "b"), micro_batch_id=5, now_ms=SOON_MS, allow_lost_state=False
        )
    assert (raised.value.visible, raised.value.missing) == ((0,), (1,))


def test_rows_that_are_visible_must_come_again() -> None:
    marker = Marker(5, "q", "a")
    again = SlotPrepared(0, Ids(0, 1), "q", "a", visible=marker)
    changed = SlotPrepared(1, Ids(1, 1), "q", "other", visible=marker)
    check_replay(SINK, [again], micro_batch_id=5)
    with pytest.raises(NonDeterministicReplay) as raised:
        check_replay(SINK, [again, changed], micro_batch_id=5)
    assert raised.value.slots == (1,)
