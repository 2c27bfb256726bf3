"""The decisions of the two-phase commit, one by one; `verification/model` runs all of it through every crash."""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import apis
from exchange import (
    BOTH_VERSIONS,
    FENCES,
    GENERATION,
    NOTHING,
    REFUSALS,
    SINK,
    WHOLE,
    Exchange,
    after_commit,
    after_decision,
    after_tasks,
    attempt_fails,
    ends_both,
    facts,
    instead,
    is_end_of,
    refused,
    said_of,
)
from kafka_sink import errors
from kafka_sink.commit import ending, planning
from kafka_sink.commit.handover import Facts, SlotPrepared
from kafka_sink.commit.markers import FORGOTTEN, Decision, Ids, Marker, Names, digest_of
from kafka_sink.commit.replay import check_decision
from kafka_sink.commit.requests import PAUSES_MS, Effect, ToCoordinator, ToEveryBroker, described
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from model.logical_kafka import Produce

OF_BATCHES = replace(SINK, is_versioned=True)


def this_generation(request: Any) -> Any:
    """The driver's id is still what `GENERATION` says."""
    assert request == apis.DescribeTransactionsRequest(("orders.driver",))
    return said_of("orders.driver", GENERATION)


def as_version(error: errors.ExactlyOnceError) -> str:
    """What the writer of a version tells."""
    return str(error.in_transaction(write_kind=errors.WriteKind.VERSION))


def standing(found: Facts, version: int, *, allowed: bool = False) -> object:
    """Whether the version is written, or the error that says why it may not be."""
    try:
        return Exchange(answer=this_generation).run(
            planning.is_written(OF_BATCHES, found, query_id="q", version=version, allow_lost_state=allowed)
        )
    except errors.ExactlyOnceError as error:
        assert "version" in as_version(error)
        return type(error)


LOST = replace(facts(5, {0: "a"}), unproved=(1,))


@pytest.mark.parametrize(("found", "version", "expected"), [
    # the first, and a later one of which nothing is known
    (NOTHING, 0, False), (NOTHING, 5, errors.StateExpired),
    # a stream has the same name
    (facts(9, WHOLE, query_id="another"), 0, errors.StateExpired),
    (facts(9, WHOLE, query_id="another"), 5, errors.StateExpired),
    # numbers may be left out
    (facts(4, WHOLE), 5, False), (facts(4, WHOLE), 2**62, False),
    # but none that is not whole is passed
    (facts(4, {0: "a"}), 5, errors.CommittedDataMissing), (facts(4, {}), 9, errors.CommittedDataMissing),
    # the last one again: whole, in part, not at all
    (facts(5, WHOLE), 5, True), (facts(5, {0: "a"}), 5, False), (facts(5, {}), 5, False),
    # one that was passed, whatever became of the last
    (facts(5, WHOLE), 4, True), (facts(5, WHOLE), 0, True), (facts(5, {0: "a"}), 4, True),
    # markers that are lost prove nothing by being gone
    (LOST, 4, True), (LOST, 5, errors.MarkersLost), (LOST, 6, errors.MarkersLost),
])  # fmt: skip
def test_a_version_is_written_once_and_none_that_is_torn_is_passed(
    found: Facts, version: int, expected: object
) -> None:
    assert standing(found, version) is expected
    # Lost state can be allowed, but never to write again what was passed.
    assert standing(found, version, allowed=True) is (expected is True)


def test_a_torn_version_is_named_with_what_is_missing() -> None:
    torn = facts(4, {1: "b"}, slots=3)
    steps = planning.is_written(OF_BATCHES, torn, query_id="q", version=9, allow_lost_state=False)
    with pytest.raises(errors.CommittedDataMissing) as raised:
        Exchange(answer=this_generation).run(steps)
    assert "Run version 4 again" in as_version(raised.value)
    assert (raised.value.micro_batch_id, raised.value.visible, raised.value.missing) == (4, (1,), (0, 2))


@pytest.mark.parametrize(("found", "same", "others", "error"), [
    (facts(5, WHOLE), [["a", "b"], ["b", "a"], ["", "ab"], ["ba", "", ""]], [["a"], ["a", "c"], ["a", "b", "b"]],
     errors.NonDeterministicReplay),
    # of a digest other slots' rows cannot be told
    (facts(5, {0: "a", 1: digest_of("b")}), [["a", "b"]], [["b", "a"], ["a"], ["a", "b", ""], ["a", "x"]],
     errors.FingerprintsLost),
    (facts(5, {0: "a", 1: FORGOTTEN}), [], [["a", "b"]], errors.FingerprintsLost),
])  # fmt: skip
def test_a_version_is_compared_as_a_whole_or_by_slots_if_markers_were_lost(
    found: Facts, same: list[list[str]], others: list[list[str]], error: type[Exception]
) -> None:
    def check(counted: list[str], allowed: bool = False) -> None:
        steps = planning.check_written(
            OF_BATCHES,
            found,
            counted,
            total=lambda them: "".join(sorted("".join(them))),
            touched=(),
            allow_lost_state=allowed,
        )
        Exchange(answer=this_generation).run(steps)

    for counted in same:
        check(counted)
    for counted in others:
        with pytest.raises(error) as raised:
            check(counted)
        if isinstance(raised.value, errors.FingerprintsLost):
            assert raised.value.slots == (1,)
            check(counted, allowed=True)


