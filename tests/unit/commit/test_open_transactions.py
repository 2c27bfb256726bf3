"""What an operator sees and ends, over a Kafka that is a value; real ones are in `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import apis
from exchange import BOTH_VERSIONS, Exchange, ends_both, instead, refused, said_of
from kafka_sink.commit import ending, open_transactions, planning
from kafka_sink.commit.deciding import forget
from kafka_sink.commit.handover import Facts, SlotPrepared
from kafka_sink.commit.hanging import PAUSES_MS
from kafka_sink.commit.markers import Ids, Names
from kafka_sink.commit.open_transactions import OpenProducer, Seen, SinkTransactions, describe_sink, look
from kafka_sink.commit.requests import Effect, Steps, check_generation
from kafka_sink.errors import DecisionPending, DriverFenced, TransactionTimedOut
from kafka_sink.kafka.protocol.error_codes import ErrorCode

PARTITIONS = (("t", 0), ("t", 1))


class Operator(Exchange):
    """Looks at a sink of two slots that nobody used before."""

    def __init__(self, version: int = 2) -> None:
        super().__init__(version, is_new=True)
        self.sink = replace(self.sink, names=Names("orders", "commits"), bootstrap_servers="b:9092")

    def prepare(self, micro_batch_id: int = 0) -> tuple[Facts, list[SlotPrepared]]:
        return self.tasks(2, micro_batch_id)

    def decide(self, micro_batch_id: int = 0) -> list[SlotPrepared]:
        """As far as the decision; there the driver dies."""
        facts, done = self.prepare(micro_batch_id)
        self.run_until(self.committing(facts, done, micro_batch_id), ends_both)
        return done

    @classmethod
    def that_decided(cls, version: int = 2) -> Operator:
        made = cls(version)
        made.decide()
        return made

    def describe_sink(self, partitions: tuple[tuple[str, int], ...] = PARTITIONS) -> SinkTransactions:
        return self.seen_as(self.run(open_transactions.look("orders.", partitions)))

    def seen_as(self, seen: Seen) -> SinkTransactions:
        return self.run(open_transactions.describe_sink(self.sink, seen))


def test_what_is_open_now_is_told_without_asking_leaders() -> None:
    operator = Operator()
    assert operator.run(open_transactions.open_now("ord")) == {}
    facts, done = operator.prepare()
    operator.asked.clear()
    found = operator.run(open_transactions.open_now("ord"))
    assert {name: each.state for name, each in found.items()} == {"orders.0": "Ongoing", "orders.1": "Ongoing"}
    assert set(operator.asked) == {"ListTransactions", "DescribeTransactions"}
    operator.commit(facts, done)
    assert operator.run(open_transactions.open_now("ord")) == {}


def test_a_list_that_is_refused_is_not_an_empty_one() -> None:
    operator = Operator()
    denied = apis.ListTransactionsResponse(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    operator.answer = instead(apis.ListTransactionsRequest, [denied])
    for steps in (open_transactions.open_now("ord"), open_transactions.look("orders.", PARTITIONS)):
        assert refused(operator, steps).api == "ListTransactions"


@pytest.mark.parametrize(("name", "sink"), [
    ("orders.0", "orders"), ("orders.driver", "orders"), ("a.b.12", "a.b"), ("orders", None), ("orders.x", None),
])  # fmt: skip
def test_a_transactional_id_tells_its_sink(name: str, sink: str | None) -> None:
    assert open_transactions.sink_named(name) == sink


@BOTH_VERSIONS
def test_what_is_prepared_is_open_and_looking_neither_waits_for_it_nor_changes_it(version: int) -> None:
    operator = Operator(version)
    facts, done = operator.prepare()
    operator.asked.clear()
    found = operator.describe_sink()
    assert [(each.transactional_id, each.slot, each.ids) for each in found.undecided] == [
        ("orders.0", 0, done[0].ids), ("orders.1", 1, done[1].ids)
    ]  # fmt: skip
    assert [(each.topic, each.partition, each.start_offset) for each in found.open[1].holds] == [("t", 1, 0)]
    assert set(operator.asked) == {"ListTransactions", "DescribeTransactions", "DescribeProducers", "OffsetFetch"}
    operator.commit(facts, done)
    found = operator.describe_sink()
    assert (found.open, found.missing, found.decision and found.decision.micro_batch_id) == ((), (), 0)


def test_what_is_decided_is_told_from_what_is_not() -> None:
    operator = Operator()
    operator.commit(*operator.prepare())
    assert [each.slot for each in operator.describe_sink().undecided] == []
    operator.prepare(1)
    found = operator.describe_sink()
    assert ([each.slot for each in found.undecided], found.decided, found.missing) == ([0, 1], (), ())
    operator.decide(1)
    found = operator.describe_sink()
    assert (found.undecided, [each.slot for each in found.decided], found.missing) == ((), [0, 1], (0, 1))


def test_partitions_that_cannot_be_or_are_not_looked_at_are_told() -> None:
    operator = Operator()
    operator.prepare()
    found = operator.describe_sink(())
    assert [each.holds[0].start_offset for each in found.open] == [None, None]
    assert operator.asked["DescribeProducers"] == 0
    operator = Operator()
    refusal = apis.ProducersOfPartition("t", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, ())
    operator.answer = instead(apis.DescribeProducersRequest, apis.DescribeProducersResponse(0, (refusal,)))
    assert operator.describe_sink().refused == {("t", 1): "TOPIC_AUTHORIZATION_FAILED"}


def description(state: str, ids: Ids, transactional_id: str = "orders.0") -> apis.TransactionDescription:
    return said_of(transactional_id, ids, state).transactions[0]


def seen(*descriptions: apis.TransactionDescription, opened: Ids | None = None) -> Seen:
    producers = () if opened is None else (OpenProducer("t", 7, opened, 17, -1),)
    return Seen({each.transactional_id: each for each in descriptions}, producers, {})


def test_sinks_with_something_open_are_told_by_the_form_of_ids() -> None:
    def named(transactional_id: str, state: str, producer_id: int = 1) -> apis.TransactionDescription:
        return description(state, Ids(producer_id, 0), transactional_id)

    found = seen(
        named("a.0", "Ongoing"), named("a.b.12", "PrepareCommit"), named("c.driver", "Ongoing"), named("d.0", "Empty"),
        named("e.0", "CompleteCommit", 9), named("f-0", "Ongoing"), named(".0", "Ongoing"),
        opened=Ids(9, 0),
    )  # fmt: skip
    assert found.busy_sinks() == ["a", "a.b", "c", "e"]


COMMITTED, UNKNOWN, NONE = "committed", "unknown", "does not hang"


@pytest.mark.parametrize(("version", "state", "epoch", "expected"), [
    # The leader has epoch 5 open. Version 2 raises the epoch with the end of a transaction.
    (2, "Ongoing", 5, NONE), (2, "PrepareCommit", 6, NONE), (2, "PrepareAbort", 6, NONE),
    (2, "CompleteCommit", 6, COMMITTED), (2, "CompleteAbort", 6, UNKNOWN), (2, "CompleteCommit", 7, UNKNOWN),
    (2, "Ongoing", 7, UNKNOWN), (2, "PrepareCommit", 7, UNKNOWN), (2, "Empty", 6, UNKNOWN),
    # Begun after the coordinator was asked.
    (2, "Empty", 5, NONE), (2, "CompleteCommit", 4, NONE), (1, "Ongoing", 5, NONE), (1, "PrepareCommit", 5, NONE),
    (1, "CompleteCommit", 5, COMMITTED), (1, "CompleteAbort", 5, UNKNOWN), (1, "CompleteCommit", 6, UNKNOWN),
    (1, "Empty", 5, NONE), (1, "Ongoing", 6, UNKNOWN),
])  # fmt: skip
def test_what_leaders_have_open_and_coordinators_not_hangs(version: int, state: str, epoch: int, expected: str) -> None:
    found = Operator(version).seen_as(seen(description(state, Ids(77, epoch)), opened=Ids(77, 5)))
    told = {COMMITTED: found.hanging, UNKNOWN: found.unknown, NONE: ()}[expected]
    assert [*found.hanging, *found.unknown] == list(told)
    assert [(each.topic, each.partition, each.transactional_id, each.start_offset) for each in told] == (
        [] if expected == NONE else [("t", 7, "orders.0", 17)]
    )


@pytest.mark.parametrize("name", ["orders", "orders\nforged", "$(touch x)", "\x1b[2J", "a.b.7"])
@pytest.mark.parametrize("part", ["0", "driver"])
def test_a_sink_is_busy_whatever_characters_its_name_has(name: str, part: str) -> None:
    assert seen(description("Ongoing", Ids(77, 5), f"{name}.{part}")).busy_sinks() == [name]


def test_of_a_producer_that_is_no_sinks_nothing_hangs() -> None:
    found = Operator().seen_as(seen(description("Empty", Ids(77, 6)), opened=Ids(78, 5)))
    assert (found.hanging, found.unknown) == ((), ())


@pytest.mark.parametrize("producer_id_is_spent", [False, True])
@pytest.mark.parametrize("is_visible", [False, True])
def test_a_marker_tells_of_what_was_pinned_whatever_the_slot_did_since(
    is_visible: bool, producer_id_is_spent: bool
) -> None:
    operator = Operator()
    ids = operator.decide()[0].ids
    if is_visible:
        operator.run(ending.finish(operator.sink, operator.decision()))
    else:
        operator.kafka.abort_manually("orders.0")
    later = Ids(ids.producer_id + 500, 0) if producer_id_is_spent else Ids(ids.producer_id, ids.producer_epoch + 9)
    found = operator.seen_as(seen(description("Ongoing", later), opened=ids))
    assert (len(found.hanging), len(found.unknown)) == ((1, 0) if is_visible else (0, 1))


def finish(operator: Operator) -> tuple[SinkTransactions, list[str]]:
    operator.asked.clear()
    found, refused = operator.run(open_transactions.finish_manually(operator.sink, PARTITIONS))
    # InitProducerId would fence the owner of the transactional id.
    assert operator.asked["InitProducerId"] == 0
    return found, list(refused.values())


@BOTH_VERSIONS
def test_what_is_decided_is_committed_and_once_more_does_no_harm(version: int) -> None:
    operator = Operator.that_decided(version)
    for _ in range(2):
        found, refused = finish(operator)
        assert (found.missing, found.open, refused) == ((), (), [])
        assert operator.kafka.visible == ["0/0", "0/1"]


def test_a_driver_that_runs_is_not_disturbed_and_nothing_undecided_is_finished() -> None:
    operator = Operator()
    facts, done = operator.prepare()
    found, _ = finish(operator)
    assert [each.slot for each in found.undecided] == [0, 1]
    assert operator.asked["EndTxn"] == 0
    operator.commit(facts, done)
    operator = Operator()
    operator.commit(*operator.prepare())
    facts, done = operator.prepare(1)
    finish(operator)
    operator.commit(facts, done, 1)
    assert operator.kafka.visible == ["0/0", "0/1", "1/0", "1/1"]


def test_coordinators_that_are_at_work_are_waited_for() -> None:
    operator = Operator.that_decided()
    at_work = iter([description("PrepareCommit", Ids(1, 1))] * 3)

    def answer(request: Any) -> Any:
        if not isinstance(request, apis.DescribeTransactionsRequest) or request.transactional_ids != ("orders.0",):
            return None
        each = next(at_work, None)
        return each and apis.DescribeTransactionsResponse(0, (each,))

    operator.answer = answer
    finish(operator)
    assert operator.pauses_ms == list(PAUSES_MS[:3])


def test_a_marker_that_is_refused_is_told() -> None:
    operator = Operator.that_decided()
    operator.kafka.lose_marker(1)
    denied = apis.PartitionsResponse(0, (apis.PartitionResult("t", 1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),))
    operator.answer = instead(apis.WriteTxnMarkersRequest, denied)
    found, refused = finish(operator)
    assert [each.transactional_id for each in found.hanging] == ["orders.1"]
    assert refused == ["WriteTxnMarkers was refused: CLUSTER_AUTHORIZATION_FAILED"]


def test_what_is_not_known_to_be_committed_gets_no_marker() -> None:
    operator = Operator()
    done = operator.decide()
    operator.kafka.abort_manually("orders.1")
    unended = apis.ActiveProducer(done[1].ids.producer_id, done[1].ids.producer_epoch, 17)
    answer = apis.DescribeProducersResponse(0, (apis.ProducersOfPartition("t", 1, 0, None, (unended,)),))
    operator.answer = instead(apis.DescribeProducersRequest, answer)
    found, _ = finish(operator)
    assert (len(found.unknown), found.missing, operator.asked["WriteTxnMarkers"]) == (1, (1,), 0)


@BOTH_VERSIONS
def test_what_nobody_decided_is_aborted_and_the_driver_fenced(version: int) -> None:
    operator = Operator(version)
    facts, _ = operator.prepare()
    aborted = operator.run(open_transactions.abort_manually(operator.sink))
    assert [each.transactional_id for each in aborted] == ["orders.0", "orders.1"]
    assert (operator.kafka.aborted, operator.describe_sink().open) == (["0/0", "0/1"], ())
    with pytest.raises(DriverFenced):
        operator.run(check_generation(operator.sink, facts.generation))
    assert operator.run(open_transactions.abort_manually(operator.sink)) == []


@BOTH_VERSIONS
def test_what_a_decision_names_is_never_aborted(version: int) -> None:
    operator = Operator.that_decided(version)
    with pytest.raises(DecisionPending) as raised:
        operator.run(open_transactions.abort_manually(operator.sink))
    assert (raised.value.micro_batch_id, raised.value.slots) == (0, (0, 1))
    assert raised.value.command == (
        "pykafka transactions repair --bootstrap-servers b:9092 --prefix orders --commit-topic commits"
    )
    assert operator.kafka.holding_back() == ["orders.0", "orders.1"]
    finish(operator)
    assert operator.kafka.visible == ["0/0", "0/1"]


@BOTH_VERSIONS
def test_slots_that_a_decision_named_and_that_are_open_anew_are_aborted(version: int) -> None:
    operator = Operator(version)
    operator.commit(*operator.prepare())
    operator.prepare(1)
    operator.run(open_transactions.abort_manually(operator.sink))
    assert (operator.kafka.visible, operator.kafka.aborted) == (["0/0", "0/1"], ["1/0", "1/1"])


@BOTH_VERSIONS
def test_a_driver_that_decides_at_any_moment_of_an_abort_is_whole_or_fenced(version: int) -> None:
    for moment in range(1, 8):
        operator = Operator(version)
        facts, done = operator.prepare()
        aborting = open_transactions.abort_manually(operator.sink)
        effects = next(aborting)
        try:
            for _ in range(moment):
                effects = aborting.send([operator.execute(effect) for effect in effects])
        except StopIteration:
            break
        with pytest.raises((DriverFenced, TransactionTimedOut)):
            operator.commit(facts, done)
        assert operator.kafka.visible == []


SLOTS = 3
ROWS = [f"0/{slot}" for slot in range(SLOTS)]
LONG = {"metadata_max_characters": 48}


def written(version: int, **sink: Any) -> tuple[Exchange, Facts]:
    exchange = Exchange(version, is_new=True)
    exchange.sink = replace(exchange.sink, comes_again=False, **sink)
    facts, done = exchange.tasks(SLOTS)
    exchange.commit(facts, done)
    return exchange, facts


def looked_at(exchange: Exchange) -> SinkTransactions:
    looked = exchange.run(look("orders.", exchange.touched(SLOTS)))
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


# --- a batch write that deletes its groups: what is left wherever it stops, and what that tells of the write ----------


@BOTH_VERSIONS
@pytest.mark.parametrize("is_long", [False, True])
def test_no_group_is_left(version: int, is_long: bool) -> None:
    exchange, facts = written(version, **LONG if is_long else {})
    assert (len(exchange.kafka.groups()) > 1 + SLOTS) is is_long
    exchange.rounds = 0
    exchange.requests.clear()
    exchange.run(forget(exchange.sink, facts.generation))
    # A decision whose markers are on their way is waited for.
    assert getattr(exchange.requests[0], "require_stable", False)
    assert exchange.kafka.groups() == set()
    assert is_long or exchange.rounds == 3
    found = looked_at(exchange)
    assert (found.is_forgotten, found.missing, found.open) == (True, (), ())


@BOTH_VERSIONS
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
        found = looked_at(exchange)
        assert found.missing == ()
        assert (found.decision is None) == found.is_forgotten
        exchange.run(planning.abort(exchange.sink, facts.generation))
        assert (exchange.kafka.visible, exchange.kafka.holding_back()) == (ROWS, [])
        assert looked_at(exchange).missing == ()
        if carried_out < step:
            return
        step += 1


def test_what_another_run_has_decided_since_is_left() -> None:
    exchange, facts = written(2)
    exchange.micro_batch(SLOTS, 1)
    before = exchange.kafka.groups()
    for generation in (facts.generation, Ids(1, 1)):
        exchange.run(forget(exchange.sink, generation))
        assert exchange.kafka.groups() == before


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NON_EMPTY_GROUP])
def test_who_may_not_delete_the_decision_deletes_nothing(code: int) -> None:
    exchange, facts = written(2)

    def refuse(request: Any) -> Any:
        if isinstance(request, apis.DeleteGroupsRequest):
            return apis.DeleteGroupsResponse(
                0, tuple(apis.DeletedGroup(group_id, code) for group_id in request.group_ids)
            )
        return None

    exchange.answer = refuse
    refused(exchange, forget(exchange.sink, facts.generation))
    assert (exchange.asked["DeleteGroups"], len(exchange.kafka.groups())) == (1, 1 + SLOTS)
