"""A batch write that deletes its groups: what is left wherever it stops, and what that tells of the write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from exchange import Exchange, refused
from kafka_sink.commit import two_phase
from kafka_sink.commit.effects import Effect, Steps
from kafka_sink.commit.forgetting import forget
from kafka_sink.commit.handover import Facts
from kafka_sink.commit.markers import Ids
from kafka_sink.commit.open_transactions import SinkTransactions, describe_sink, look
from kafka_sink.errors import TransactionRefused
from kafka_sink.kafka.protocol.apis.delete_groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode

SLOTS = 3
ROWS = [f"0/{slot}" for slot in range(SLOTS)]
VERSIONS = pytest.mark.parametrize("version", [1, 2])
LONG = {"metadata_max_characters": 48}


def written(version: int, **sink: Any) -> tuple[Exchange, Facts]:
    exchange = Exchange(version, is_new=True)
    exchange.sink = replace(exchange.sink, comes_again=False, **sink)
    facts, done = exchange.tasks(SLOTS)
    exchange.commit(facts, done)
    return exchange, facts


def seen(exchange: Exchange) -> SinkTransactions:
    looked = exchange.run(look(exchange.sink, "orders.", [("t", slot) for slot in range(SLOTS)]))
    return exchange.run(describe_sink(exchange.sink, looked))


def one_by_one(steps: Steps[Any]) -> Iterator[tuple[Effect, Any]]:
    """Each effect of `steps`, with what sends its answer."""
    effects = next(steps)
    while True:
        answers: list[Any] = []
        for effect in effects:
            yield effect, answers.append
        try:
            effects = steps.send(answers)
        except StopIteration:
            return


@VERSIONS
@pytest.mark.parametrize("is_long", [False, True])
def test_no_group_is_left(version: int, is_long: bool) -> None:
    exchange, facts = written(version, **LONG if is_long else {})
    assert (len(exchange.kafka.groups()) > 1 + SLOTS) is is_long
    exchange.rounds = 0
    exchange.run(forget(exchange.sink, facts.generation))
    assert exchange.kafka.groups() == set()
    assert is_long or exchange.rounds == 3
    found = seen(exchange)
    assert found.is_forgotten
    assert (found.missing, found.open) == ((), ())


@VERSIONS
@pytest.mark.parametrize("is_long", [False, True])
def test_wherever_it_stops_no_rows_seem_missing_and_an_abort_takes_none_away(version: int, is_long: bool) -> None:
    """Any request may be the last, and each is carried out twice. Spark then runs abort, as it does where the process
    that commits has died."""
    step = 0
    while True:
        exchange, facts = written(version, **LONG if is_long else {})
        carried_out = 0
        for effect, answer in one_by_one(forget(exchange.sink, facts.generation)):
            if carried_out == step:
                break
            exchange.execute(effect)
            answer(exchange.execute(effect))
            carried_out += 1
        found = seen(exchange)
        assert found.missing == ()
        assert (found.decision is None) == found.is_forgotten
        exchange.run(two_phase.abort(exchange.sink, facts.generation))
        assert exchange.kafka.visible == ROWS
        assert exchange.kafka.holding_back() == []
        assert seen(exchange).missing == ()
        if carried_out < step:
            return
        step += 1


def test_what_another_run_has_decided_since_is_left() -> None:
    exchange, facts = written(2)
    exchange.micro_batch(SLOTS, 1)
    before = exchange.kafka.groups()
    exchange.run(forget(exchange.sink, facts.generation))
    assert exchange.kafka.groups() == before
    exchange.run(forget(exchange.sink, Ids(1, 1)))
    assert exchange.kafka.groups() == before


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NON_EMPTY_GROUP])
def test_who_may_not_delete_the_decision_deletes_nothing(code: int) -> None:
    exchange, facts = written(2)

    def refuse(request: Any) -> Any:
        if isinstance(request, DeleteGroupsRequest):
            return DeleteGroupsResponse(0, tuple(DeletedGroup(group_id, code) for group_id in request.group_ids))
        return None

    exchange.answer = refuse
    error = refused(exchange, forget(exchange.sink, facts.generation))
    assert isinstance(error, TransactionRefused)
    assert exchange.asked["DeleteGroups"] == 1
    assert len(exchange.kafka.groups()) == 1 + SLOTS


def test_a_decision_whose_markers_are_on_their_way_is_waited_for() -> None:
    exchange, facts = written(2)
    exchange.requests.clear()
    exchange.run(forget(exchange.sink, facts.generation))
    first = exchange.requests[0]
    assert isinstance(first, OffsetFetchRequest)
    assert first.require_stable