def test_a_write_overtaken_while_it_plans_does_not_take_the_others_rows_for_its_own() -> None:
    exchange = Exchange(is_versioned=True)
    exchange.micro_batch(2)
    late = planning.plan(exchange.sink)
    looking = exchange.run_until(late, lambda effects: getattr(effects[0].request, "group_ids", ()) == ("orders.0",))
    exchange.micro_batch(2, 7)
    found = exchange.run(late, looking)
    assert found.decision is not None and found.decision.micro_batch_id == 0
    assert found.missing == [0, 1]
    with pytest.raises(errors.DriverFenced):
        exchange.run(planning.is_written(exchange.sink, found, query_id="q", version=9, allow_lost_state=False))


def test_a_version_below_a_visible_one_is_not_written_though_the_decision_is_gone() -> None:
    exchange = Exchange(is_versioned=True)
    exchange.micro_batch(2)
    exchange.micro_batch(2, 7)
    exchange.kafka.forget_offsets(["orders.decision"])
    with pytest.raises(errors.CheckpointBehind) as raised:
        exchange.micro_batch(2, 5)
    assert "Go on with a version above 7" in as_version(raised.value)


@pytest.mark.parametrize("slots", [1, 2, 8])
@BOTH_VERSIONS
def test_the_requests_of_a_micro_batch_are_seven_or_eight_a_slot_and_as_many_more(version: int, slots: int) -> None:
    exchange = after_commit(slots, version)
    exchange.asked.clear()
    found, done = exchange.tasks(slots, 1)
    acknowledged = [replace(each, first_offsets={written: exchange.base_offsets[written]}) for each in done
                    for written in each.partitions]  # fmt: skip
    exchange.commit(found, acknowledged, 1)
    expected = {
        "InitProducerId": slots + 1,
        "EndTxn": slots + 1,
        "TxnOffsetCommit": slots + 1,
        # Twice by plan and commit. On version 1 once by tasks.
        "OffsetFetch": 2 * slots + 1,
        "DescribeTransactions": 2 * slots,
        # To each broker, and two to each leader of partitions with new rows.
        "ListTransactions": 1,
        "DescribeProducers": 2,
    }
    if version == 1:
        expected["AddOffsetsToTxn"] = slots + 1
    assert exchange.asked == expected
    assert sum(expected.values()) == (8 * slots + 8 if version == 1 else 7 * slots + 7)


def test_a_decision_says_which_topics_those_were() -> None:
    exchange, found, done = after_tasks(2)
    written = [replace(done[0], partitions=(("u", 0), ("t", 1))), replace(done[1], partitions=())]
    # The tasks asked for more, and brokers have no id for one of them.
    topic_ids = {"t": str(uuid.UUID(int=1)), "u": None, "v": str(uuid.UUID(int=2))}
    exchange.run(exchange.committing(found, written, topic_ids=topic_ids))
    decided = exchange.decision()
    assert (decided.topics, decided.topic_ids) == (("t", "u"), {"t": str(uuid.UUID(int=1))})
    exchange.kafka.forget_offsets(["orders.decision"])
    found, again = exchange.tasks(2)
    # Of visible slots all that they can be in, of which the plan after this one asks the leaders.
    assert all(each.visible for each in again)
    exchange.commit(found, [replace(each, partitions=(("u", 0), ("u", 1))) for each in again])
    assert exchange.decision().topics == ("u",)


@pytest.mark.parametrize(("query_id", "decisions"), [("q", 0), ("another", 1)])
def test_a_replay_of_what_is_visible_is_decided_again_after_another_querys_decision(
    query_id: str, decisions: int
) -> None:
    exchange = after_commit(2)
    found, done = exchange.tasks(2)
    assert found.decision is not None
    exchange.asked.clear()
    exchange.commit(replace(found, decision=replace(found.decision, query_id=query_id)), done)
    assert exchange.asked["EndTxn"] == exchange.asked["TxnOffsetCommit"] == decisions
    assert exchange.kafka.visible == ["0/0", "0/1"]


def test_a_replay_of_what_is_visible_whole_may_have_further_slots_only_without_rows() -> None:
    exchange = after_commit(2)
    found, done = exchange.tasks(3)
    with pytest.raises(errors.NonDeterministicReplay) as raised:
        exchange.commit(found, done)
    assert raised.value.slots == (2,)
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.kafka.visible == ["0/0", "0/1"]
    check_decision(
        exchange.sink, found, [*done[:2], replace(done[2], partitions=())], micro_batch_id=0,
        allow_lost_state=False,
    )  # fmt: skip


def test_a_new_query_under_an_old_name_is_not_taken_for_the_old_one() -> None:
    exchange = after_commit(2)
    found = exchange.run(planning.plan(exchange.sink))
    exchange.commit(found, [exchange.task(found, 0, slot, query_id="another") for slot in range(2)])
    assert exchange.kafka.visible == ["0/0", "0/1", "0/0", "0/1"]


