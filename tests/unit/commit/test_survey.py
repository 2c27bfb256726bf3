"""What an operator sees and ends, over a Kafka that is a value; real ones are in `tests/integration`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from kafka_sink.commit import survey as by_hand
from kafka_sink.commit import two_phase
from kafka_sink.commit.effects import Pause, Steps
from kafka_sink.commit.exchanges import check_generation, read_decision
from kafka_sink.commit.hanging import PAUSES_MS
from kafka_sink.commit.markers import Ids, Marker, Names
from kafka_sink.commit.sink import Facts, Sink, SlotPrepared
from kafka_sink.commit.survey import OpenProducer, Seen, Survey
from kafka_sink.errors import DecisionPending, DriverFenced, TransactionRefused, TransactionTimedOut
from kafka_sink.protocol.error_codes import ErrorCode
from kafka_sink.protocol.transactions import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResult,
    ProducersOfPartition,
    TransactionDescription,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from model.logical_kafka import LogicalKafka, Produce

Result = TypeVar("Result")
PARTITIONS = (("t", 0), ("t", 1))
VERSIONS = pytest.mark.parametrize("version", [1, 2])


class Cluster:
    """Runs steps against a Kafka. `answer` may give another answer than Kafka's."""

    def __init__(self, version: int = 2) -> None:
        self.sink = Sink(Names("orders", "commits"), 60_000, version, bootstrap_servers="b:9092")
        self.kafka = LogicalKafka(version)
        self.asked: Counter[str] = Counter()
        self.pauses_ms: list[int] = []
        self.answer: Callable[[Any], Any] = lambda request: None

    def run(self, steps: Steps[Result]) -> Result:
        answers: list[Any] | None = None
        while True:
            try:
                effects = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                result: Result = end.value
                return result
            answers = [self.execute(effect) for effect in effects]

    def execute(self, effect: Any) -> Any:
        if isinstance(effect, Pause):
            self.pauses_ms.append(effect.milliseconds)
            return None
        self.asked[type(effect.request).__name__.removesuffix("Request")] += 1
        answer = self.answer(effect.request)
        return answer if answer is not None else self.kafka.execute(effect)

    def prepare(self, micro_batch_id: int = 0) -> tuple[Facts, list[SlotPrepared]]:
        facts = self.run(two_phase.plan(self.sink))
        done = []
        for slot in (0, 1):
            begin = two_phase.begin(self.sink, facts, slot=slot, micro_batch_id=micro_batch_id, query_id="q")
            begun = self.run(begin)
            name, row = self.sink.names.slot(slot), f"{micro_batch_id}/{slot}"
            self.kafka.execute(Produce(name, begun.ids.producer_id, begun.ids.producer_epoch, slot, (row,)))
            self.run(two_phase.prepare(self.sink, begun, Marker(micro_batch_id, "q", row)))
            done.append(SlotPrepared(slot, begun.ids, "q", row, None, (("t", slot),)))
        return facts, done

    def commit(self, facts: Facts, done: list[SlotPrepared], micro_batch_id: int = 0) -> Steps[None]:
        return two_phase.commit(self.sink, facts, done, micro_batch_id=micro_batch_id, now_ms=0)

    def decide(self, micro_batch_id: int = 0) -> list[SlotPrepared]:
        """As far as the decision; there the driver dies."""
        facts, done = self.prepare(micro_batch_id)
        steps = self.commit(facts, done, micro_batch_id)
        effects = next(steps)
        while not (len(effects) == 2 and isinstance(effects[0].request, EndTxnRequest)):  # type: ignore[union-attr]
            effects = steps.send([self.execute(effect) for effect in effects])
        return done

    def survey(self, partitions: tuple[tuple[str, int], ...] = PARTITIONS) -> Survey:
        seen = self.run(by_hand.look(self.sink, "orders.", partitions))
        return self.run(by_hand.survey(self.sink, seen))


# --- looking ----------------------------------------------------------------------------------------------------------


def test_of_a_sink_that_nobody_used_there_is_nothing() -> None:
    found = Cluster().survey()
    assert (found.decision, found.open, found.hanging, found.unknown, found.missing) == (None, (), (), (), ())


def test_what_is_open_now_is_told_without_asking_leaders() -> None:
    cluster = Cluster()
    assert cluster.run(by_hand.open_now("ord")) == {}
    facts, done = cluster.prepare()
    cluster.asked.clear()
    found = cluster.run(by_hand.open_now("ord"))
    assert {name: each.state for name, each in found.items()} == {"orders.0": "Ongoing", "orders.1": "Ongoing"}
    assert set(cluster.asked) == {"ListTransactions", "DescribeTransactions"}
    cluster.run(cluster.commit(facts, done))
    assert cluster.run(by_hand.open_now("ord")) == {}


