"""Whether a query began under an earlier name."""

from __future__ import annotations

from typing import Any

import pytest

from exchange import Exchange, instead
from kafka_sink.commit import two_phase
from kafka_sink.commit.earlier_name import began_as
from kafka_sink.errors import TransactionRefused
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode


def committed(slots: int = 2) -> Exchange:
    """By the query "q"."""
    exchange = Exchange(is_new=True)
    facts, done = exchange.tasks(slots)
    exchange.commit(facts, done)
    return exchange


def writes(exchange: Exchange) -> list[Any]:
    return [
        request for request in exchange.requests if isinstance(request, InitProducerIdRequest | OffsetCommitRequest)
    ]


def test_a_sink_that_nobody_began_is_not_the_querys_and_stays_untouched() -> None:
    exchange = Exchange(is_new=True)
    assert not exchange.run(began_as(exchange.sink, "q"))
    assert writes(exchange) == []
    assert exchange.asked == {"OffsetFetch": 1, "DescribeTransactions": 1}


def test_a_sink_whose_last_decision_is_the_querys_is_its_own_and_not_anothers() -> None:
    exchange = committed()
    exchange.requests.clear()
    assert exchange.run(began_as(exchange.sink, "q"))
    assert writes(exchange) == []
    assert not exchange.run(began_as(exchange.sink, "another"))


@pytest.mark.parametrize("planned", [True, False])
def test_a_sink_that_has_decided_nothing_may_be_about_to(planned: bool) -> None:
    """Its driver may have died in the first micro-batch, or be about to decide: who plans next has to fence it."""
    exchange = Exchange(is_new=True)
    if planned:
        exchange.run(two_phase.plan(exchange.sink))
    else:
        exchange.run(two_phase.take_over(exchange.sink))
    assert exchange.run(began_as(exchange.sink, "q"))


@pytest.mark.parametrize("changes", range(1, 16))
@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_coordinator_that_stood_still_does_not_hide_the_querys_decision(reads: int, changes: int) -> None:
    """Another query decided before it."""
    exchange = Exchange(is_new=True)
    for query_id in ("another", "q"):
        facts = exchange.run(two_phase.plan(exchange.sink))
        exchange.commit(facts, [exchange.task(facts, 0, slot, query_id) for slot in range(2)])
    exchange.kafka.stand_still(changes, reads)
    assert exchange.run(began_as(exchange.sink, "q"))


def refusing(error_code: int) -> Exchange:
    described = TransactionDescription("orders.driver", error_code, "", 0, -1, -1, -1, ())
    answer = instead(DescribeTransactionsRequest, DescribeTransactionsResponse(0, (described,)))
    return Exchange(is_new=True, answer=answer)


def test_what_could_not_be_asked_is_not_taken_for_no_but_a_missing_acl_is() -> None:
    exchange = refusing(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert not exchange.run(began_as(exchange.sink, "q"))
    exchange = refusing(ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(TransactionRefused):
        exchange.run(began_as(exchange.sink, "q"))