def test_a_plan_finishes_a_decision_in_the_version_that_its_transactions_have() -> None:
    exchange = after_decision(2, 1)
    exchange.sink = replace(exchange.sink, transaction_version=2)
    exchange.requests.clear()
    exchange.run(planning.plan(exchange.sink))
    ended = [request for request in exchange.requests if isinstance(request, apis.EndTxnRequest)]
    assert [(request.committed, request.transaction_version) for request in ended] == [(True, 1)] * 2


def test_a_task_looks_for_the_marker_of_a_slot_that_no_decision_names() -> None:
    exchange = after_commit(1)
    exchange.asked.clear()
    found, done = exchange.tasks(2)
    assert [each.visible is None for each in done] == [False, True]
    assert exchange.asked["OffsetFetch"] == 1 + 1 + 1
    exchange.kafka.forget_offsets([exchange.sink.names.decision(0)])
    found, done = exchange.tasks(1)
    assert found.decision is None
    assert [each.visible is None for each in done] == [False]


@BOTH_VERSIONS
def test_a_slot_that_was_visible_earlier_is_known_whoever_answers_first(version: int) -> None:
    exchange = after_commit(2, version)
    found = exchange.run(planning.plan(exchange.sink))
    assert found.decision is not None
    found = replace(found, decision=replace(found.decision, pinned=(None, *found.decision.pinned[1:])))
    # Of before its marker.
    exchange.kafka.stand_still(changes=2, reads=2)
    assert exchange.run(exchange.beginning(found)).visible == Marker(0, "q", "0/0")


def test_a_slot_whose_id_has_expired_is_known_by_its_marker() -> None:
    """Its next epoch is the first again. Other rows of it are refused, though the decision is gone."""
    exchange = after_commit(1)
    exchange.kafka.forget_offsets([exchange.sink.names.decision(0)])
    found = exchange.run(planning.plan(exchange.sink))
    exchange.asked.clear()
    exchange.answer = instead(apis.InitProducerIdRequest, apis.InitProducerIdResponse(0, 0, 9_000, 0), "orders.0")
    assert exchange.run(exchange.beginning(found)).visible == Marker(0, "q", "0/0")
    assert exchange.asked["OffsetFetch"] == 1
    exchange.answer = lambda request: None
    found, (done,) = exchange.tasks(1)
    assert (found.decision, done.visible) == (None, Marker(0, "q", "0/0"))
    with pytest.raises(errors.NonDeterministicReplay):
        exchange.commit(found, [replace(done, fingerprint="others")])


@pytest.mark.parametrize("decided_before", [False, True])
def test_an_attempt_of_another_run_touches_nothing(decided_before: bool) -> None:
    exchange = Exchange()
    if decided_before:
        exchange.micro_batch(1)
    found, _ = exchange.tasks(1, int(decided_before))
    exchange.run(planning.plan(exchange.sink))
    exchange.asked.clear()
    with pytest.raises(errors.DriverFenced) as raised:
        exchange.task(found, 0, 0)
    assert raised.value.generation == str(found.generation)
    assert exchange.asked == {"DescribeTransactions": 1}


def inits(effects: Sequence[Effect]) -> bool:
    return isinstance(effects[0], ToCoordinator) and isinstance(effects[0].request, apis.InitProducerIdRequest)


@BOTH_VERSIONS
@pytest.mark.parametrize("micro_batch_id", [0, 1])
def test_an_attempt_that_stood_still_before_its_init_looks_again(version: int, micro_batch_id: int) -> None:
    """What it did not see may be on a leader that did not hear of its commit, where its own rows would be in front of
    an abort."""
    exchange = Exchange(version)
    for number in range(micro_batch_id):
        exchange.micro_batch(1, number)
    found = exchange.run(planning.plan(exchange.sink))
    late = exchange.beginning(found, 0, micro_batch_id)
    effects = exchange.run_until(late, inits)
    exchange.commit(found, [exchange.task(found, micro_batch_id, 0)], micro_batch_id)
    if version == 1:
        # The driver has still the same ids.
        assert exchange.run(late, effects).visible == Marker(micro_batch_id, "q", f"{micro_batch_id}/0")
    else:
        with pytest.raises(errors.DriverFenced):
            exchange.run(late, effects)


@pytest.mark.parametrize(("version", "how"), [(1, "InitProducerId"), (2, "EndTxn")])
def test_a_plan_ends_what_no_decision_names_in_the_way_of_its_version(version: int, how: str) -> None:
    exchange = Exchange(version)
    exchange.tasks(3)
    exchange.asked.clear()
    exchange.run(planning.plan(exchange.sink))
    assert exchange.kafka.holding_back() == []
    # The driver's own is one of the Inits.
    assert exchange.asked[how] == (4 if version == 1 else 3)
    assert sum(exchange.asked[api] for api in ("InitProducerId", "EndTxn")) == 4


def test_a_plan_leaves_another_sinks_transactions_alone() -> None:
    exchange = Exchange()
    mine, exchange.sink = exchange.sink, replace(exchange.sink, names=Names("orders.2024", "pykafka-commits"))
    exchange.tasks(1)
    exchange.sink = mine
    exchange.run(planning.plan(mine))
    assert exchange.kafka.holding_back() == ["orders.2024.0"]


