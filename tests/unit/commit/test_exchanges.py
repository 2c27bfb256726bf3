"""What coordinators answer, and what it means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exchange import (
    FENCES,
    REFUSALS,
    Exchange,
    instead,
    refused,
)
from kafka_sink.commit import two_phase
from kafka_sink.commit.exchanges import check_generation, read_decision
from kafka_sink.errors import (
    AttemptFenced,
    TransactionRefused,
)
from kafka_sink.protocol.error_codes import ErrorCode
from kafka_sink.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    GroupOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TransactionDescription,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


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
    exchange = Exchange()
    found, done = exchange.tasks(1)
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


def test_a_decision_of_several_groups_is_written_in_one_transaction_and_read_in_one_round_more() -> None:
    exchange = Exchange()
    exchange.sink = replace(exchange.sink, metadata_max_characters=50)
    found, done = exchange.tasks(5)
    exchange.asked.clear()
    exchange.commit(found, done)
    groups = exchange.asked["TxnOffsetCommit"]
    assert (groups > 1, exchange.asked["EndTxn"]) == (True, 1 + 5)
    exchange.asked.clear()
    decision = exchange.run(read_decision(exchange.sink))
    assert decision is not None
    assert len(decision.pinned) == 5
    # The first again, to know that none was replaced in between.
    assert exchange.asked == {"OffsetFetch": groups + 1}
