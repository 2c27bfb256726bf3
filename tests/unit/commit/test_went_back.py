"""The brokers' internal topics lose their last records, and something else shows it: nothing is written twice."""

from __future__ import annotations

import pytest

from exchange import Exchange
from kafka_sink.commit import two_phase
from kafka_sink.commit.exchanges import described
from kafka_sink.commit.markers import NOTHING_COMMITTED, Ids, Marker
from kafka_sink.errors import DriverFenced, StateWentBack, WriteKind

BOTH_VERSIONS = pytest.mark.parametrize("version", [1, 2])
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ALL = 100


def written(version: int, micro_batches: int, *, last_epoch: int = 32_766, is_new: bool = True) -> Exchange:
    exchange = Exchange(version, is_new=is_new, last_epoch=last_epoch)
    exchange.kafka.remember()
    for micro_batch_id in range(micro_batches):
        if micro_batch_id == micro_batches - 1:
            exchange.run(two_phase.plan(exchange.sink))
            exchange.kafka.mark()
        exchange.micro_batch(2, micro_batch_id)
    return exchange


def stopped(exchange: Exchange) -> StateWentBack:
    with pytest.raises(StateWentBack) as raised:
        exchange.run(two_phase.plan(exchange.sink))
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
    exchange.run(two_phase.end_what_hangs(exchange.sink, found, exchange.touched(2)))
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
    (rest,) = exchange.run(described(exchange.sink, ["orders.1"]))
    assert rest.state == "Ongoing"


@BOTH_VERSIONS
def test_allow_lost_state_goes_on_from_what_the_offsets_know(version: int) -> None:
    exchange = written(version, 2)
    exchange.kafka.roll_offsets_back_to_mark()
    found = exchange.run(two_phase.plan(exchange.sink, allow_lost_state=True))
    assert found.decision is not None and found.decision.micro_batch_id == 0
    assert found.missing == []


@BOTH_VERSIONS
def test_runs_that_failed_since_the_decision_are_no_loss(version: int) -> None:
    """They Inited ids, wrote rows and aborted them, or ended nothing."""
    for last_epoch in (32_766, 2):
        exchange = written(version, 2, last_epoch=last_epoch)
        for _ in range(3):
            exchange.tasks(2, 2)
        exchange.run(two_phase.plan(exchange.sink))
        found, done = exchange.tasks(2, 2)
        exchange.run(two_phase.end_what_hangs(exchange.sink, found, exchange.touched(2)))
        exchange.commit(found, done, 2)
        assert exchange.kafka.visible == [f"{n}/{slot}" for n in range(3) for slot in (0, 1)]


@BOTH_VERSIONS
def test_a_slot_that_said_nothing_and_died_is_no_loss(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    found = exchange.run(two_phase.plan(exchange.sink))
    begin = two_phase.begin(exchange.sink, found, slot=0, micro_batch_id=0, query_id="q")
    inited = 0

    def is_second_init(effects: object) -> bool:
        nonlocal inited
        inited += "InitProducerIdRequest" in str(effects)
        return inited == 2

    exchange.run_until(begin, is_second_init)
    (slot,) = exchange.run(described(exchange.sink, ["orders.0"]))
    assert slot.state == "CompleteCommit"
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_what_an_earlier_release_said_of_an_empty_slot_is_no_loss(version: int) -> None:
    exchange = Exchange(version)
    found, _ = exchange.tasks(1)
    assert found.decision is None
    exchange.run(two_phase.plan(exchange.sink))
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_a_driver_that_is_overtaken_while_it_looks_is_fenced(version: int) -> None:
    exchange = written(version, 2)
    exchange.run(two_phase.plan(exchange.sink))
    late = two_phase.plan(exchange.sink)
    waiting = exchange.run_until(late, lambda effects: "DescribeTransactions" in str(effects))
    exchange.micro_batch(2, 2)
    with pytest.raises(DriverFenced):
        exchange.run(late, waiting)


@BOTH_VERSIONS
def test_a_leader_that_knows_later_ids_than_the_coordinator_stops_the_plan(version: int) -> None:
    exchange = written(version, 2)
    exchange.kafka.roll_back_to_mark()
    found = exchange.run(two_phase.plan(exchange.sink))
    assert found.decision is not None and found.decision.micro_batch_id == 0
    with pytest.raises(StateWentBack) as raised:
        exchange.run(two_phase.end_what_hangs(exchange.sink, found, exchange.touched(2)))
    assert (raised.value.topic, raised.value.slots) == (TRANSACTIONS, (0, 1))
    assert all("leader" in each for each in raised.value.found)
    exchange.run(two_phase.end_what_hangs(exchange.sink, found, exchange.touched(2), allow_lost_state=True))


@BOTH_VERSIONS
def test_ids_that_a_coordinator_gives_out_again_are_not_used(version: int) -> None:
    exchange = written(version, 1)
    decision = exchange.run(two_phase.plan(exchange.sink)).decision
    assert decision is not None
    exchange.kafka.roll_transactions_back(ALL)
    found = exchange.run(two_phase.plan(exchange.sink))
    if found.generation.producer_id == decision.generation.producer_id:
        assert found.generation.producer_epoch > decision.generation.producer_epoch
    begun = exchange.run(two_phase.begin(exchange.sink, found, slot=0, micro_batch_id=1, query_id="q"))
    pinned = decision.pinned[0]
    assert pinned is not None
    assert begun.ids.producer_id != pinned.producer_id or begun.ids.producer_epoch > pinned.producer_epoch


@BOTH_VERSIONS
def test_a_coordinator_that_went_back_by_an_attempt_gives_out_ids_of_the_decision(version: int) -> None:
    exchange = written(version, 2)
    exchange.kafka.roll_transactions_back_to_mark()
    found = exchange.run(two_phase.plan(exchange.sink))
    assert found.decision is not None and found.decision.micro_batch_id == 1
    assert found.generation.producer_epoch > found.decision.generation.producer_epoch
    for slot, pinned in enumerate(found.decision.pinned):
        begun = exchange.run(two_phase.begin(exchange.sink, found, slot=slot, micro_batch_id=1, query_id="q"))
        assert pinned is not None and begun.ids.producer_epoch > pinned.producer_epoch
        assert begun.visible is not None


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