def test_a_plan_that_is_overtaken_while_it_looks_aborts_nothing() -> None:
    exchange = Exchange()
    exchange.tasks(1)
    late = planning.plan(exchange.sink)
    listing = exchange.run_until(late, lambda effects: isinstance(effects[-1], ToEveryBroker))
    exchange.tasks(1)
    with pytest.raises(errors.DriverFenced):
        exchange.run(late, listing)
    assert exchange.kafka.holding_back() == ["orders.0"]


@BOTH_VERSIONS
def test_what_others_decided_and_aborted_is_not_shown_because_a_leader_has_it_open(version: int) -> None:
    exchange = after_decision(1, version)
    exchange.kafka.lose_marker(0, committed=False)
    exchange.kafka.abort_manually("orders.0")
    found = exchange.run(planning.plan(exchange.sink))
    assert found.missing == [0]
    exchange.run(planning.end_what_hangs(exchange.sink, found, [("t", 0)]))
    assert (exchange.asked["WriteTxnMarkers"], exchange.kafka.visible) == (0, [])


@pytest.mark.parametrize(("slot", "ids", "is_decided"), [
    (0, Ids(7, 5), True), (0, Ids(7, 4), True),
    (0, Ids(7, 6), False),  # of the slot's next run
    (0, Ids(8, 5), False),  # with an id of its own, as all epochs of the other are spent or it has expired
    (1, Ids(7, 5), False),  # was visible before
    (2, Ids(7, 5), False),  # of more slots than there were
])  # fmt: skip
def test_a_decision_names_what_a_slot_had_open(slot: int, ids: Ids, is_decided: bool) -> None:
    decision = Decision(3, "q", GENERATION, 2, 0, (Ids(7, 5), None))
    (is_open,) = said_of(SINK.names.slot(slot), ids, "Ongoing").transactions
    assert ending.is_decided(SINK, decision, is_open) is is_decided


@pytest.mark.parametrize(("epochs_later", "error"), [(1, errors.TransactionTimedOut), (2, errors.DriverFenced)])
def test_a_driver_whose_transaction_was_aborted_is_told_by_whom(epochs_later: int, error: type[Exception]) -> None:
    """By the brokers' timeout it is one epoch later; by another run's Init and its own abort more."""
    exchange, found, done = after_tasks(1)
    ids = Ids(found.generation.producer_id, found.generation.producer_epoch + epochs_later)
    answers: dict[type, Any] = {
        apis.TxnOffsetCommitRequest: apis.ErrorResponse(0, ErrorCode.INVALID_PRODUCER_EPOCH),
        apis.DescribeTransactionsRequest: said_of("orders.driver", ids, "CompleteAbort"),
    }
    exchange.answer = lambda request: (
        answers.get(type(request)) if "driver" in str(getattr(request, "transactional_ids", request)) else None
    )
    with pytest.raises(error):
        exchange.commit(found, done)
    assert exchange.kafka.visible == []


@pytest.mark.parametrize(("producer_id", "epochs_before", "state", "code"), [
    (0, 1, "CompleteCommit", 0), (1, 0, "Ongoing", 0), (0, 0, "Empty", 0), (None, 0, "", 105),
])  # fmt: skip
def test_a_slot_that_a_coordinator_describes_as_it_was_before_is_asked_about_again(
    producer_id: int | None, epochs_before: int, state: str, code: int
) -> None:
    exchange, found, done = after_tasks(1)
    ids = done[0].ids
    before = None if producer_id is None else Ids(ids.producer_id + producer_id, ids.producer_epoch - epochs_before)
    exchange.answer = told_first(said_of("orders.0", before, state, code), 2)
    exchange.pauses_ms.clear()
    exchange.commit(found, done)
    assert exchange.kafka.visible == ["0/0"]
    assert exchange.pauses_ms == list(PAUSES_MS[:2])


@BOTH_VERSIONS
@pytest.mark.parametrize("older", [0, 1])
def test_a_plan_aborts_nothing_that_the_decision_names_whatever_coordinators_say(version: int, older: int) -> None:
    """A stale coordinator refuses the EndTxn. It or another one describes this or an older transaction as open."""
    exchange = after_commit(1, version)
    exchange.decided(1, 1)
    (pinned,) = exchange.decision().pinned
    assert pinned is not None
    ids = Ids(pinned.producer_id, pinned.producer_epoch - older)
    answers: dict[type, Any] = {
        apis.EndTxnRequest: apis.EndTxnResponse(0, ErrorCode.PRODUCER_FENCED, -1, -1),
        apis.DescribeTransactionsRequest: said_of("orders.0", ids, "Ongoing"),
        apis.ListTransactionsRequest: [
            apis.ListTransactionsResponse(0, 0, (apis.ListedTransaction("orders.0", ids.producer_id, "Ongoing"),))
        ],
    }
    exchange.answer = lambda request: (
        None if getattr(request, "transactional_ids", ()) == ("orders.driver",) else answers.get(type(request))
    )
    exchange.requests.clear()
    # Its marker is about to be replaced for as long as it is open: a client would wait for that.
    with pytest.raises(errors.TransactionRefused, match="UNSTABLE_OFFSET_COMMIT"):
        exchange.run(planning.plan(exchange.sink))
    inits = [each.transactional_id for each in exchange.requests if isinstance(each, apis.InitProducerIdRequest)]
    assert inits == ["orders.driver"]
    assert all(each.committed for each in exchange.requests if isinstance(each, apis.EndTxnRequest))


