"""What coordinators answer, what it means, and how steps are run and answered."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

import apis
from exchange import FENCES, REFUSALS, Exchange, after_commit, after_tasks, attempt_fails, instead, refused, said_of
from kafka_sink.commit import planning, requests, runner
from kafka_sink.commit.markers import Decision, Ids
from kafka_sink.errors import CoordinatorUnavailable, DriverFenced
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients


@pytest.mark.parametrize("code", [*REFUSALS, *FENCES])
def test_a_marker_that_is_refused_or_fenced_fails_the_attempt(code: int) -> None:
    exchange = Exchange(answer=instead(apis.TxnOffsetCommitRequest, apis.ErrorResponse(0, code)))
    attempt_fails(exchange, code, "TxnOffsetCommit")
    # Version 1 adds no marker to a group that it could not add.
    exchange = Exchange(1, instead(apis.AddOffsetsToTxnRequest, apis.ErrorResponse(0, code)))
    attempt_fails(exchange, code, "AddOffsetsToTxn")
    assert exchange.asked["TxnOffsetCommit"] == 0


@pytest.mark.parametrize("code", REFUSALS)
def test_a_description_that_is_refused_is_no_transaction_that_is_closed(code: int) -> None:
    exchange, found, done = after_tasks(1)
    exchange.answer = instead(apis.DescribeTransactionsRequest, said_of("orders.0", None, "", code))
    looking = requests.check_generation(exchange.sink, found.generation)
    for steps in (planning.plan(exchange.sink), looking, exchange.committing(found, done)):
        assert refused(exchange, steps).api == "DescribeTransactions"


@pytest.mark.parametrize("code", REFUSALS)
def test_a_group_that_cannot_be_read_is_not_one_without_an_offset(code: int) -> None:
    answer = apis.OffsetFetchResponse(0, (apis.GroupOffset("orders.decision", code, -1, ""),))
    exchange = Exchange(answer=instead(apis.OffsetFetchRequest, answer))
    assert refused(exchange, planning.plan(exchange.sink)).code == code


@pytest.mark.parametrize("code", REFUSALS)
def test_a_barrier_that_is_refused_proves_nothing(code: int) -> None:
    exchange = Exchange(answer=instead(apis.OffsetCommitRequest, apis.ErrorResponse(0, code)))
    error = refused(exchange, requests.read_markers(exchange.sink, [0], barrier="b"))
    assert (error.code, error.api, exchange.asked["OffsetFetch"]) == (code, "OffsetCommit", 0)


def test_what_is_read_without_the_barrier_is_read_again_until_it_is_there() -> None:
    exchange = Exchange()
    exchange.micro_batch(3, 0)
    exchange.micro_batch(3, 1)
    # Of before the second one's three transactions, and one of the groups in time.
    exchange.kafka.stand_still(changes=3, reads=2)
    exchange.pauses_ms.clear()
    exchange.asked.clear()
    found = exchange.run(requests.read_markers(exchange.sink, range(3), barrier="b"))
    assert {slot: marker.micro_batch_id for slot, marker in found.items()} == {0: 1, 1: 1, 2: 1}
    assert (exchange.pauses_ms, exchange.asked["OffsetCommit"]) == ([requests.PAUSES_MS[0]], 3 + 2)


def test_an_earlier_barrier_of_ones_own_proves_nothing() -> None:
    exchange = after_commit(1)
    exchange.run(requests.read_markers(exchange.sink, [0], barrier="first"))
    exchange.micro_batch(1, 1)
    exchange.kafka.stand_still(changes=2, reads=1)
    assert exchange.run(requests.read_markers(exchange.sink, [0], barrier="second"))[0].micro_batch_id == 1


def test_a_coordinator_that_never_has_the_barrier_is_not_believed() -> None:
    exchange = after_commit(2)
    exchange.kafka.stand_still(changes=1, reads=1_000)
    error = refused(exchange, requests.read_markers(exchange.sink, [0, 1], barrier="b"))
    assert (error.api, error.code, error.transactional_id) == ("OffsetFetch", ErrorCode.NOT_COORDINATOR, "orders.0")
    assert exchange.pauses_ms[-len(requests.PAUSES_MS) :] == list(requests.PAUSES_MS)


def reading_the_rest(
    exchange: Exchange, barrier: str | None
) -> tuple[requests.Steps[Decision | None], Sequence[requests.Effect]]:
    """The first of a decision's groups is read."""
    steps = requests.read_decision(exchange.sink, barrier=barrier)
    return steps, exchange.run_until(steps, lambda effects: effects[0].key == exchange.sink.names.decision(1))


