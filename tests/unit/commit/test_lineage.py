"""What may follow upon the last decision, one case at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exchange import GENERATION, NOTHING, SINK, WHOLE, facts, outcome, prepared
from kafka_sink import errors
from kafka_sink.commit.handover import Facts, SlotPrepared
from kafka_sink.commit.lineage import check_decision, check_replay
from kafka_sink.commit.markers import FORGOTTEN, Ids, Marker, digest_of


@pytest.mark.parametrize(
    ("found", "again", "micro_batch_id", "expected"),
    [
        # the first micro-batch of a lineage, and a later one of which nothing is known
        (NOTHING, prepared("a", "b"), 0, None),
        (NOTHING, prepared("a", "b"), 5, errors.StateExpired),
        (facts(9, WHOLE, query_id="another"), prepared("a", "b"), 0, None),
        (facts(9, WHOLE, query_id="another"), prepared("a", "b"), 5, errors.StateExpired),
        # the one after the last
        (facts(4, WHOLE), prepared("c", "d"), 5, None),
        (facts(4, WHOLE), prepared("c"), 5, None),
        (facts(4, {0: "a"}), prepared("c", "d"), 5, errors.CommittedDataMissing),
        (facts(4, {}), prepared("c", "d"), 5, errors.CommittedDataMissing),
        (facts(3, WHOLE), prepared("c", "d"), 5, errors.WrittenOtherwise),
        (facts(3, {0: "a"}), prepared("c", "d"), 5, errors.CommittedDataMissing),
        # the last one again
        (facts(5, WHOLE), prepared("a", "b"), 5, None),
        (facts(5, {0: "a"}), prepared("a", "b"), 5, None),
        (facts(5, {0: "a"}), prepared("a", "other"), 5, None),
        (facts(5, {}), prepared("x", "y", "z"), 5, None),
        (facts(5, {0: "a"}), prepared("x", "b"), 5, errors.TornBatch),
        (facts(5, {1: "b"}), prepared("a"), 5, errors.TornBatch),
        (facts(5, WHOLE), prepared("a", "x"), 5, errors.NonDeterministicReplay),
        (facts(5, WHOLE), prepared("a"), 5, errors.NonDeterministicReplay),
        # an older checkpoint
        (facts(6, WHOLE), prepared("a", "b"), 5, errors.CheckpointBehind),
    ],
)
def test_what_may_follow_upon_the_last_decision(
    found: Facts, again: list[SlotPrepared], micro_batch_id: int, expected: type[errors.ExactlyOnceError] | None
) -> None:
    assert outcome(found, again, micro_batch_id) is expected


def test_whose_the_name_is_where_another_query_has_decided_after() -> None:
    with pytest.raises(errors.StateExpired) as raised:
        check_decision(
            SINK, facts(0, WHOLE, query_id="another"), prepared("a", "b"), micro_batch_id=1, allow_lost_state=False
        )
    assert (raised.value.query_id, raised.value.decided_query_id) == ("q", "another")
    derived = replace(SINK, is_derived=True)
    for sink, said in ((derived, "transactionalIdPrefix is not set"), (SINK, "transactionalIdPrefix; both have this")):
        with pytest.raises(errors.StateExpired, match=said):
            check_decision(
                sink, facts(0, WHOLE, query_id="another"), prepared("a"), micro_batch_id=1, allow_lost_state=False
            )


def test_micro_batches_that_were_written_otherwise_are_no_aborted_transaction() -> None:
    """To go back before them would write them twice."""
    with pytest.raises(errors.WrittenOtherwise, match="Do not go back") as raised:
        check_decision(SINK, facts(3, WHOLE), prepared("c", "d"), micro_batch_id=5, allow_lost_state=False)
    assert (raised.value.micro_batch_id, raised.value.next_micro_batch_id) == (3, 5)


@pytest.mark.parametrize(("found", "micro_batch_id"), [(NOTHING, 5), (facts(4, {0: "a"}), 5), (facts(3, WHOLE), 5)])
def test_lost_state_can_be_allowed(found: Facts, micro_batch_id: int) -> None:
    assert outcome(found, prepared("c", "d"), micro_batch_id, allowed=True) is None


def test_a_checkpoint_that_is_behind_cannot_be_allowed() -> None:
    assert outcome(facts(6, WHOLE), prepared("a", "b"), 5, allowed=True) is errors.CheckpointBehind


def unproved(found: Facts, *slots: int) -> Facts:
    return replace(found, unproved=slots)


def test_slots_without_proof_of_being_visible_are_not_written_again() -> None:
    for again in (4, 5):
        assert outcome(unproved(facts(4, {0: "a"}), 1), prepared("a", "b"), again) is errors.MarkersLost
        assert outcome(unproved(facts(4, {}), 0, 1), prepared("a", "b"), again) is errors.MarkersLost
        assert outcome(unproved(facts(4, {}), 0, 1), prepared("a", "b"), again, allowed=True) is None
    # Those of a query before are no business of a new one's.
    assert outcome(unproved(facts(4, {}, query_id="another"), 0, 1), prepared("a", "b"), 0) is None
    with pytest.raises(errors.MarkersLost, match="whether slot 1 of micro-batch 4") as raised:
        check_decision(SINK, unproved(facts(4, {0: "a"}), 1), prepared("a"), micro_batch_id=5, allow_lost_state=False)
    assert (raised.value.micro_batch_id, raised.value.decided_micro_batch_id, raised.value.slots) == (5, 4, (1,))


def test_rows_that_cannot_be_compared_come_again_only_if_that_is_allowed() -> None:
    found = facts(5, {0: FORGOTTEN, 1: "b"})
    assert outcome(found, prepared("a", "b"), 5) is errors.FingerprintsLost
    assert outcome(found, prepared("a", "b"), 5, allowed=True) is None
    # What can be compared is, by the digest too.
    assert outcome(facts(5, {0: digest_of("a"), 1: "b"}), prepared("a", "b"), 5) is None
    assert outcome(facts(5, {0: digest_of("a"), 1: "b"}), prepared("x", "b"), 5) is errors.NonDeterministicReplay
    assert outcome(found, prepared("a", "x"), 5, allowed=True) is errors.NonDeterministicReplay
    # A slot that does not come has no rows to be the same.
    assert outcome(facts(5, {0: "a", 1: FORGOTTEN}), prepared("a"), 5, allowed=True) is errors.NonDeterministicReplay
    assert outcome(facts(5, {0: FORGOTTEN}), prepared("a", "b"), 5, allowed=True) is None
    # The next micro-batch needs none of it.
    assert outcome(found, prepared("c", "d"), 6) is None


def test_a_torn_batch_says_which_slots_are_visible_by_markers_of_its_own() -> None:
    with pytest.raises(errors.TornBatch) as raised:
        check_decision(SINK, facts(5, {0: "a"}), prepared("x", "b"), micro_batch_id=5, allow_lost_state=False)
    assert (raised.value.visible, raised.value.missing) == ((0,), (1,))
    older = Facts(GENERATION, facts(4, {}).decision, {0: Marker(3, "q", "a"), 1: Marker(4, "another", "b")})
    assert outcome(older, prepared("c"), 5) is errors.CommittedDataMissing


def test_rows_that_are_visible_must_come_again() -> None:
    marker = Marker(5, "q", "a")
    again = SlotPrepared(0, Ids(0, 1), "q", "a", visible=marker)
    changed = SlotPrepared(1, Ids(1, 1), "q", "other", visible=marker)
    check_replay(SINK, [again], micro_batch_id=5)
    with pytest.raises(errors.NonDeterministicReplay) as raised:
        check_replay(SINK, [again, changed], micro_batch_id=5)
    assert raised.value.slots == (1,)
    check_replay(SINK, [replace(changed, visible=Marker(5, "q", FORGOTTEN))], micro_batch_id=5)