@BOTH_VERSIONS
@pytest.mark.parametrize("stale", [1, 3])
def test_a_plan_aborts_what_is_listed_as_open_though_a_stale_answer_says_ended(version: int, stale: int) -> None:
    """It knows the last micro-batch, and not the attempt that has begun since. `stale`: its answers."""
    exchange = after_commit(1, version)
    (before,) = exchange.run(described(["orders.0"]))
    assert before.state == "CompleteCommit"
    exchange.tasks(1, 1)
    exchange.answer = told_first(apis.DescribeTransactionsResponse(0, (before,)), stale)
    exchange.run(planning.plan(exchange.sink))
    (after,) = exchange.run(described(["orders.0"]))
    assert after.state != "Ongoing"
    assert exchange.kafka.visible == ["0/0"]


@BOTH_VERSIONS
def test_a_plan_that_is_overtaken_commits_nothing_that_was_begun_since(version: int) -> None:
    exchange = after_decision(1, version)
    late = planning.plan(exchange.sink)
    looking = exchange.run_until(late, lambda effects: isinstance(effects[-1], ToEveryBroker))
    effects = late.send([exchange.execute(effect) for effect in looking])
    # Its markers are not there, and what it does next is to commit them. By then that is done, and more.
    effects = late.send([exchange.execute(effect) for effect in effects])
    found, done = exchange.tasks(1, 1)
    with contextlib.suppress(errors.DriverFenced):
        exchange.run(late, effects)
    assert exchange.kafka.visible == ["0/0"]
    exchange.commit(found, done, 1)
    assert exchange.kafka.visible == ["0/0", "1/0"]


@BOTH_VERSIONS
def test_a_driver_overtaken_between_its_decision_and_its_look_is_told(version: int) -> None:
    exchange, found, done = after_tasks(1, version)

    def overtake(request: Any) -> None:
        if isinstance(request, apis.DescribeTransactionsRequest) and "orders.0" in request.transactional_ids:
            exchange.answer = lambda request: None
            exchange.run(planning.plan(exchange.sink))

    exchange.answer = overtake
    with pytest.raises(errors.DriverFenced):
        exchange.commit(found, done)
    assert exchange.kafka.visible == []


@BOTH_VERSIONS
def test_an_abort_leaves_nothing_open_that_is_undecided(version: int) -> None:
    exchange, found, done = after_tasks(2, version)
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert (exchange.kafka.aborted, exchange.kafka.holding_back()) == (["0/0", "0/1"], [])
    # A task of that run which had not begun yet: its worker may live on for a while.
    with pytest.raises(errors.DriverFenced):
        exchange.task(found, 0, 2)
    with pytest.raises(errors.DriverFenced):
        exchange.commit(found, done)
    assert exchange.kafka.visible == []


@BOTH_VERSIONS
def test_an_abort_commits_what_was_decided(version: int) -> None:
    exchange, found, done = after_tasks(2, version)
    exchange.run_until(exchange.committing(found, done), ends_both)
    assert exchange.kafka.holding_back() == ["orders.0", "orders.1"]
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.kafka.visible == ["0/0", "0/1"]
    assert exchange.kafka.aborted == exchange.kafka.holding_back() == []


def rows_under(ids: Ids) -> Produce:
    return Produce("orders.0", ids.producer_id, ids.producer_epoch, 0, ("late",))