def test_brokers_that_do_not_list_are_an_error_and_not_nothing() -> None:
    cluster = Cluster()
    cluster.answer = lambda request: (
        [ListTransactionsResponse(0, ErrorCode.UNKNOWN_SERVER_ERROR, ())]
        if isinstance(request, ListTransactionsRequest)
        else None
    )
    with pytest.raises(TransactionRefused, match="ListTransactions"):
        cluster.run(by_hand.open_now("ord"))


@pytest.mark.parametrize(
    ("name", "sink"),
    [("orders.0", "orders"), ("orders.driver", "orders"), ("a.b.12", "a.b"), ("orders", None), ("orders.x", None)],
)
def test_a_transactional_id_tells_its_sink(name: str, sink: str | None) -> None:
    assert by_hand.sink_named(name) == sink


@VERSIONS
def test_what_is_prepared_is_open_and_looking_neither_waits_for_it_nor_changes_it(version: int) -> None:
    cluster = Cluster(version)
    facts, done = cluster.prepare()
    cluster.asked.clear()
    found = cluster.survey()
    assert [(each.transactional_id, each.slot, each.ids) for each in found.undecided] == [
        ("orders.0", 0, done[0].ids), ("orders.1", 1, done[1].ids)
    ]  # fmt: skip
    held = [(each.topic, each.partition, each.start_offset) for each in found.open[1].holds]
    assert held == [("t", 1, 0)]
    assert set(cluster.asked) == {"ListTransactions", "DescribeTransactions", "DescribeProducers", "OffsetFetch"}
    cluster.run(cluster.commit(facts, done))
    found = cluster.survey()
    assert (found.open, found.missing, found.decision and found.decision.micro_batch_id) == ((), (), 0)


def test_what_is_decided_is_told_from_what_is_not() -> None:
    cluster = Cluster()
    cluster.run(cluster.commit(*cluster.prepare()))
    assert [each.slot for each in cluster.survey().undecided] == []
    cluster.prepare(1)
    found = cluster.survey()
    assert ([each.slot for each in found.undecided], found.decided, found.missing) == ([0, 1], (), ())
    cluster.decide(1)
    found = cluster.survey()
    assert (found.undecided, [each.slot for each in found.decided], found.missing) == ((), [0, 1], (0, 1))


def test_a_driver_that_is_deciding_has_something_open_of_its_own() -> None:
    cluster = Cluster()
    steps = cluster.commit(*cluster.prepare())
    effects = next(steps)
    while not isinstance(effects[0].request, EndTxnRequest):  # type: ignore[union-attr]
        effects = steps.send([cluster.execute(effect) for effect in effects])
    found = cluster.survey()
    assert [each.transactional_id for each in found.undecided] == ["orders.driver", "orders.0", "orders.1"]
    assert found.undecided[0].slot is None


def test_partitions_that_are_not_looked_at_are_held_back_from_nobody_knows_where() -> None:
    cluster = Cluster()
    cluster.prepare()
    found = cluster.survey(())
    assert [each.holds[0].start_offset for each in found.open] == [None, None]
    assert cluster.asked["DescribeProducers"] == 0


def test_partitions_whose_leaders_refuse_are_told() -> None:
    cluster = Cluster()
    refusal = ProducersOfPartition("t", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, ())
    answer = DescribeProducersResponse(0, (refusal,))
    cluster.answer = lambda request: answer if isinstance(request, DescribeProducersRequest) else None
    assert cluster.survey().refused == {("t", 1): "TOPIC_AUTHORIZATION_FAILED"}


def test_a_list_that_is_refused_is_not_an_empty_one() -> None:
    cluster = Cluster()
    answer = [ListTransactionsResponse(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())]
    cluster.answer = lambda request: answer if isinstance(request, ListTransactionsRequest) else None
    with pytest.raises(TransactionRefused, match="ListTransactions"):
        cluster.survey()


def description(state: str, ids: Ids, transactional_id: str = "orders.0") -> TransactionDescription:
    return TransactionDescription(transactional_id, 0, state, 60_000, 5, ids.producer_id, ids.producer_epoch, ())


def seen(*descriptions: TransactionDescription, opened: Ids | None = None) -> Seen:
    producers = () if opened is None else (OpenProducer("t", 7, opened, 17, -1),)
    return Seen({each.transactional_id: each for each in descriptions}, producers, {})


def test_sinks_with_something_open_are_told_by_the_form_of_ids() -> None:
    def named(transactional_id: str, state: str, producer_id: int = 1) -> TransactionDescription:
        return description(state, Ids(producer_id, 0), transactional_id)

    found = seen(
        named("a.0", "Ongoing"), named("a.b.12", "PrepareCommit"), named("c.driver", "Ongoing"), named("d.0", "Empty"),
        named("e.0", "CompleteCommit", 9), named("f-0", "Ongoing"), named(".0", "Ongoing"),
        opened=Ids(9, 0),
    )  # fmt: skip
    assert found.busy_sinks() == ["a", "a.b", "c", "e"]


