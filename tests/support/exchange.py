"""Runs steps of the two-phase commit against a model of Kafka, one after the other, and makes their arguments."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

import apis
from kafka_sink.commit import attempt, deciding, planning
from kafka_sink.commit.handover import Facts, Sink, SlotBegun, SlotPrepared
from kafka_sink.commit.markers import NOTHING_COMMITTED, Decision, Ids, Marker, Names
from kafka_sink.commit.replay import check_decision
from kafka_sink.commit.requests import (
    PARTITION,
    BrokerSetting,
    Effect,
    Pause,
    Result,
    Steps,
    ToCoordinator,
    ToEveryBroker,
    read_decision,
)
from kafka_sink.errors import AttemptFenced, ExactlyOnceError, TransactionRefused
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.logical_kafka import LAST_EPOCH, LogicalKafka, Produce

SINK = Sink(Names("orders", "pykafka-commits"), timeout_ms=60_000, transaction_version=2)
DECIDED_MS = 1_760_000_000_000
GENERATION = Ids(4000, 3)
BOTH_VERSIONS = pytest.mark.parametrize("version", [1, 2])


def prepared(*fingerprints: str) -> list[SlotPrepared]:
    return [SlotPrepared(slot, Ids(slot, 0), "q", text, visible=None) for slot, text in enumerate(fingerprints)]


def facts(micro_batch_id: int, visible: Mapping[int, str], *, slots: int = 2, query_id: str = "q") -> Facts:
    """Return Facts after a decision about `micro_batch_id`. Slots in `visible` have a marker with that fingerprint."""
    decision = Decision(micro_batch_id, query_id, GENERATION, 2, DECIDED_MS, (Ids(1, 1),) * slots)
    markers = {slot: Marker(micro_batch_id, query_id, fingerprint) for slot, fingerprint in visible.items()}
    return Facts(GENERATION, decision, markers)


def outcome(
    found: Facts, again: Sequence[SlotPrepared], micro_batch_id: int, *, allowed: bool = False, sink: Sink = SINK
) -> type[ExactlyOnceError] | None:
    try:
        check_decision(sink, found, again, micro_batch_id=micro_batch_id, allow_lost_state=allowed)
    except ExactlyOnceError as error:
        return type(error)
    return None


NOTHING = Facts(GENERATION, None, {})
WHOLE = {0: "a", 1: "b"}


class Exchange:
    """Runs steps against a model of Kafka. If `answer` returns an answer, Kafka does not see the request.
    `asked`: requests by API. `rounds`: how often the steps waited. `base_offsets`: of each partition's last rows.
    Unless `is_new` the sink has planned before and its slots have begun before, but nothing was committed."""

    def __init__(
        self, version: int = 2, answer: Callable[[Any], Any] = lambda request: None, *, is_new: bool = False,
        last_epoch: int = LAST_EPOCH, **sink: Any,
    ) -> None:  # fmt: skip
        self.sink = replace(SINK, transaction_version=version, **sink)
        self.kafka = LogicalKafka(version, last_epoch)
        self.asked: Counter[str] = Counter()
        self.requests: list[Any] = []
        self.pauses_ms: list[int] = []
        self.settings: dict[str, str] = {}
        self.base_offsets: dict[TopicPartition, int] = {}
        self.rounds = 0
        self.answer = answer
        if not is_new:
            names, (nothing,) = self.sink.names, Decision.nothing(Ids(0, 0), version).texts()
            markers = {names.slot(slot): NOTHING_COMMITTED.text for slot in range(10)}
            for group_id, text in (markers | {names.decision(0): nothing}).items():
                request = apis.OffsetCommitRequest(group_id, names.commit_topic, PARTITION, 0, text)
                self.kafka.execute(ToCoordinator(apis.CoordinatorKind.GROUP, group_id, request))

    def run(self, steps: Steps[Result], waits_for: Sequence[Effect] | None = None) -> Result:
        """Run `steps` to the end. If they have already begun, `waits_for` has the effects that they wait for."""
        answers = None if waits_for is None else [self.execute(effect) for effect in waits_for]
        while True:
            try:
                effects = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                result: Result = end.value
                return result
            self.rounds += 1
            answers = [self.execute(effect) for effect in effects]

    def run_until(self, steps: Steps[Any], is_there: Callable[[Sequence[Effect]], bool]) -> Sequence[Effect]:
        """Run until `is_there`; return the effects that the steps wait for. None of these effects has happened."""
        effects = next(steps)
        while not is_there(effects):
            effects = steps.send([self.execute(effect) for effect in effects])
        return effects

    def execute(self, effect: Effect) -> Any:
        if isinstance(effect, Pause):
            self.pauses_ms.append(effect.milliseconds)
            return None
        if isinstance(effect, BrokerSetting):
            return self.settings.get(effect.name)
        self.asked[type(effect.request).__name__.removesuffix("Request")] += 1
        self.requests.append(effect.request)
        answer = self.answer(effect.request)
        answers = answer if answer is not None else self.kafka.execute(effect)
        return [answers] if isinstance(effect, ToEveryBroker) and not isinstance(answers, list) else answers

    def task(self, found: Facts, micro_batch_id: int, slot: int, query_id: str = "q") -> SlotPrepared:
        """Run one attempt of a task, with one row and its acknowledgement."""
        begun = self.run(attempt.begin(self.sink, found, slot=slot, micro_batch_id=micro_batch_id, query_id=query_id))
        row = f"{micro_batch_id}/{slot}"
        if begun.visible is None:
            name = self.sink.names.slot(slot)
            produced = self.kafka.execute(Produce(name, begun.ids.producer_id, begun.ids.producer_epoch, slot, (row,)))
            self.base_offsets[TopicPartition("t", slot)] = produced.base_offset
            self.run(attempt.prepare(self.sink, begun, Marker(micro_batch_id, query_id, row)))
        return SlotPrepared(slot, begun.ids, query_id, row, begun.visible, (TopicPartition("t", slot),))

    def tasks(self, slots: int, micro_batch_id: int = 0) -> tuple[Facts, list[SlotPrepared]]:
        found = self.run(planning.plan(self.sink))
        return found, [self.task(found, micro_batch_id, slot) for slot in range(slots)]

    def decision(self) -> Decision:
        """What was decided last."""
        found = self.run(read_decision(self.sink))
        assert found is not None
        return found

    def committing(
        self, found: Facts, done: Sequence[SlotPrepared], micro_batch_id: int = 0, now_ms: int = 0, **given: Any
    ) -> Steps[None]:
        return deciding.commit(self.sink, found, done, micro_batch_id=micro_batch_id, now_ms=now_ms, **given)

    def commit(self, found: Facts, done: Sequence[SlotPrepared], micro_batch_id: int = 0, open_ms: int = 0) -> None:
        """`open_ms`: the time since the tasks' rows, by all clocks."""
        self.kafka.now_ms += open_ms
        self.run(self.committing(found, done, micro_batch_id, open_ms=open_ms))

    def beginning(self, found: Facts, slot: int = 0, micro_batch_id: int = 0, **given: Any) -> Steps[SlotBegun]:
        return attempt.begin(self.sink, found, slot=slot, micro_batch_id=micro_batch_id, query_id="q", **given)

    def touched(self, slots: int) -> list[TopicPartition]:
        """Return the partitions of these slots' rows."""
        return [TopicPartition("t", slot) for slot in range(slots)]

    def micro_batch(self, slots: int, micro_batch_id: int = 0) -> None:
        self.commit(*self.tasks(slots, micro_batch_id), micro_batch_id)

    def decided(self, slots: int, micro_batch_id: int = 0, *, but_one: bool = False) -> None:
        """A micro-batch whose driver died after its decision, before it ended a slot, or when it had ended one."""
        found, done = self.tasks(slots, micro_batch_id)
        ended = iter([not but_one] + [True] * slots)

        def dies(request: Any) -> None:
            if isinstance(request, apis.EndTxnRequest) and request.transactional_id != "orders.driver" and next(ended):
                raise Died

        self.answer = dies
        with pytest.raises(Died):
            self.commit(found, done, micro_batch_id)
        self.answer = lambda request: None


