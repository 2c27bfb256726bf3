"""Facts on their way to tasks and commit: all is there, and a task makes objects of its own slot only."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.commit import by_slot
from kafka_sink.commit.handover import Facts
from kafka_sink.commit.markers import Decision, Ids, Marker

IDS = st.builds(Ids, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
# An id of the user's may have any character.
MARKERS = st.builds(Marker, st.integers(0, 2**63 - 1), st.text(max_size=3), st.text(max_size=3))


def facts(pinned: Any, markers: dict[int, Marker]) -> Facts:
    decision = Decision(7, "q", Ids(1, 2), 2, 0, pinned, ("t",), digests=("~0", "~1"))
    return Facts(Ids(1, 3), decision, markers, unproved=(4,), is_forgotten=True)


def carried(sent: Facts) -> Facts:
    received: Facts = pickle.loads(pickle.dumps(sent))
    return received


@given(st.lists(st.none() | IDS).map(tuple), st.dictionaries(st.integers(0, 9_999), MARKERS))
def test_facts_arrive_as_they_were_sent_however_often(
    pinned: tuple[Ids | None, ...], markers: dict[int, Marker]
) -> None:
    sent = facts(pinned, markers)
    for received in (carried(sent), carried(carried(sent))):
        assert received == sent
        assert sent == received
        assert received.decision is not None
        assert tuple(received.decision.pinned) == pinned
        assert dict(received.markers) == markers
        assert (received.visible, received.missing) == (sent.visible, sent.missing)


def test_a_slot_that_has_no_marker_or_is_not_pinned_has_none_after_it_was_carried() -> None:
    received = carried(facts((Ids(5, 1), None), {0: Marker(1, "q", "a"), 3: Marker(2, "q", "b")}))
    assert [received.markers.get(slot) for slot in (1, 2, 4)] == [None] * 3
    assert received.decision is not None
    assert received.decision.pinned[1] is None
    assert received.decision.pinned[:1] == (Ids(5, 1),)
    with pytest.raises(IndexError):
        received.decision.pinned[2]


def test_a_task_makes_the_ids_and_the_marker_of_its_own_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tuple(Ids(1_000 + slot, 0) for slot in range(1_000))
    sent = pickle.dumps(facts(ids, {slot: Marker(7, "q", f"rows of {slot}") for slot in range(1_000)}))
    made: list[object] = []

    def counted(of: Any) -> Any:
        def make(*args: Any) -> Any:
            made.append(of(*args))
            return made[-1]

        return make

    monkeypatch.setattr(by_slot, "Marker", counted(Marker))
    monkeypatch.setattr(by_slot, "Ids", type("Counted", (), {"read": staticmethod(counted(Ids.read))}))
    received: Facts = pickle.loads(sent)
    assert received.decision is not None
    assert (received.markers.get(7), received.decision.pinned[7]) == (made[0], made[1])
    assert made == [Marker(7, "q", "rows of 7"), Ids(1_007, 0)]
    # The class of an object, and the names of its fields, are in the pickle once at most.
    assert len(sent) < 1_000 * (len("rows of 999") + len("1999:0") + 12)
