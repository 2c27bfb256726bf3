"""What coordinators answer, and what it means."""

from __future__ import annotations

import pytest

from exchange import FENCES, REFUSALS, Exchange, after_commit, after_tasks, instead, refused
from kafka_sink.commit import two_phase
from kafka_sink.commit.effects import PAUSES_MS
from kafka_sink.commit.exchanges import check_generation, read_decision, read_markers
from kafka_sink.commit.markers import Ids
from kafka_sink.errors import AttemptFenced, DriverFenced, TransactionRefused
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafka_sink.kafka.protocol.apis.offset_fetch import GroupOffset, OffsetFetchRequest, OffsetFetchResponse
from kafka_sink.kafka.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode


@pytest.mark.parametrize("code", REFUSALS)
def test_a_marker_that_is_refused_fails_the_attempt(code: int) -> None:
    exchange = Exchange(answer=instead(TxnOffsetCommitRequest, TxnOffsetCommitResponse(0, code)))
    found = exchange.run(two_phase.plan(exchange.sink))
    with pytest.raises(TransactionRefused) as raised:
        exchange.task(found, 0, 0)
    assert (raised.value.code, raised.value.api, raised.value.transactional_id) == (code, "TxnOffsetCommit", "orders.0")


@pytest.mark.parametrize("code", FENCES)
def test_a_marker_that_is_fenced_fails_the_attempt(code: int) -> None:
    exchange = Exchange(answer=instead(TxnOffsetCommitRequest, TxnOffsetCommitResponse(0, code)))
    found = exchange.run(two_phase.plan(exchange.sink))
    with pytest.raises(AttemptFenced, match=ErrorCode(code).name):
        exchange.task(found, 0, 0)


@pytest.mark.parametrize("code", [*REFUSALS, *FENCES])
def test_version_1_adds_no_marker_to_a_group_that_it_could_not_add(code: int) -> None:
    exchange = Exchange(1, instead(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(0, code)))
    found = exchange.run(two_phase.plan(exchange.sink))
    with pytest.raises((TransactionRefused, AttemptFenced)):
        exchange.task(found, 0, 0)
    assert exchange.asked["TxnOffsetCommit"] == 0


@pytest.mark.parametrize("code", REFUSALS)
def test_a_description_that_is_refused_is_no_transaction_that_is_closed(code: int) -> None:
    exchange, found, done = after_tasks(1)
    description = TransactionDescription("orders.0", code, "", 0, -1, -1, -1, ())
    exchange.answer = instead(DescribeTransactionsRequest, DescribeTransactionsResponse(0, (description,)))
    for steps in (
        two_phase.plan(exchange.sink),
        check_generation(exchange.sink, found.generation),
        two_phase.commit(exchange.sink, found, done, micro_batch_id=0, now_ms=0),
    ):
        assert refused(exchange, steps).api == "DescribeTransactions"


@pytest.mark.parametrize("code", REFUSALS)
def test_a_group_that_cannot_be_read_is_not_one_without_an_offset(code: int) -> None:
    answer = OffsetFetchResponse(0, (GroupOffset("orders.decision", code, -1, ""),))
    exchange = Exchange(answer=instead(OffsetFetchRequest, answer))
    assert refused(exchange, two_phase.plan(exchange.sink)).code == code


@pytest.mark.parametrize("code", REFUSALS)
def test_a_barrier_that_is_refused_proves_nothing(code: int) -> None:
    exchange = Exchange(answer=instead(OffsetCommitRequest, OffsetCommitResponse(0, code)))
    error = refused(exchange, read_markers(exchange.sink, [0], barrier="b"))
    assert (error.code, error.api, exchange.asked["OffsetFetch"]) == (code, "OffsetCommit", 0)


def test_what_is_read_without_the_barrier_is_read_again_until_it_is_there() -> None:
    exchange = Exchange()
    exchange.micro_batch(3, 0)
    exchange.micro_batch(3, 1)
    # Of before the second one's three transactions, and one of the groups in time.
    exchange.kafka.stand_still(changes=3, reads=2)
    exchange.pauses_ms.clear()
    exchange.asked.clear()
    found = exchange.run(read_markers(exchange.sink, range(3), barrier="b"))
    assert {slot: marker.micro_batch_id for slot, marker in found.items()} == {0: 1, 1: 1, 2: 1}
    assert exchange.pauses_ms == [PAUSES_MS[0]]
    assert exchange.asked["OffsetCommit"] == 3 + 2


