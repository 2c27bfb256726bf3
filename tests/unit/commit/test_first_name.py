"""The record of the name under which a query writes its first micro-batch."""

from dataclasses import replace

import pytest

import apis
from exchange import BOTH_VERSIONS, SINK, Exchange, instead
from kafka_sink import errors
from kafka_sink.commit.first_name import check_first_name
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Names
from kafka_sink.commit.requests import ToCoordinator
from kafka_sink.kafka.protocol.error_codes import ErrorCode

ONE, OTHER = (replace(SINK, names=Names(name, SINK.names.commit_topic)) for name in ("pykafka-1", "pykafka-2"))
RECORD = "pykafka-q.name"


def check(exchange: Exchange, sink: Sink, query_id: str = "q") -> None:
    exchange.run(check_first_name(replace(sink, transaction_version=exchange.sink.transaction_version), query_id))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_first_name_of_a_query_is_its_only_one(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    check(exchange, ONE)
    for _ in range(2):
        with pytest.raises(errors.AnotherName) as raised:
            check(exchange, OTHER)
        assert (raised.value.sink, raised.value.query_id, raised.value.found_sink) == ("pykafka-2", "q", "pykafka-1")
        check(exchange, ONE)
    check(exchange, OTHER, "another")


@pytest.mark.parametrize("rounds", range(1, 8))
@BOTH_VERSIONS
def test_of_two_drivers_one_has_its_name_whoever_comes_between(version: int, rounds: int) -> None:
    """The other driver does the whole of it after each round of the first one's requests."""
    exchange, ended = Exchange(version, is_new=True), []
    one = check_first_name(replace(ONE, transaction_version=version), "q")
    try:
        effects = next(one)
        for _ in range(rounds):
            effects = one.send([exchange.execute(effect) for effect in effects])
        with pytest.raises((errors.AnotherName, errors.AttemptFenced)):
            try:
                check(exchange, OTHER)
                ended.append(OTHER)
            finally:
                exchange.run(one, waits_for=effects)
                ended.append(ONE)
    except StopIteration:
        check(exchange, ONE)
        return
    assert len(ended) == 1
    check(exchange, ended[0])


@pytest.mark.parametrize("changes", range(1, 12))
def test_a_stale_coordinator_does_not_hide_the_record(changes: int) -> None:
    exchange = Exchange(is_new=True)
    check(exchange, ONE)
    exchange.kafka.stand_still(changes, 2)
    with pytest.raises(errors.AnotherName):
        check(exchange, OTHER)


def test_a_record_of_another_program_is_not_taken_for_ours() -> None:
    exchange = Exchange(is_new=True)
    text = apis.OffsetCommitRequest(RECORD, SINK.names.commit_topic, 0, 0, "2|pykafka-1")
    exchange.execute(ToCoordinator(apis.CoordinatorKind.GROUP, RECORD, text))
    with pytest.raises(errors.UnreadableState):
        check(exchange, ONE)


@pytest.mark.parametrize(("code", "error"), [
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, errors.TransactionRefused),
    (ErrorCode.UNKNOWN_SERVER_ERROR, errors.TransactionRefused),
])  # fmt: skip
def test_a_principal_that_may_not_use_the_record_has_written_none(
    code: int, error: type[errors.TransactionRefused] | None
) -> None:
    refused = apis.InitProducerIdResponse(0, code, -1, -1)
    exchange = Exchange(is_new=True, answer=instead(apis.InitProducerIdRequest, refused))
    if error is None:
        check(exchange, ONE)
        return
    with pytest.raises(error):
        check(exchange, ONE)