def test_a_sink_has_its_slots_in_their_order_and_no_others() -> None:
    names = ["orders.10", "orders.9", "orders.eu.1", "orders.driver", "orders-eu.1", "orders.x"]
    found = seen(*(description("Empty", Ids(1, 0), name) for name in names))
    assert list(found.of(Cluster().sink)) == ["orders.driver", "orders.9", "orders.10"]


COMMITTED, UNKNOWN, NONE = "committed", "unknown", "does not hang"


@pytest.mark.parametrize(
    ("version", "state", "epoch", "expected"),
    [
        # The leader has epoch 5 open. Version 2 raises the epoch with the end of a transaction.
        (2, "Ongoing", 5, NONE),
        (2, "PrepareCommit", 6, NONE),
        (2, "PrepareAbort", 6, NONE),
        (2, "CompleteCommit", 6, COMMITTED),
        (2, "CompleteAbort", 6, UNKNOWN),
        (2, "CompleteCommit", 7, UNKNOWN),
        (2, "Ongoing", 7, UNKNOWN),
        (2, "PrepareCommit", 7, UNKNOWN),
        (2, "Empty", 6, UNKNOWN),
        # Begun after the coordinator was asked.
        (2, "Empty", 5, NONE),
        (2, "CompleteCommit", 4, NONE),
        (1, "Ongoing", 5, NONE),
        (1, "PrepareCommit", 5, NONE),
        (1, "CompleteCommit", 5, COMMITTED),
        (1, "CompleteAbort", 5, UNKNOWN),
        (1, "CompleteCommit", 6, UNKNOWN),
        (1, "Empty", 5, NONE),
        (1, "Ongoing", 6, UNKNOWN),
    ],
)
def test_what_leaders_have_open_and_coordinators_not_hangs(
    version: int, state: str, epoch: int, expected: str
) -> None:
    cluster = Cluster(version)
    found = cluster.run(
        by_hand.survey(cluster.sink, seen(description(state, Ids(77, epoch)), opened=Ids(77, 5)))
    )
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
    cluster = Cluster()
    found = cluster.run(by_hand.survey(cluster.sink, seen(description("Empty", Ids(77, 6)), opened=Ids(78, 5))))
    assert (found.hanging, found.unknown) == ((), ())


@pytest.mark.parametrize("producer_id_is_spent", [False, True])
@pytest.mark.parametrize("is_visible", [False, True])
def test_a_marker_tells_of_what_was_pinned_whatever_the_slot_did_since(
    is_visible: bool, producer_id_is_spent: bool
) -> None:
    cluster = Cluster()
    done = cluster.decide()
    ids = done[0].ids
    if is_visible:
        decision = cluster.run(read_decision(cluster.sink))
        assert decision is not None
        cluster.run(two_phase.finish(cluster.sink, decision))
    else:
        cluster.kafka.abort_by_hand("orders.0")
    later = Ids(ids.producer_id + 500, 0) if producer_id_is_spent else Ids(ids.producer_id, ids.producer_epoch + 9)
    found = cluster.run(by_hand.survey(cluster.sink, seen(description("Ongoing", later), opened=ids)))
    assert (len(found.hanging), len(found.unknown)) == ((1, 0) if is_visible else (0, 1))


# --- finishing --------------------------------------------------------------------------------------------------------


def finish(cluster: Cluster) -> tuple[Survey, list[str]]:
    cluster.asked.clear()
    found, refused = cluster.run(by_hand.finish_by_hand(cluster.sink, PARTITIONS))
    # Whoever Inits an id fences its owner.
    assert cluster.asked["InitProducerId"] == 0
    return found, list(refused.values())


@VERSIONS
def test_what_is_decided_is_committed_and_once_more_does_no_harm(version: int) -> None:
    cluster = Cluster(version)
    cluster.decide()
    for _ in range(2):
        found, refused = finish(cluster)
        assert (found.missing, found.open, refused) == ((), (), [])
        assert cluster.kafka.visible == ["0/0", "0/1"]


def test_nothing_decided_is_nothing_to_finish() -> None:
    cluster = Cluster()
    facts, done = cluster.prepare()
    found, _ = finish(cluster)
    assert [each.slot for each in found.undecided] == [0, 1]
    assert cluster.asked["EndTxn"] == 0
    cluster.run(cluster.commit(facts, done))


def test_a_driver_that_runs_is_not_disturbed() -> None:
    cluster = Cluster()
    cluster.run(cluster.commit(*cluster.prepare()))
    facts, done = cluster.prepare(1)
    finish(cluster)
    cluster.run(cluster.commit(facts, done, 1))
    assert cluster.kafka.visible == ["0/0", "0/1", "1/0", "1/1"]


