"""Slots that rest: a task without rows needs no transaction and no marker, once its slot has committed one."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

import apis
from exchange import BOTH_VERSIONS, GENERATION, SINK, Exchange, facts, outcome, said_of
from kafka_sink import errors
from kafka_sink.commit import attempt, ending, open_transactions, planning
from kafka_sink.commit.handover import Facts, SlotPrepared
from kafka_sink.commit.markers import (
    METADATA_MAX_CHARACTERS,
    MOST_RESTING_SLOTS,
    NOTHING_COMMITTED,
    Decision,
    Ids,
    Marker,
    digest_of,
)
from kafka_sink.commit.requests import ToCoordinator

NO_ROWS = "0:0"


def rested(exchange: Exchange, found: Facts, slot: int) -> SlotPrepared:
    """What a task without rows sends to the commit."""
    ids = found.resting_ids(slot, exchange.sink.transaction_version)
    assert ids is not None
    return SlotPrepared(slot, ids, "q", NO_ROWS, visible=None, rests=True)


def tasks(exchange: Exchange, found: Facts, micro_batch_id: int, *with_rows: int) -> list[SlotPrepared]:
    """Of three slots those without rows rest."""
    return [
        exchange.task(found, micro_batch_id, slot) if slot in with_rows else rested(exchange, found, slot)
        for slot in range(3)
    ]


def micro_batch(exchange: Exchange, micro_batch_id: int, *with_rows: int) -> None:
    found = exchange.run(planning.plan(exchange.sink))
    exchange.asked.clear()
    exchange.commit(found, tasks(exchange, found, micro_batch_id, *with_rows), micro_batch_id)


def lists_as_open(exchange: Exchange, times: int, then: Callable[[], None] = lambda: None) -> None:
    """The coordinator of slot 1 lists its last commit as open, and describes it so the first times."""
    name, ids = exchange.sink.names.slot(1), exchange.decision().pinned[1]
    assert ids is not None
    left = iter([said_of(name, ids, "Ongoing")] * times)
    listed = apis.ListTransactionsResponse(0, 0, (apis.ListedTransaction(name, ids.producer_id, "Ongoing"),))

    def answer(request: object) -> object:
        if isinstance(request, apis.ListTransactionsRequest):
            return listed
        if request == apis.DescribeTransactionsRequest((name,)):
            if (stale := next(left, None)) is None:
                then()
            return stale
        return None

    exchange.answer = answer


def after_a_rest(version: int = 2) -> Exchange:
    """Micro-batch 0 had rows in all three slots, micro-batch 1 in slot 0 alone."""
    exchange = Exchange(version)
    micro_batch(exchange, 0, 0, 1, 2)
    micro_batch(exchange, 1, 0)
    return exchange


@BOTH_VERSIONS
def test_a_slot_that_rests_costs_no_request_of_its_own(version: int) -> None:
    exchange = Exchange(version)
    micro_batch(exchange, 0, 0, 1, 2)
    before = exchange.decision()
    micro_batch(exchange, 1, 0)
    # Of slot 0 and of the driver; one list of open transactions.
    one = {"InitProducerId": 1, "EndTxn": 2, "TxnOffsetCommit": 2, "OffsetFetch": 1, "ListTransactions": 1}
    assert {api: count for api, count in exchange.asked.items() if api in one} == one
    assert exchange.kafka.visible == ["0/0", "0/1", "0/2", "1/0"]
    assert (exchange.decision().resting, exchange.decision().pinned[1:]) == ({1, 2}, before.pinned[1:])
    exchange.asked.clear()
    found = exchange.run(planning.plan(exchange.sink))
    assert (found.missing, found.visible.keys(), found.awake) == ([], {0, 1, 2}, ())
    assert {exchange.asked[api] for api in ("EndTxn", "TxnOffsetCommit", "OffsetCommit")} == {0}


@BOTH_VERSIONS
def test_a_slot_goes_on_after_a_rest_by_what_the_plan_has_read(version: int) -> None:
    exchange = after_a_rest(version)
    found = exchange.run(planning.plan(exchange.sink))
    exchange.asked.clear()
    exchange.run(exchange.beginning(found, slot=1, micro_batch_id=2))
    assert exchange.asked == {"DescribeTransactions": 1, "InitProducerId": 1}
    micro_batch(exchange, 2, 0, 1)
    micro_batch(exchange, 3, 0, 1, 2)
    assert exchange.kafka.visible[4:] == ["2/0", "2/1", "3/0", "3/1", "3/2"]


def without_rows(exchange: Exchange, found: Facts, micro_batch_id: int, slot: int) -> SlotPrepared:
    """A task that rests if its slot may, and otherwise writes a marker alone."""
    if found.resting_ids(slot, exchange.sink.transaction_version) is not None:
        return rested(exchange, found, slot)
    begun = exchange.run(exchange.beginning(found, slot, micro_batch_id))
    exchange.run(attempt.prepare(exchange.sink, begun, Marker(micro_batch_id, "q", NO_ROWS)))
    return SlotPrepared(slot, begun.ids, "q", NO_ROWS, begun.visible)


@BOTH_VERSIONS
def test_a_lost_decision_shows_though_its_rows_are_in_a_slot_that_no_other_names(version: int) -> None:
    exchange = Exchange(version)
    exchange.kafka.remember()
    exchange.micro_batch(2, 0)
    found = exchange.run(planning.plan(exchange.sink))
    exchange.kafka.mark()
    done = [without_rows(exchange, found, 1, slot) for slot in (0, 1)]
    exchange.commit(found, [*done, exchange.task(found, 1, 2)], 1)
    assert exchange.kafka.visible == ["0/0", "0/1", "1/2"]
    exchange.kafka.roll_offsets_back_to_mark()
    with pytest.raises(errors.StateWentBack) as raised:
        exchange.run(planning.plan(exchange.sink))
    assert raised.value.slots == (0,)


def test_slots_that_may_rest() -> None:
    found = facts(4, {0: "a", 1: "b"}, slots=3)
    assert [found.resting_ids(slot, 2) for slot in range(4)] == [None, Ids(1, 1), None, None]
    # Before the first decision, after an upgrade of the brokers, and where an open transaction must be ended.
    assert Facts(GENERATION, None, {}).resting_ids(1, 2) is None
    assert found.resting_ids(1, 1) is None
    assert replace(found, awake=(1,)).resting_ids(1, 2) is None
    # Rows that were visible before their decision: which ids committed them is not known.
    assert found.decision is not None
    before = replace(found, decision=replace(found.decision, pinned=(Ids(1, 1), None, Ids(1, 1))))
    assert before.resting_ids(1, 2) is None
    of_a_rest = replace(found, decision=replace(found.decision, resting=frozenset({2})))
    assert of_a_rest.resting_ids(2, 2) == Ids(1, 1)


def test_a_slot_that_rested_has_no_rows_in_a_replay_once_others_are_visible() -> None:
    decision = Decision(
        5, "q", GENERATION, 2, 0, (Ids(1, 1),) * 3, digests=tuple(map(digest_of, ("a", "b", NO_ROWS))),
        resting=frozenset({2}),
    )  # fmt: skip

    def replayed(markers: dict[int, Marker], *fingerprints: str) -> object:
        again = [SlotPrepared(slot, Ids(slot, 0), "q", text, visible=None) for slot, text in enumerate(fingerprints)]
        return outcome(Facts(GENERATION, decision, markers), again, 5)

    first, second = Marker(5, "q", "a"), Marker(5, "q", "b")
    assert replayed({0: first, 1: second}, "a", "b", NO_ROWS) is None
    assert replayed({0: first, 1: second}, "a", "b", "c") is errors.NonDeterministicReplay
    assert replayed({0: first}, "a", "b", "c") is errors.TornBatch
    # Nothing is visible: any rows may replace it.
    assert replayed({}, "x", "y", "z") is None
    assert Facts(GENERATION, decision, {0: first}).missing == [1]


@BOTH_VERSIONS
def test_rows_that_another_attempt_of_a_slot_found_are_not_left_open(version: int) -> None:
    exchange = after_a_rest(version)
    found = exchange.run(planning.plan(exchange.sink))
    exchange.task(found, 2, 1)
    done = tasks(exchange, found, 2, 0)
    with pytest.raises(errors.AttemptReplaced) as raised:
        exchange.commit(found, done, 2)
    assert raised.value.transactional_id == "orders.1"
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.kafka.holding_back() == []
    # Where another run has begun, its transactions are none of this run's business.
    other = exchange.run(planning.plan(exchange.sink))
    exchange.task(other, 2, 1)
    with pytest.raises(errors.DriverFenced):
        exchange.commit(found, done, 2)
    assert exchange.kafka.visible == ["0/0", "0/1", "0/2", "1/0"]


@BOTH_VERSIONS
def test_an_open_transaction_under_ids_that_have_committed_keeps_its_slot_awake(version: int) -> None:
    """The coordinator lost the end of the commit. Only InitProducerId ends that transaction."""
    exchange = Exchange(version)
    exchange.kafka.remember()
    micro_batch(exchange, 0, 0, 1, 2)
    lists_as_open(exchange, 1_000)
    found = exchange.run(planning.plan(exchange.sink))
    assert (found.awake, found.resting_ids(1, version), found.resting_ids(2, version) is None) == ((1,), None, False)


@BOTH_VERSIONS
def test_while_a_stale_coordinator_of_a_resting_slot_is_waited_for_another_may_time_out(version: int) -> None:
    """It still lists the commit before the rest as open."""
    exchange = after_a_rest(version)
    found = exchange.run(planning.plan(exchange.sink))
    done = tasks(exchange, found, 2, 0)
    lists_as_open(exchange, 3, then=lambda: exchange.kafka.time_out("orders.0"))
    exchange.asked.clear()
    with pytest.raises(errors.TransactionTimedOut) as raised:
        exchange.commit(found, done, 2)
    assert raised.value.transactional_id == "orders.0"
    assert exchange.asked["EndTxn"] == 0


def test_a_transaction_grows_older_while_a_resting_slots_coordinator_is_waited_for() -> None:
    """55 s are left to it."""
    for age_ms, is_in_time in ((54_986, True), (54_987, False)):
        exchange = after_a_rest()
        found = exchange.run(planning.plan(exchange.sink))
        done = tasks(exchange, found, 2, 0)
        # 2, 4 and 8 ms.
        lists_as_open(exchange, 3)
        with contextlib.nullcontext() if is_in_time else pytest.raises(errors.TransactionTimedOut):
            exchange.commit(found, done, 2, open_ms=age_ms)


def test_what_is_open_under_the_ids_of_a_slot_that_rests_is_not_decided_and_aborted_by_hand() -> None:
    """A late request of version 1 began it. A repair commits nothing there, so an abort must not wait for one."""
    exchange = after_a_rest(1)
    name, ids = exchange.sink.names.slot(1), exchange.decision().pinned[1]
    assert ids is not None
    late = apis.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=ids.producer_id, producer_epoch=ids.producer_epoch, group_id=name
    )
    exchange.execute(ToCoordinator(apis.CoordinatorKind.TRANSACTION, name, late))
    seen = exchange.run(open_transactions.look("orders.", ()))
    (is_open,) = exchange.run(open_transactions.describe_sink(exchange.sink, seen)).undecided
    assert (is_open.slot, is_open.ids) == (1, ids)
    (aborted,) = exchange.run(open_transactions.abort_manually(exchange.sink))
    assert (aborted.transactional_id, exchange.run(ending.list_open(exchange.sink))) == (name, [])
    micro_batch(exchange, 2, 0, 1)
    assert exchange.kafka.visible[4:] == ["2/0", "2/1"]


def test_the_list_of_slots_that_rest_fits_the_text_of_a_group() -> None:
    slots = 20_000
    decision = replace(decided(), pinned=(Ids(2**40, 32_000),) * slots, digests=(digest_of("a"),) * slots)
    found = Facts(GENERATION, decision, {slot: decision.marker_of(slot) for slot in range(slots)})
    resting = frozenset(slot for slot in range(slots) if found.resting_ids(slot, 2) is not None)
    assert resting == set(range(1, MOST_RESTING_SLOTS))
    rests = replace(decision, resting=resting)
    texts = rests.texts()
    assert max(map(len, texts)) <= METADATA_MAX_CHARACTERS
    assert Decision.read([("g", 7, text) for text in texts]) == rests


def test_a_slot_whose_marker_expired_while_it_rested_says_that_nothing_was_committed() -> None:
    """Then a marker that is missing later was lost, as that of any slot."""
    exchange = after_a_rest()
    exchange.kafka.forget_offsets([exchange.sink.names.slot(2)])
    found = exchange.run(planning.plan(exchange.sink))
    assert (found.markers[2], found.missing) == (NOTHING_COMMITTED, [])
    micro_batch(exchange, 2, 0, 2)
    assert exchange.kafka.visible[4:] == ["2/0", "2/2"]


def test_the_total_of_a_version_leaves_slots_out_that_rested() -> None:
    exchange = after_a_rest()
    found = exchange.run(planning.plan(exchange.sink))
    steps = planning.check_written(exchange.sink, found, [NO_ROWS, "1/0", NO_ROWS], total=_rows, touched=())
    exchange.run(steps)
    with pytest.raises(errors.NonDeterministicReplay):
        exchange.run(planning.check_written(exchange.sink, found, ["x"] * 3, total=_rows, touched=()))


def _rows(fingerprints: object) -> list[str]:
    assert hasattr(fingerprints, "__iter__")
    return sorted(each for each in fingerprints if each != NO_ROWS)


PINS = (Ids(1, 2), Ids(3, 4), None, Ids(5, 6), Ids(7, 8))


def decided(*resting: int) -> Decision:
    return Decision(7, "q", Ids(4000, 3), 2, 0, PINS, ("a",), {}, tuple(map(digest_of, "abcde")), frozenset(resting))


def test_a_decision_says_which_slots_rested_and_code_without_rests_takes_it_for_a_topic() -> None:
    (text,) = decided(1, 4).texts()
    # No broker has a topic of this name (Topic.LEGAL_CHARS). The slots' pinned ids have committed.
    assert text.endswith(",@=12,@a")
    assert Decision.read([("g", 7, text)]) == decided(1, 4)
    assert Decision.read([("g", 7, text) for text in decided().texts()]) == decided()


@pytest.mark.parametrize("wrong", ["@=0", "@=", "@=04", "@=+4", "@=4_0", "@=F", "@=20", "@=4", "@=2,@=2"])
def test_a_list_of_rests_of_somebody_else_is_not_guessed_at(wrong: str) -> None:
    """Beyond the slots, of a slot that pins nothing, or not as it is written."""
    (text,) = decided(1).texts()
    with pytest.raises(errors.UnreadableState):
        Decision.read([("g", 7, text.replace("@=2", wrong))])


def test_the_sink_of_a_batch_write_has_no_decision_and_no_rest() -> None:
    exchange = Exchange(is_new=True, comes_again=False)
    found = exchange.run(planning.plan(exchange.sink))
    assert found.resting_ids(1, SINK.transaction_version) is None
