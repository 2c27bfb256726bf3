"""Markers and decisions that somebody deleted, or that have expired: what proves that a slot is committed, or that it
is not, and that nothing is written without such a proof."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

import apis
from exchange import BOTH_VERSIONS, Exchange, after_commit, after_decision, instead, is_end_of
from kafka_sink.commit import attempt, ending, planning
from kafka_sink.commit.handover import Facts
from kafka_sink.commit.markers import FORGOTTEN, NOTHING_COMMITTED, Ids, Marker, digest_of
from kafka_sink.commit.requests import PARTITION, ToCoordinator, described, read_decision, read_markers
from kafka_sink.errors import DriverFenced, MarkersLost, NonDeterministicReplay, StateExpired, StateWentBack, WriteKind
from kafka_sink.kafka.protocol.error_codes import ErrorCode


def lose(exchange: Exchange, *slots: int, decision: bool = False) -> None:
    names = exchange.sink.names
    exchange.kafka.forget_offsets([names.slot(slot) for slot in slots] + [names.decision(0)] * decision)


def plan(exchange: Exchange) -> Facts:
    return exchange.run(planning.plan(exchange.sink))


def markers(exchange: Exchange, slots: Iterable[int] = range(2)) -> dict[int, Marker]:
    return exchange.run(read_markers(exchange.sink, list(slots), stable=False))


@BOTH_VERSIONS
def test_a_committed_slot_without_its_group_gets_its_marker_and_is_not_rewritten(version: int) -> None:
    for lost in ([0], [1], [0, 1]):
        exchange = Exchange(version)
        exchange.micro_batch(2)
        lose(exchange, *lost)
        plan(exchange)
        restored = {slot: Marker(0, "q", digest_of(f"0/{slot}")) for slot in lost}
        assert markers(exchange) == {0: Marker(0, "q", "0/0"), 1: Marker(0, "q", "0/1")} | restored
        # After this Init nothing else proves it.
        exchange.micro_batch(2)
        assert exchange.kafka.visible == ["0/0", "0/1"]
        exchange.micro_batch(2, 1)
        assert exchange.kafka.visible == ["0/0", "0/1", "1/0", "1/1"]


@BOTH_VERSIONS
def test_a_slot_of_which_nothing_is_proved_stays_so_whatever_is_begun(version: int) -> None:
    exchange = after_commit(2, version)
    exchange.tasks(2)
    lose(exchange, 1)
    for _ in range(2):
        found, done = exchange.tasks(2)
        assert (found.unproved, found.missing) == ((1,), [1])
        with pytest.raises(MarkersLost):
            exchange.commit(found, done)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_a_slot_that_timed_out_without_its_group_is_written_again_and_remembered(version: int) -> None:
    exchange = after_decision(2, version)
    exchange.kafka.time_out("orders.1")
    lose(exchange, 1)
    found, _ = exchange.tasks(2)
    assert (found.unproved, found.missing, markers(exchange)[1]) == ((), [1], NOTHING_COMMITTED)
    # The driver died after the Init of its slots.
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_a_marker_of_before_proves_that_what_came_after_was_not_committed(version: int) -> None:
    exchange = after_commit(2, version)
    exchange.decided(2, 1)
    exchange.kafka.time_out("orders.1")
    # Somebody else's Init, which the coordinator remembers nothing beyond.
    exchange.kafka.abort_manually("orders.1")
    found = plan(exchange)
    assert (found.unproved, found.missing) == ((), [1])
    exchange.micro_batch(2, 1)
    assert exchange.kafka.visible == ["0/0", "0/1", "1/0", "1/1"]


def test_a_decision_without_digests_has_the_marker_restored_without() -> None:
    exchange = after_commit(1)
    found = exchange.decision()
    (text,) = replace(found, digests=()).texts()
    names = exchange.sink.names
    old = apis.OffsetCommitRequest(names.decision(0), names.commit_topic, PARTITION, found.micro_batch_id, text)
    exchange.execute(ToCoordinator(apis.CoordinatorKind.GROUP, names.decision(0), old))
    lose(exchange, 0)
    assert plan(exchange).visible == {0: Marker(0, "q", FORGOTTEN)}


def test_a_driver_that_is_overtaken_while_it_restores_leaves_the_sink_to_the_other() -> None:
    exchange = after_commit(1)
    lose(exchange, 0)
    late = planning.plan(exchange.sink)
    effects = exchange.run_until(late, lambda effects: "TxnOffsetCommit" in type(effects[0].request).__name__)
    exchange.micro_batch(1)
    exchange.micro_batch(1, 1)
    with pytest.raises(DriverFenced):
        exchange.run(late, effects)
    assert markers(exchange, [0]) == {0: Marker(1, "q", "1/0")}


def test_a_restoring_transaction_that_timed_out_is_made_again() -> None:
    exchange = after_commit(1)
    lose(exchange, 0)
    steps = planning.plan(exchange.sink)
    effects = exchange.run_until(steps, is_end_of("orders.driver"))
    exchange.kafka.time_out("orders.driver")
    assert exchange.run(steps, effects).visible == {0: Marker(0, "q", digest_of("0/0"))}


@BOTH_VERSIONS
def test_a_new_sink_and_a_new_slot_say_that_nothing_was_decided_or_committed(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    found, _ = exchange.tasks(2)
    assert (found.decision, found.is_forgotten) == (None, False)
    decided = exchange.run(read_decision(exchange.sink, stable=False))
    assert decided is not None and decided.is_nothing
    assert [(slot, marker.is_nothing) for slot, marker in sorted(markers(exchange).items())] == [(0, True), (1, True)]
    # Once: what comes after is as it was.
    written = exchange.asked["TxnOffsetCommit"]
    exchange.micro_batch(2)
    assert (exchange.asked["TxnOffsetCommit"], exchange.kafka.visible) == (written + 3, ["0/0", "0/1"])


def test_a_write_that_never_comes_again_decides_nothing_that_an_abort_repeats() -> None:
    exchange = Exchange(is_new=True)
    exchange.sink = replace(exchange.sink, comes_again=False)
    exchange.micro_batch(2)
    assert exchange.asked["InitProducerId"] == exchange.asked["EndTxn"] == exchange.asked["TxnOffsetCommit"] == 3
    exchange = Exchange(is_new=True)
    found = exchange.run(planning.plan(replace(exchange.sink, comes_again=False)))
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.run(read_decision(exchange.sink)) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_a_first_micro_batch_whose_groups_are_all_gone_is_not_taken_for_a_new_one(allowed: bool) -> None:
    exchange = after_commit(2)
    lose(exchange, 0, 1, decision=True)
    found = plan(exchange)
    assert found.is_forgotten
    with contextlib.nullcontext() if allowed else pytest.raises(StateExpired):
        assert exchange.run(exchange.beginning(found, allow_lost_state=allowed)).visible is None


def test_a_part_of_a_decision_that_is_gone_is_the_whole_of_it() -> None:
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(3)
    exchange.kafka.forget_offsets([exchange.sink.names.decision(1)])
    assert plan(exchange).is_forgotten


@BOTH_VERSIONS
def test_a_slot_that_is_inited_while_it_is_marked_as_new_is_looked_at_again(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    found = plan(exchange)
    begin = attempt.begin(exchange.sink, found, slot=0, micro_batch_id=0, query_id="q")
    effects = exchange.run_until(begin, lambda effects: isinstance(effects[0].request, apis.EndTxnRequest))
    effects = begin.send([exchange.execute(effect) for effect in effects])
    assert isinstance(effects[0].request, apis.InitProducerIdRequest)
    exchange.task(found, 0, 0)
    fetched = exchange.asked["OffsetFetch"]
    assert exchange.run(begin, effects).visible is None
    assert exchange.asked["OffsetFetch"] == fetched + 1


def test_a_group_deleted_between_plan_and_task_has_its_slot_not_written_again() -> None:
    exchange = after_commit(1)
    found = plan(exchange)
    exchange.task(found, 0, 0)
    lose(exchange, 0)
    # Another attempt, which looks for itself.
    assert exchange.task(found, 0, 0).visible == Marker(0, "q", "0/0")


@pytest.mark.parametrize(("version", "state", "raised_by", "expected"), [
    (2, "CompleteCommit", 1, True), (2, "PrepareCommit", 1, True), (2, "CompleteCommit", 0, None),
    (2, "CompleteCommit", 3, None), (1, "CompleteCommit", 0, True), (1, "PrepareCommit", 0, True),
    (1, "CompleteCommit", 1, None), (2, "CompleteAbort", 1, False), (2, "PrepareAbort", 1, False),
    (2, "CompleteAbort", 0, None), (2, "CompleteAbort", 2, None), (1, "CompleteAbort", 1, False),
    (1, "CompleteAbort", 0, False), (1, "CompleteAbort", 2, None), (2, "Empty", 1, None), (2, "Ongoing", 0, None),
    (2, "Dead", 1, None),
])  # fmt: skip
def test_what_a_state_proves_of_pinned_ids(version: int, state: str, raised_by: int, expected: bool | None) -> None:
    exchange = Exchange(version)
    decision = exchange.decision()
    (found,) = exchange.run(described(["orders.0"]))
    pinned = replace(decision, pinned=(Ids(found.producer_id, 5),))
    said = replace(found, state=state, producer_epoch=5 + raised_by)
    for description, proved in ((said, expected), (replace(said, producer_id=1), None)):
        exchange.answer = refuses_to_end(description, version)
        assert exchange.run(ending.finish(exchange.sink, pinned)) == {0: proved}


def refuses_to_end(description: apis.TransactionDescription, version: int) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        if isinstance(request, apis.EndTxnRequest):
            return apis.EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE, -1, -1)
        return apis.DescribeTransactionsResponse(0, (description,))

    return answer


def test_a_commit_that_a_stale_coordinator_refuses_is_proved_by_the_true_one() -> None:
    exchange = after_commit(1)
    lose(exchange, 0)
    exchange.answer = instead(apis.EndTxnRequest, apis.EndTxnResponse(0, ErrorCode.PRODUCER_FENCED, -1, -1), "orders.0")
    assert plan(exchange).unproved == ()
    assert markers(exchange, [0]) == {0: Marker(0, "q", digest_of("0/0"))}


OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ALL = 100


def written(version: int, micro_batches: int, *, last_epoch: int = 32_766, is_new: bool = True) -> Exchange:
    exchange = Exchange(version, is_new=is_new, last_epoch=last_epoch)
    exchange.kafka.remember()
    for micro_batch_id in range(micro_batches):
        if micro_batch_id == micro_batches - 1:
            exchange.run(planning.plan(exchange.sink))
            exchange.kafka.mark()
        exchange.micro_batch(2, micro_batch_id)
    return exchange


def stopped(exchange: Exchange) -> StateWentBack:
    with pytest.raises(StateWentBack) as raised:
        exchange.run(planning.plan(exchange.sink))
    return raised.value


@BOTH_VERSIONS
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_a_micro_batch_that_the_offsets_do_not_know_any_more_is_not_written_again(
    version: int, micro_batches: int
) -> None:
    for last_epoch in (32_766, 4):
        exchange = written(version, micro_batches, last_epoch=last_epoch)
        exchange.kafka.roll_offsets_back_to_mark()
        for _ in range(2):
            error = stopped(exchange)
            last = micro_batches - 2 if micro_batches > 1 else None
            assert (error.topic, error.decided_micro_batch_id, error.slots) == (OFFSETS, last, (0, 1))
            assert all("CompleteCommit" in each for each in error.found)
        assert exchange.kafka.visible == [f"{n}/{slot}" for n in range(micro_batches) for slot in (0, 1)]


@BOTH_VERSIONS
def test_a_first_micro_batch_is_not_written_again_by_slots_that_say_that_nothing_was_committed(version: int) -> None:
    """The offsets go back to a moment in its tasks, which have written their first markers."""
    exchange = Exchange(version, is_new=True)
    exchange.kafka.remember()
    found, done = exchange.tasks(2)
    exchange.kafka.mark()
    exchange.run(planning.end_what_hangs(exchange.sink, found, exchange.touched(2)))
    exchange.commit(found, done)
    exchange.kafka.roll_offsets_back_to_mark()
    error = stopped(exchange)
    assert (error.topic, error.decided_micro_batch_id, error.slots) == (OFFSETS, None, (0, 1))
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_rows_of_a_lost_decision_that_is_carried_out_in_part_are_not_aborted(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    exchange.micro_batch(2)
    exchange.kafka.mark()
    exchange.decided(2, 1, but_one=True)
    exchange.kafka.roll_offsets_back_to_mark()
    assert stopped(exchange).slots == (0,)
    (rest,) = exchange.run(described(["orders.1"]))
    assert rest.state == "Ongoing"


@BOTH_VERSIONS
def test_allow_lost_state_goes_on_from_what_the_offsets_know(version: int) -> None:
    exchange = written(version, 2)
    exchange.kafka.roll_offsets_back_to_mark()
    found = exchange.run(planning.plan(exchange.sink, allow_lost_state=True))
    assert found.decision is not None and (found.decision.micro_batch_id, found.missing) == (0, [])


@BOTH_VERSIONS
def test_runs_that_failed_since_the_decision_are_no_loss(version: int) -> None:
    """They Inited ids, wrote rows and aborted them, or ended nothing."""
    for last_epoch in (32_766, 2):
        exchange = written(version, 2, last_epoch=last_epoch)
        for _ in range(3):
            exchange.tasks(2, 2)
        exchange.run(planning.plan(exchange.sink))
        found, done = exchange.tasks(2, 2)
        exchange.run(planning.end_what_hangs(exchange.sink, found, exchange.touched(2)))
        exchange.commit(found, done, 2)
        assert exchange.kafka.visible == [f"{n}/{slot}" for n in range(3) for slot in (0, 1)]


@BOTH_VERSIONS
def test_a_slot_that_said_nothing_and_died_is_no_loss(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    found = exchange.run(planning.plan(exchange.sink))
    is_second = iter([False, True])
    exchange.run_until(exchange.beginning(found), lambda effects: "InitProducerId" in str(effects) and next(is_second))
    (slot,) = exchange.run(described(["orders.0"]))
    assert slot.state == "CompleteCommit"
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]
    # Nor is what an earlier release said of an empty one.
    exchange = Exchange(version)
    assert exchange.tasks(1)[0].decision is None
    exchange.run(planning.plan(exchange.sink))
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_a_driver_that_is_overtaken_while_it_looks_is_fenced(version: int) -> None:
    exchange = written(version, 2)
    exchange.run(planning.plan(exchange.sink))
    late = planning.plan(exchange.sink)
    waiting = exchange.run_until(late, lambda effects: "DescribeTransactions" in str(effects))
    exchange.micro_batch(2, 2)
    with pytest.raises(DriverFenced):
        exchange.run(late, waiting)


@BOTH_VERSIONS
def test_a_leader_that_knows_later_ids_than_the_coordinator_stops_the_plan(version: int) -> None:
    exchange = written(version, 2)
    exchange.kafka.roll_back_to_mark()
    found = exchange.run(planning.plan(exchange.sink))
    assert found.decision is not None and found.decision.micro_batch_id == 0
    with pytest.raises(StateWentBack) as raised:
        exchange.run(planning.end_what_hangs(exchange.sink, found, exchange.touched(2)))
    assert (raised.value.topic, raised.value.slots) == (TRANSACTIONS, (0, 1))
    assert all("leader" in each for each in raised.value.found)
    exchange.run(planning.end_what_hangs(exchange.sink, found, exchange.touched(2), allow_lost_state=True))


@BOTH_VERSIONS
@pytest.mark.parametrize("by", ["all that it knew", "an attempt"])
def test_ids_that_a_coordinator_which_went_back_gives_out_again_are_not_used(version: int, by: str) -> None:
    exchange = written(version, 2)
    if by == "an attempt":
        exchange.kafka.roll_transactions_back_to_mark()
    else:
        exchange.kafka.roll_transactions_back(ALL)
    found = exchange.run(planning.plan(exchange.sink))
    assert found.decision is not None and found.decision.micro_batch_id == 1
    assert is_later(found.generation, found.decision.generation)
    for slot, pinned in enumerate(found.decision.pinned):
        begun = exchange.run(exchange.beginning(found, slot, 1))
        assert pinned is not None and is_later(begun.ids, pinned)
        assert begun.visible is not None


def is_later(ids: Ids, before: Ids) -> bool:
    return ids.producer_id != before.producer_id or ids.producer_epoch > before.producer_epoch


def test_a_marker_of_nothing_says_who_wrote_it() -> None:
    marker = Marker.nothing(Ids(7, 3), 2)
    assert Marker.read("orders.0", 0, marker.text) == marker
    assert (marker.is_nothing, marker.written_by) == (True, (Ids(7, 3), 2))
    assert (NOTHING_COMMITTED.is_nothing, NOTHING_COMMITTED.written_by) == (True, None)
    rows = Marker(0, "q", "7:3:2")
    assert (rows.is_nothing, rows.written_by) == (False, None)


@pytest.mark.parametrize("last", [None, 7])
def test_the_advice_says_that_rows_which_are_there_would_be_there_twice(last: int | None) -> None:
    for kind in (WriteKind.STREAM, WriteKind.VERSION):
        error = StateWentBack(sink="s", topic=OFFSETS, decided_micro_batch_id=last, slots=[0], found=["s.0"])
        said = str(error.in_transaction(write_kind=kind))
        assert "allowLostState=true, which would write rows twice that are there" in said
        assert ("7" in said) == (last == 7)


def test_a_micro_batch_of_a_lost_decision_is_not_written_in_fewer_slots_beside_what_is_visible() -> None:
    """The rows of the slot that the replay does not have would be there twice."""
    exchange = Exchange(is_new=True)
    exchange.micro_batch(3)
    exchange.kafka.forget_offsets([exchange.sink.names.decision(0)])
    found, done = exchange.tasks(2)
    with pytest.raises(NonDeterministicReplay) as raised:
        exchange.commit(found, done)
    assert (found.is_forgotten, raised.value.slots) == (True, (2,))
    exchange.run(exchange.committing(found, done, allow_lost_state=True))
    assert exchange.kafka.visible == ["0/0", "0/1", "0/2"]