def test_coordinators_that_are_at_work_are_waited_for() -> None:
    cluster = Cluster()
    cluster.decide()
    at_work = iter([description("PrepareCommit", Ids(1, 1))] * 3)

    def answer(request: Any) -> Any:
        if not isinstance(request, DescribeTransactionsRequest) or request.transactional_ids != ("orders.0",):
            return None
        each = next(at_work, None)
        return each and DescribeTransactionsResponse(0, (each,))

    cluster.answer = answer
    finish(cluster)
    assert cluster.pauses_ms == list(PAUSES_MS[:3])


@VERSIONS
def test_what_hangs_is_committed(version: int) -> None:
    cluster = Cluster(version)
    cluster.decide()
    cluster.kafka.lose_marker(1)
    found, refused = finish(cluster)
    assert (found.hanging, refused, cluster.kafka.visible) == ((), [], ["0/0", "0/1"])


def test_a_marker_that_is_refused_is_told() -> None:
    cluster = Cluster()
    cluster.decide()
    cluster.kafka.lose_marker(1)
    denied = WriteTxnMarkersResponse((PartitionResult("t", 1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),))
    cluster.answer = lambda request: denied if isinstance(request, WriteTxnMarkersRequest) else None
    found, refused = finish(cluster)
    assert [each.transactional_id for each in found.hanging] == ["orders.1"]
    assert refused == ["WriteTxnMarkers was refused: CLUSTER_AUTHORIZATION_FAILED"]


def test_what_is_not_known_to_be_committed_gets_no_marker() -> None:
    cluster = Cluster()
    done = cluster.decide()
    cluster.kafka.abort_by_hand("orders.1")
    unended = ActiveProducer(done[1].ids.producer_id, done[1].ids.producer_epoch, 17)
    answer = DescribeProducersResponse(0, (ProducersOfPartition("t", 1, 0, None, (unended,)),))
    cluster.answer = lambda request: answer if isinstance(request, DescribeProducersRequest) else None
    found, _ = finish(cluster)
    assert (len(found.unknown), found.missing, cluster.asked["WriteTxnMarkers"]) == (1, (1,), 0)


# --- aborting ---------------------------------------------------------------------------------------------------------


@VERSIONS
def test_what_nobody_decided_is_aborted_and_the_driver_fenced(version: int) -> None:
    cluster = Cluster(version)
    facts, _ = cluster.prepare()
    aborted = cluster.run(by_hand.abort_by_hand(cluster.sink))
    assert [each.transactional_id for each in aborted] == ["orders.0", "orders.1"]
    assert (cluster.kafka.aborted, cluster.survey().open) == (["0/0", "0/1"], ())
    with pytest.raises(DriverFenced):
        cluster.run(check_generation(cluster.sink, facts.generation))
    assert cluster.run(by_hand.abort_by_hand(cluster.sink)) == []


@VERSIONS
def test_what_a_decision_names_is_never_aborted(version: int) -> None:
    cluster = Cluster(version)
    cluster.decide()
    with pytest.raises(DecisionPending) as raised:
        cluster.run(by_hand.abort_by_hand(cluster.sink))
    assert (raised.value.micro_batch_id, raised.value.slots) == (0, (0, 1))
    assert raised.value.command == (
        "pykafka transactions repair --bootstrap-servers b:9092 --prefix orders --commit-topic commits"
    )
    assert cluster.kafka.holding_back() == ["orders.0", "orders.1"]
    finish(cluster)
    assert cluster.kafka.visible == ["0/0", "0/1"]


@VERSIONS
def test_slots_that_a_decision_named_and_that_are_open_anew_are_aborted(version: int) -> None:
    cluster = Cluster(version)
    cluster.run(cluster.commit(*cluster.prepare()))
    cluster.prepare(1)
    cluster.run(by_hand.abort_by_hand(cluster.sink))
    assert (cluster.kafka.visible, cluster.kafka.aborted) == (["0/0", "0/1"], ["1/0", "1/1"])


@VERSIONS
def test_a_driver_that_decides_at_any_moment_of_an_abort_is_whole_or_fenced(version: int) -> None:
    for moment in range(1, 8):
        cluster = Cluster(version)
        facts, done = cluster.prepare()
        aborting = by_hand.abort_by_hand(cluster.sink)
        effects = next(aborting)
        try:
            for _ in range(moment):
                effects = aborting.send([cluster.execute(effect) for effect in effects])
        except StopIteration:
            break
        with pytest.raises((DriverFenced, TransactionTimedOut)):
            cluster.run(cluster.commit(facts, done))
        assert cluster.kafka.visible == []