def test_a_decision_of_several_groups_is_not_put_together_of_two() -> None:
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5, 0)
    for micro_batch_id, barrier in enumerate((None, "b"), start=1):
        reading = reading_the_rest(exchange, barrier)
        exchange.micro_batch(5, micro_batch_id)
        again = exchange.run(*reading)
        assert again is not None and again.micro_batch_id == micro_batch_id


@pytest.mark.parametrize("changes", range(3, 22, 3))
@pytest.mark.parametrize("reads", [3, 9, 15])
def test_each_read_of_a_decision_is_behind_a_barrier_of_its_own(changes: int, reads: int) -> None:
    """A stale coordinator lacks the last `changes` of the second micro-batch, for the next `reads`."""
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5, 0)
    exchange.micro_batch(5, 1)
    reading = reading_the_rest(exchange, "b")
    exchange.kafka.stand_still(changes, reads)
    decision = exchange.run(*reading)
    assert decision is not None and decision.micro_batch_id == 1


def test_what_is_decided_on_is_read_once_it_is_stable() -> None:
    exchange = Exchange(metadata_max_characters=50)
    exchange.micro_batch(5)
    exchange.requests.clear()
    for barrier in (None, "b"):
        exchange.run(requests.read_decision(exchange.sink, barrier=barrier))
        exchange.run(requests.read_markers(exchange.sink, range(5), barrier=barrier))
    fetches = [request for request in exchange.requests if isinstance(request, apis.OffsetFetchRequest)]
    assert fetches and all(request.require_stable for request in fetches)
    exchange.run(requests.read_markers(exchange.sink, [0], stable=False))
    assert not exchange.requests[-1].require_stable
    # A place that an offset can have.
    assert all(request.offset == 0 for request in exchange.requests if isinstance(request, apis.OffsetCommitRequest))


def told_of_the_driver(producer_id: int, producer_epoch: int) -> apis.DescribeTransactionsResponse:
    code, state = (0, "Empty") if producer_id >= 0 else (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")
    return said_of("orders.driver", Ids(producer_id, producer_epoch), state, code)


# Of before, of an id that was spent, of a coordinator that does not know it.
OF_BEFORE = [(7, 3), (8, 5), (6, 9), (-1, -1)]


@pytest.mark.parametrize(("producer_id", "producer_epoch"), OF_BEFORE)
def test_a_run_is_not_overtaken_by_what_was_before_it(producer_id: int, producer_epoch: int) -> None:
    exchange = Exchange()
    answers = iter([told_of_the_driver(producer_id, producer_epoch)] * 2 + [told_of_the_driver(7, 4)])
    exchange.answer = lambda request: next(answers)
    exchange.run(requests.check_generation(exchange.sink, Ids(7, 4)))
    assert exchange.pauses_ms == list(requests.PAUSES_MS[:2])


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [*OF_BEFORE, (7, 5)])
def test_a_run_that_was_overtaken_is_told_so(producer_id: int, producer_epoch: int) -> None:
    exchange = Exchange(answer=lambda request: told_of_the_driver(producer_id, producer_epoch))
    with pytest.raises(DriverFenced):
        exchange.run(requests.check_generation(exchange.sink, Ids(7, 4)))
    assert exchange.pauses_ms == ([] if (producer_id, producer_epoch) == (7, 5) else list(requests.PAUSES_MS))


DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka(brokers=[2, 5])
    made.leaders = {("t", 0): 2, ("t", 1): 5, ("t", 2): 2, ("t", 3): 5}
    made.settings = {(2, "s"): "value of s"}
    made.always(apis.DescribeTransactionsRequest, lambda request: apis.DescribeTransactionsResponse(0, tuple(
        apis.TransactionDescription(name, 0, "Empty", 60_000, -1, 7, 0, ()) for name in request.transactional_ids
    )))  # fmt: skip
    return made


@pytest.fixture
def client(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminClient]:
    connect_clients(ScriptedNetwork(kafka), monkeypatch)
    with closing(AdminClient(sink_config({"kafka.bootstrap.servers": "b:9092"}).producer)) as made:
        yield made


def to(key: str) -> requests.ToCoordinator:
    return requests.ToCoordinator(apis.CoordinatorKind.TRANSACTION, key, apis.DescribeTransactionsRequest((key,)))