def test_an_earlier_barrier_of_ones_own_proves_nothing() -> None:
    exchange = Exchange()
    exchange.micro_batch(1, 0)
    exchange.run(read_markers(exchange.sink, [0], barrier="first"))
    exchange.micro_batch(1, 1)
    exchange.kafka.stand_still(changes=2, reads=1)
    found = exchange.run(read_markers(exchange.sink, [0], barrier="second"))
    assert found[0].micro_batch_id == 1


def test_a_coordinator_that_never_has_the_barrier_is_not_believed() -> None:
    exchange = after_commit(2)
    exchange.kafka.stand_still(changes=1, reads=1_000)
    error = refused(exchange, read_markers(exchange.sink, [0, 1], barrier="b"))
    assert (error.api, error.code, error.transactional_id) == ("OffsetFetch", ErrorCode.NOT_COORDINATOR, "orders.0")
    assert exchange.pauses_ms[-len(PAUSES_MS) :] == list(PAUSES_MS)


def test_a_decision_of_several_groups_is_not_put_together_of_two() -> None:
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5, 0)
    for barrier in (None, "b"):
        found = exchange.decision()
        steps = read_decision(exchange.sink, barrier=barrier)
        of_the_rest = exchange.run_until(steps, lambda effects: effects[0].key == exchange.sink.names.decision(1))
        exchange.micro_batch(5, found.micro_batch_id + 1)
        again = exchange.run(steps, of_the_rest)
        assert again is not None
        assert again.micro_batch_id == found.micro_batch_id + 1


@pytest.mark.parametrize("changes", range(3, 22, 3))
@pytest.mark.parametrize("reads", [3, 9, 15])
def test_each_read_of_a_decision_is_behind_a_barrier_of_its_own(changes: int, reads: int) -> None:
    """A stale coordinator lacks the last `changes` of the second micro-batch, for the next `reads`."""
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5, 0)
    exchange.micro_batch(5, 1)
    steps = read_decision(exchange.sink, barrier="b")
    of_the_rest = exchange.run_until(steps, lambda effects: effects[0].key == exchange.sink.names.decision(1))
    exchange.kafka.stand_still(changes, reads)
    decision = exchange.run(steps, of_the_rest)
    assert decision is not None
    assert decision.micro_batch_id == 1


def test_what_is_decided_on_is_read_once_it_is_stable() -> None:
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5)
    exchange.requests.clear()
    for barrier in (None, "b"):
        exchange.run(read_decision(exchange.sink, barrier=barrier))
        exchange.run(read_markers(exchange.sink, range(5), barrier=barrier))
    fetches = [request for request in exchange.requests if isinstance(request, OffsetFetchRequest)]
    assert fetches and all(request.require_stable for request in fetches)
    exchange.run(read_markers(exchange.sink, [0], stable=False))
    assert not exchange.requests[-1].require_stable
    # A place that an offset can have.
    assert all(request.offset == 0 for request in exchange.requests if isinstance(request, OffsetCommitRequest))


def told_of_the_driver(producer_id: int, producer_epoch: int) -> DescribeTransactionsResponse:
    known = producer_id >= 0
    code, state = (0, "Empty") if known else (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")
    said = TransactionDescription("orders.driver", code, state, 0, -1, producer_id, producer_epoch, ())
    return DescribeTransactionsResponse(0, (said,))


# Of before, of an id that was spent, of a coordinator that does not know it.
OF_BEFORE = [(7, 3), (8, 5), (6, 9), (-1, -1)]


@pytest.mark.parametrize(("producer_id", "producer_epoch"), OF_BEFORE)
def test_a_run_is_not_overtaken_by_what_was_before_it(producer_id: int, producer_epoch: int) -> None:
    exchange = Exchange()
    answers = iter([told_of_the_driver(producer_id, producer_epoch)] * 2 + [told_of_the_driver(7, 4)])
    exchange.answer = lambda request: next(answers)
    exchange.run(check_generation(exchange.sink, Ids(7, 4)))
    assert exchange.pauses_ms == list(PAUSES_MS[:2])


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [*OF_BEFORE, (7, 5)])
def test_a_run_that_was_overtaken_is_told_so(producer_id: int, producer_epoch: int) -> None:
    exchange = Exchange(answer=lambda request: told_of_the_driver(producer_id, producer_epoch))
    with pytest.raises(DriverFenced):
        exchange.run(check_generation(exchange.sink, Ids(7, 4)))
    assert exchange.pauses_ms == ([] if (producer_id, producer_epoch) == (7, 5) else list(PAUSES_MS))