@BOTH_VERSIONS
def test_an_attempt_that_had_begun_when_its_run_was_aborted_opens_nothing_any_more(version: int) -> None:
    exchange = Exchange(version)
    for micro_batch_id in (0, 1):
        found = exchange.run(planning.plan(exchange.sink))
        ids = exchange.run(exchange.beginning(found, 0, micro_batch_id)).ids
        exchange.run(planning.abort(exchange.sink, found.generation))
        assert exchange.kafka.execute(rows_under(ids)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert exchange.kafka.holding_back() == []
        if not micro_batch_id:
            exchange.micro_batch(1)
    assert exchange.kafka.visible == ["0/0"]


@BOTH_VERSIONS
@pytest.mark.parametrize("earlier", [0, 1])
def test_an_attempt_that_writes_its_first_rows_during_the_abort_leaves_nothing_open(version: int, earlier: int) -> None:
    """The abort lists transactions twice. The first list shows the attempt as Empty, the second as Ongoing."""
    exchange = Exchange(version)
    for micro_batch_id in range(earlier):
        exchange.micro_batch(1, micro_batch_id)
    found = exchange.run(planning.plan(exchange.sink))
    rows = rows_under(exchange.run(exchange.beginning(found, 0, earlier)).ids)
    abort = planning.abort(exchange.sink, found.generation)
    is_second = iter([False, True])
    listing = exchange.run_until(abort, lambda effects: isinstance(effects[-1], ToEveryBroker) and next(is_second))
    assert exchange.kafka.execute(rows).error_code == ErrorCode.NONE
    exchange.run(abort, listing)
    assert (exchange.kafka.holding_back(), exchange.kafka.aborted) == ([], ["late"])
    assert exchange.kafka.execute(rows).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@BOTH_VERSIONS
def test_an_abort_that_is_overtaken_fences_no_attempt_of_the_other_run(version: int) -> None:
    exchange = Exchange(version)
    found = exchange.run(planning.plan(exchange.sink))
    exchange.run(exchange.beginning(found))
    late = planning.abort(exchange.sink, found.generation)
    # What is open it lists first, as every plan does.
    lists = iter([False, True])
    listing = exchange.run_until(late, lambda effects: isinstance(effects[-1], ToEveryBroker) and next(lists))
    ids = exchange.run(exchange.beginning(exchange.run(planning.plan(exchange.sink)))).ids
    exchange.run(late, listing)
    assert exchange.kafka.execute(rows_under(ids)).error_code == ErrorCode.NONE


# A barrier is nobody's state.
LOOKING = {apis.DescribeTransactionsRequest, apis.OffsetCommitRequest, apis.OffsetFetchRequest}


@BOTH_VERSIONS
def test_an_abort_touches_nothing_once_another_run_has_begun(version: int) -> None:
    exchange = Exchange(version)
    old, _ = exchange.tasks(1)
    new, done = exchange.tasks(2)
    exchange.requests.clear()
    exchange.run(planning.abort(exchange.sink, old.generation))
    assert {type(request) for request in exchange.requests} == LOOKING
    assert exchange.kafka.holding_back() == ["orders.0", "orders.1"]
    exchange.commit(new, done)
    exchange.requests.clear()
    exchange.run(planning.abort(exchange.sink, old.generation))
    assert {type(request) for request in exchange.requests} == LOOKING


# Told with both numbers.
TOO_LONG = ("orders.driver", ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@pytest.mark.parametrize(("transactional_id", "code"), [
    (name, code) for name in ("orders.driver", "orders.0") for code in (*REFUSALS, *FENCES) if (name, code) != TOO_LONG
])  # fmt: skip
def test_an_init_that_is_refused_or_fenced_says_of_what(transactional_id: str, code: int) -> None:
    exchange = Exchange(answer=instead(apis.InitProducerIdRequest, no_ids(code), transactional_id))
    attempt_fails(exchange, code, "InitProducerId", transactional_id)
    assert exchange.kafka.holding_back() == []


def no_ids(code: int) -> apis.InitProducerIdResponse:
    return apis.InitProducerIdResponse(0, code, -1, -1)


@pytest.mark.parametrize(("settings", "words"), [
    ({"transaction.max.timeout.ms": "30000"}, "'60000'; expected at most the brokers' .*timeout.ms, 30000[.]"),
    ({}, "'60000'; expected at most .*brokers show its value only with the ACL CLUSTER DESCRIBE_CONFIGS[.]"),
])  # fmt: skip
def test_a_timeout_above_the_brokers_is_refused_at_the_start_with_both_numbers(
    settings: dict[str, str], words: str
) -> None:
    exchange = Exchange(answer=instead(apis.InitProducerIdRequest, no_ids(ErrorCode.INVALID_TRANSACTION_TIMEOUT)))
    exchange.settings = settings
    with pytest.raises(errors.InvalidOption, match=words) as raised:
        exchange.run(planning.plan(exchange.sink))
    assert raised.value.option == "kafka.transaction.timeout.ms"
    assert exchange.asked == {"InitProducerId": 1}


@pytest.mark.parametrize(("code", "error"), [
    *((code, errors.TransactionRefused) for code in REFUSALS), *((code, errors.DriverFenced) for code in FENCES),
])  # fmt: skip
def test_a_decision_that_is_refused_or_fenced_decides_nothing(code: int, error: type[errors.ExactlyOnceError]) -> None:
    exchange = Exchange(answer=instead(apis.TxnOffsetCommitRequest, apis.ErrorResponse(0, code), "orders.driver"))
    found, done = exchange.tasks(2)
    with pytest.raises(error) as raised:
        exchange.commit(found, done)
    assert not isinstance(raised.value, errors.TransactionRefused) or raised.value.code == code
    assert exchange.asked["EndTxn"] == 0


def not_ended(code: int) -> apis.EndTxnResponse:
    return apis.EndTxnResponse(0, code, -1, -1)


def time_out_instead(exchange: Exchange, api: Any, answer: Any, transactional_id: str) -> None:
    """The transaction times out when it is to be ended, and that gets this answer."""

    def times_out(request: Any) -> Any:
        if isinstance(request, api) and request.transactional_id == transactional_id:
            exchange.kafka.time_out(transactional_id)
            return answer
        return None

    exchange.answer = times_out


@pytest.mark.parametrize("code", FENCES)
def test_the_decisions_own_end_txn_is_believed_only_when_the_decision_can_be_read(code: int) -> None:
    exchange, found, done = after_tasks(2)
    time_out_instead(exchange, apis.EndTxnRequest, not_ended(code), "orders.driver")
    with pytest.raises(errors.TransactionTimedOut, match=r"'orders\.driver'"):
        exchange.commit(found, done)
    assert (exchange.asked["EndTxn"], exchange.kafka.visible) == (1, [])


def test_a_driver_that_another_has_overtaken_decides_nothing() -> None:
    exchange, found, done = after_tasks(2)
    # As far as another plan can have come: its first request.
    exchange.kafka.abort_manually("orders.driver")
    with pytest.raises(errors.DriverFenced):
        exchange.commit(found, done)
    assert (exchange.asked["EndTxn"], exchange.kafka.visible) == (0, [])


def test_another_drivers_decision_about_the_same_micro_batch_is_not_ones_own() -> None:
    exchange, found, done = after_tasks(1)
    commit = exchange.committing(found, done)
    ending = exchange.run_until(commit, is_end_of("orders.driver"))
    exchange.micro_batch(1)
    with pytest.raises(errors.DriverFenced):
        exchange.run(commit, ending)
    assert exchange.kafka.visible == ["0/0"]


def test_an_end_txn_of_the_decision_that_was_carried_out_counts_whatever_it_answers() -> None:
    exchange, found, done = after_tasks(2)

    def carried_out(request: Any) -> Any:
        if isinstance(request, apis.EndTxnRequest) and request.transactional_id == "orders.driver":
            exchange.kafka.execute(ToCoordinator(apis.CoordinatorKind.TRANSACTION, "orders.driver", request))
            return not_ended(ErrorCode.PRODUCER_FENCED)
        return None

    exchange.answer = carried_out
    exchange.commit(found, done)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@pytest.mark.parametrize("code", REFUSALS)
def test_an_end_txn_of_the_decision_that_is_refused_stops_the_commit(code: int) -> None:
    exchange, found, done = after_tasks(2)
    exchange.answer = instead(apis.EndTxnRequest, not_ended(code), "orders.driver")
    error = refused(exchange, exchange.committing(found, done))
    assert (error.code, error.api, error.transactional_id) == (code, "EndTxn", "orders.driver")


@pytest.mark.parametrize("code", REFUSALS)
def test_an_end_txn_refused_after_the_decision_says_what_is_visible(code: int) -> None:
    exchange, found, done = after_tasks(2)
    exchange.answer = instead(apis.EndTxnRequest, not_ended(code), "orders.1")
    with pytest.raises(errors.CommitOutcomeUnknown, match=error_name(code)) as raised:
        exchange.commit(found, done)
    assert (raised.value.visible, raised.value.missing) == ((0,), (1,))
    assert exchange.kafka.visible == ["0/0"]


@BOTH_VERSIONS
def test_a_commit_that_got_no_answer_aborts_nothing(version: int) -> None:
    exchange, found, done = after_tasks(2, version)
    exchange.answer = instead(apis.EndTxnRequest, not_ended(ErrorCode.REQUEST_TIMED_OUT), "orders.1")
    with pytest.raises(errors.CommitOutcomeUnknown):
        exchange.commit(found, done)
    exchange.requests.clear()
    with pytest.raises(errors.TransactionRefused):
        exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.kafka.holding_back() == ["orders.1"]
    assert all(request.committed for request in exchange.requests if isinstance(request, apis.EndTxnRequest))
    inited = [each.transactional_id for each in exchange.requests if isinstance(each, apis.InitProducerIdRequest)]
    assert set(inited) <= {"orders.driver"}


@pytest.mark.parametrize("code", [ErrorCode.NONE, *FENCES])
def test_the_marker_decides_whatever_an_end_txn_answers(code: int) -> None:
    exchange, found, done = after_tasks(2)
    time_out_instead(exchange, apis.EndTxnRequest, not_ended(code), "orders.1")
    with pytest.raises(errors.CommitOutcomeUnknown) as raised:
        exchange.commit(found, done)
    assert (raised.value.visible, raised.value.missing) == ((0,), (1,))


@pytest.mark.parametrize("code", REFUSALS)
def test_a_plan_does_not_pass_over_an_end_txn_that_is_refused(code: int) -> None:
    """Nor does it go by a list that it did not get."""
    exchange = after_decision(2)
    no_list = apis.ListTransactionsResponse(0, code, ())
    for answer in (
        instead(apis.EndTxnRequest, not_ended(code), "orders.1"),
        instead(apis.ListTransactionsRequest, no_list),
    ):
        exchange.answer = answer
        assert refused(exchange, planning.plan(exchange.sink)).code == code
    assert all(request.committed for request in exchange.requests if isinstance(request, apis.EndTxnRequest))


@BOTH_VERSIONS
@pytest.mark.parametrize("code", REFUSALS)
def test_a_plan_does_not_pass_over_an_abort_that_is_refused(code: int, version: int) -> None:
    exchange = Exchange(version)
    exchange.tasks(2)
    api, answer = refused_abort(version, code)
    exchange.answer = instead(api, answer, "orders.1")
    error = refused(exchange, planning.plan(exchange.sink))
    assert (error.transactional_id, error.api) == ("orders.1", api.__name__.removesuffix("Request"))


def refused_abort(version: int, code: int) -> tuple[type, Any]:
    return (apis.InitProducerIdRequest, no_ids(code)) if version == 1 else (apis.EndTxnRequest, not_ended(code))


@BOTH_VERSIONS
@pytest.mark.parametrize("code", FENCES)
def test_an_abort_that_is_fenced_was_made_by_whoever_fenced_it(code: int, version: int) -> None:
    exchange = Exchange(version)
    exchange.tasks(2)
    time_out_instead(exchange, *refused_abort(version, code), "orders.1")
    found = exchange.run(planning.plan(exchange.sink))
    assert exchange.kafka.holding_back() == []
    exchange.answer = lambda request: None
    exchange.commit(found, [exchange.task(found, 0, slot) for slot in range(2)])
    assert exchange.kafka.visible == ["0/0", "0/1"]


@pytest.mark.parametrize(("age_ms", "is_in_time"), [(0, True), (55_000, True), (55_001, False), (60_001, False)])
def test_nothing_is_decided_that_may_time_out_before_it_is_committed(age_ms: int, is_in_time: bool) -> None:
    exchange, found, done = after_tasks(1)
    with contextlib.nullcontext() if is_in_time else pytest.raises(errors.TransactionTimedOut) as raised:
        exchange.commit(found, done, open_ms=age_ms)
    assert raised is None or (raised.value.age_ms, raised.value.timeout_ms) == (age_ms, 60_000)
    assert (exchange.kafka.visible, exchange.asked["EndTxn"] > 0) == (["0/0"] if is_in_time else [], is_in_time)


@BOTH_VERSIONS
def test_a_decision_that_is_written_and_not_made_is_gone_with_the_next_run(version: int) -> None:
    exchange = after_commit(1, version)
    found, done = exchange.tasks(1, 1)
    exchange.task(found, 1, 0)
    with pytest.raises(errors.AttemptReplaced):
        exchange.commit(found, done, 1)
    assert "orders.driver" in exchange.kafka.holding_back()
    exchange.run(planning.abort(exchange.sink, found.generation))
    assert exchange.kafka.holding_back() == []
    found, done = exchange.tasks(1, 1)
    assert found.decision is not None and found.decision.micro_batch_id == 0
    exchange.commit(found, done, 1)
    assert exchange.kafka.visible == ["0/0", "1/0"]


def test_nothing_is_decided_of_a_slot_that_somebody_else_has_begun() -> None:
    exchange, found, done = after_tasks(2)
    again = exchange.task(found, 0, 1)
    with pytest.raises(errors.AttemptReplaced) as raised:
        exchange.commit(found, done)
    assert (raised.value.transactional_id, raised.value.expected) == ("orders.1", str(done[1].ids))
    exchange.commit(found, [done[0], again])
    assert exchange.kafka.visible == ["0/0", "0/1"]


def told_first(said: apis.DescribeTransactionsResponse, times: int) -> Callable[[Any], Any]:
    """Describes the slot so often like this."""
    left = iter([said] * times)
    names = (said.transactions[0].transactional_id,)
    return lambda request: next(left, None) if getattr(request, "transactional_ids", ()) == names else None


def from_before(done: SlotPrepared, times: int) -> Callable[[Any], Any]:
    """Describes slot 0 so often as it was before it began."""
    ids = Ids(done.ids.producer_id, done.ids.producer_epoch - 1)
    return told_first(said_of("orders.0", ids, "PrepareCommit"), times)


@pytest.mark.parametrize(("age_ms", "is_in_time"), [(22_234, True), (22_235, False)])
def test_a_transaction_grows_older_while_its_coordinator_is_waited_for(age_ms: int, is_in_time: bool) -> None:
    """Of its 60 s 5 are to be left, and 32.766 are waited."""
    exchange, found, done = after_tasks(1)
    exchange.answer = from_before(done[0], len(PAUSES_MS))
    with contextlib.nullcontext() if is_in_time else pytest.raises(errors.TransactionTimedOut, match="Ongoing"):
        exchange.commit(found, done, open_ms=age_ms)
    assert exchange.kafka.visible == (["0/0"] if is_in_time else [])


@pytest.mark.parametrize("stale_answers", [1, 3, 1_000])
def test_a_coordinator_that_stood_still_is_asked_until_it_has_heard_of_the_slot(stale_answers: int) -> None:
    exchange, found, done = after_tasks(1)
    exchange.answer = from_before(done[0], stale_answers)
    if stale_answers < 1_000:
        exchange.commit(found, done)
        assert exchange.kafka.visible == ["0/0"]
        assert exchange.pauses_ms == [2**n for n in range(1, stale_answers + 1)]
        return
    with pytest.raises(errors.TransactionTimedOut, match="PrepareCommit"):
        exchange.commit(found, done)
    assert 30_000 < sum(exchange.pauses_ms) < 35_000
    assert exchange.asked["EndTxn"] == 0


@BOTH_VERSIONS
def test_an_aborted_transaction_is_not_committed_for_another_runs_rows(version: int) -> None:
    """An operator aborts a decided slot, its leader misses the abort, and another run writes the rows again under
    another producer id: the marker is then that run's, and no proof that this run's transaction was committed."""
    exchange = Exchange(version, last_epoch=1)
    overtaken = exchange.committing(*exchange.tasks(1))
    waits_for = exchange.run_until(overtaken, is_end_of("orders.0"))
    exchange.kafka.lose_marker(0, committed=False)
    exchange.kafka.abort_manually("orders.0")
    exchange.micro_batch(1)
    with pytest.raises(errors.CommitOutcomeUnknown):
        exchange.run(overtaken, waits_for)
    assert [*exchange.kafka.visible, *exchange.kafka.hidden()] == ["0/0"]