def after_tasks(slots: int, version: int = 2) -> tuple[Exchange, Facts, list[SlotPrepared]]:
    """All slots are prepared, and nothing is decided."""
    exchange = Exchange(version)
    return exchange, *exchange.tasks(slots)


def after_commit(slots: int, version: int = 2) -> Exchange:
    """A micro-batch is visible."""
    exchange = Exchange(version)
    exchange.micro_batch(slots)
    return exchange


def after_decision(slots: int, version: int = 2) -> Exchange:
    """The driver died after its decision."""
    exchange = Exchange(version)
    exchange.decided(slots)
    return exchange


def ends_both(effects: Sequence[Effect]) -> bool:
    """What a commit of two slots does once it has decided."""
    return [type(getattr(effect, "request", None)) for effect in effects] == [apis.EndTxnRequest, apis.EndTxnRequest]


def is_end_of(transactional_id: str) -> Callable[[Sequence[Effect]], bool]:
    def is_it(effects: Sequence[Effect]) -> bool:
        request = getattr(effects[0], "request", None)
        return isinstance(request, apis.EndTxnRequest) and request.transactional_id == transactional_id

    return is_it


class Died(Exception):
    pass


def instead(api: type, answer: Any, transactional_id: str | None = None) -> Callable[[Any], Any]:
    """Answers with `answer` to the requests of an API, or to those of a transactional id."""

    def answered(request: Any) -> Any:
        about = getattr(request, "transactional_id", None)
        return answer if isinstance(request, api) and transactional_id in (None, about) else None

    return answered


def said_of(
    transactional_id: str, ids: Ids | None = None, state: str = "Empty", code: int = 0
) -> apis.DescribeTransactionsResponse:
    """What a coordinator says of a transactional id. `ids`: None where it knows none."""
    named = (-1, -1) if ids is None else (ids.producer_id, ids.producer_epoch)
    said = apis.TransactionDescription(transactional_id, code, state, 60_000, 0, *named, ())
    return apis.DescribeTransactionsResponse(0, (said,))


FENCES = [
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
]  # fmt: skip
REFUSALS = [
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.ILLEGAL_GENERATION, ErrorCode.INVALID_TRANSACTION_TIMEOUT, 9999,
]  # fmt: skip


def refused(exchange: Exchange, steps: Steps[Any]) -> TransactionRefused:
    with pytest.raises(TransactionRefused) as raised:
        exchange.run(steps)
    return raised.value


def attempt_fails(exchange: Exchange, code: int, api: str, transactional_id: str = "orders.0") -> None:
    """Refused or fenced, as the code says, and the error says by which request."""
    with pytest.raises(AttemptFenced if code in FENCES else TransactionRefused, match=error_name(code)) as raised:
        exchange.tasks(1)
    error: Any = raised.value
    assert (error.api, error.transactional_id, getattr(error, "code", code)) == (api, transactional_id, code)