def test_answers_are_in_the_order_of_effects_and_coordinators_are_asked_together(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    leaders = requests.ToLeaders(apis.DescribeProducersRequest(partitions=(("t", 0), ("t", 3))))
    markers = requests.ToLeaders(apis.WriteTxnMarkersRequest(7, 2, True, 5, (("t", 0), ("t", 3))))
    kafka.always(apis.WriteTxnMarkersRequest, DENIED)

    def steps() -> requests.Steps[list[Any]]:
        first = yield [to("a"), requests.ToEveryBroker(apis.ListTransactionsRequest()), to("b"), leaders]
        assert kafka.asked(apis.WriteTxnMarkersRequest) == []
        second = yield [to("c"), requests.Pause(4), requests.BrokerSetting("s"), markers]
        return [*first, *second]

    a, brokers, b, of_leaders, c, paused, setting, written = runner.run(client, steps())
    assert setting == "value of s"
    assert written == apis.PartitionsResponse(
        0, (apis.PartitionResult("t", 0, DENIED), apis.PartitionResult("t", 3, DENIED))
    )
    assert [each.transactions[0].transactional_id for each in (a, b, c)] == ["a", "b", "c"]
    assert brokers == [apis.ListTransactionsResponse(0, 0, ())] * 2
    assert isinstance(of_leaders, apis.DescribeProducersResponse)
    assert [(each.topic, each.partition) for each in of_leaders.partitions] == [("t", 0), ("t", 3)]
    assert (paused, kafka.now_ms) == (None, 4)
    each_leaders = [(node, apis.WriteTxnMarkersRequest(7, 2, True, 5, (("t", n),))) for node, n in ((2, 0), (5, 3))]
    assert kafka.asked(apis.WriteTxnMarkersRequest) == each_leaders
    assert [request.keys for _, request in kafka.asked(apis.FindCoordinatorRequest)] == [("a", "b"), ("c",)]
    # The coordinators are at work while the brokers are asked.
    kinds = [type(request) for _, request in kafka.received]
    assert kinds.index(apis.DescribeTransactionsRequest) <= kinds.index(apis.ListTransactionsRequest)


def test_brokers_without_write_txn_markers_are_not_asked_to_write_one(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    kafka.lacking = ("WriteTxnMarkers",)

    def steps() -> requests.Steps[Any]:
        return (yield [requests.ToLeaders(apis.WriteTxnMarkersRequest(7, 2, True, 5, (TopicPartition("t", 0),)))])

    lacking = apis.PartitionResult("t", 0, ErrorCode.UNSUPPORTED_VERSION)
    assert runner.run(client, steps()) == [apis.PartitionsResponse(0, (lacking,))]
    assert kafka.asked(apis.WriteTxnMarkersRequest) == []


def test_what_steps_raise_and_what_clients_raise_comes_out_and_ends_the_steps(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    ended = []

    def steps(fail: bool) -> requests.Steps[None]:
        try:
            yield [to("a")]
            if fail:
                raise ValueError("of the steps")
        finally:
            ended.append(fail)

    with pytest.raises(ValueError, match="of the steps"):
        runner.run(client, steps(True))
    kafka.down = kafka.brokers
    with pytest.raises(CoordinatorUnavailable):
        runner.run(client, steps(False))
    assert ended == [True, False]


def test_steps_side_by_side_ask_together_and_the_first_that_raises_ends_all() -> None:
    ended = []

    def asks(name: str, times: int, fails: bool = False) -> requests.Steps[str]:
        try:
            for number in range(times):
                assert (yield [requests.Pause(number), requests.Pause(number)]) == [
                    f"{name}{number}",
                    f"{name}{number}",
                ]
            if fails:
                raise ValueError(name)
            return name
        finally:
            ended.append(name)

    steps = requests.at_once(asks("a", 2), asks("b", 0), asks("c", 1))
    assert next(steps) == [requests.Pause(0)] * 4
    assert steps.send(["a0", "a0", "c0", "c0"]) == [requests.Pause(1)] * 2
    with pytest.raises(StopIteration) as end:
        steps.send(["a1", "a1"])
    assert end.value.value == ["a", "b", "c"]
    assert ended == ["b", "c", "a"]
    ended.clear()
    steps = requests.at_once(asks("a", 2), asks("b", 1, fails=True))
    next(steps)
    with pytest.raises(ValueError, match="b"):
        steps.send(["a0", "a0", "b0", "b0"])
    assert ended == ["b", "a"]
