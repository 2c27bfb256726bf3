"""Plans and commits of exactly-once writes, and what tasks of theirs count, over a model of Kafka's transactions."""

import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark import TaskContext

import apis
from exchange import Exchange
from kafka_sink import errors
from kafka_sink.commit import deciding, planning
from kafka_sink.commit.handover import Facts, Sink
from kafka_sink.commit.markers import Decision, Ids, Marker, Names, digest_of
from kafka_sink.commit.requests import PARTITION, ToCoordinator
from kafka_sink.doctor import examinations
from kafka_sink.kafka.producer.acknowledgements import PackedRuns
from kafka_sink.kafka.protocol.apis import transaction_state
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import given_options
from kafka_sink.records.bad_rows import columns_for_fingerprint
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.spark.exactly_once import commit, slot
from kafka_sink.spark.exactly_once import plan as of_spark
from kafka_sink.spark.exactly_once.commit import FORGET_MS, commit_micro_batch
from kafka_sink.spark.exactly_once.plan import (
    CountedCommitMessage,
    Plan,
    PreparedCommitMessage,
    batch_identity,
    plan_stream,
    remember,
)
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.task_results import Identity, TaskProof
from kafka_sink.spark.writer import ExactlyOnceBatch, ExactlyOnceStream, KafkaBatchWriter, KafkaStreamWriter
from scripted_kafka import HANG_UP, LiveNetwork, ScriptedKafka, ScriptedNetwork

WITHOUT_TOPIC = {"kafka.bootstrap.servers": "127.0.0.1:1", "deliveryGuarantee": "exactly-once"}
OPTIONS = {**WITHOUT_TOPIC, "topic": "t"}
GIVEN = given_options(OPTIONS)
NAMED = given_options({**OPTIONS, "transactionalIdPrefix": "orders"})
VERSIONED = given_options({**OPTIONS, "txnAppId": "orders", "txnVersion": "7"})
VERSION_7 = Identity("txnAppId:orders", 7, errors.WriteKind.VERSION)
ONCE = Identity("id", 0, errors.WriteKind.BATCH)
PLAN = Plan(Sink(Names("sink", "commits"), 60_000, 2), Facts(Ids(9, 1), None, {}), allow_lost_state=False, batch=None)
COMMIT_TOPIC = "pykafka-commits"
pytestmark = pytest.mark.usefixtures("clients")


@pytest.fixture
def kafka(exchange: Exchange) -> ScriptedKafka:
    made = ScriptedKafka(transactions=exchange.kafka)
    made.leaders = {("t", 0): 1, ("t", 1): 2, (COMMIT_TOPIC, 0): 1, (COMMIT_TOPIC, 1): 1}
    made.settings = {(1, "offsets.retention.minutes"): "10080", (1, "transactional.id.expiration.ms"): "604800000"}
    return made


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a task of micro-batch 0 and of Spark partition 0; it may be changed."""
    conf = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    made = SimpleNamespace(partitionId=lambda: 0, stageId=int, attemptNumber=int, _localProperties=conf)
    monkeypatch.setattr(TaskContext, "get", lambda: made)
    return made


@pytest.fixture
def task(context: Any) -> dict[str, str]:
    """The conf that it knows."""
    conf: dict[str, str] = context._localProperties
    return conf


def write_slot(plan: Plan, given: Any = GIVEN, rows: Iterable[pa.RecordBatch] = ()) -> Any:
    """What a task sends to the commit."""
    return slot.write_slot(given, plan, InterceptorChain(()), iter(rows))


def receipts(exchange: Exchange, slots: int = 2, *, batch: Identity | None = None) -> list[PreparedCommitMessage]:
    """What the tasks of micro-batch 0 send to the commit: their rows are acknowledged and nobody sees them."""
    facts, done = exchange.tasks(slots)
    plan = Plan(exchange.sink, facts, False, batch)
    return [
        PreparedCommitMessage(
            each.slot, 1, (), prepared=each, sink_name=plan.sink.names.sink, generation=plan.facts.generation,
            micro_batch_id=0, plan=plan if each.slot == 0 else None,
        )
        for each in done
    ]  # fmt: skip


def planned_in(writer: KafkaBatchWriter | KafkaStreamWriter) -> Plan:
    assert isinstance(writer.guarantee, ExactlyOnceBatch | ExactlyOnceStream)
    return writer.guarantee.planned


def store(exchange: Exchange, facts: Facts) -> None:
    """The decision and the markers, as an earlier run would have left them."""
    names, decision = exchange.sink.names, facts.decision
    offsets = {names.slot(slot): (marker.micro_batch_id, marker.text) for slot, marker in facts.markers.items()}
    offsets |= {names.decision(part): (decision.micro_batch_id, text) for part, text in enumerate(decision.texts())}
    for group_id, (offset, text) in offsets.items():
        request = apis.OffsetCommitRequest(group_id, COMMIT_TOPIC, PARTITION, offset, text)
        exchange.kafka.execute(ToCoordinator(apis.CoordinatorKind.GROUP, group_id, request))


def test_every_batch_write_has_a_name_and_transactions_of_its_own() -> None:
    of_receipts = given_options({**OPTIONS, "receiptName": "orders-1"})
    for given, start in ((GIVEN, "pykafka-batch."), (NAMED, "orders."), (of_receipts, "pykafka-batch.")):
        one, other = batch_identity(given), batch_identity(given)
        assert one[0].startswith(start) and other[0].startswith(start) and "orders-1" not in one[0]
        assert one[0] != other[0] and one[1].query_id != other[1].query_id
    assert one[1].named == other[1].named == "orders-1"
    # Kept for ever: a release that derives another query doubles what was committed before.
    assert batch_identity(VERSIONED) == batch_identity(VERSIONED) == ("orders", VERSION_7)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The checkpoints of the plans that are made."""
    made: list[Any] = []
    for name in ("plan_batch", "plan_stream"):
        monkeypatch.setattr(of_spark, name, lambda given, checkpoint=None: made.append(checkpoint) or PLAN)
    return made


@pytest.mark.parametrize("checkpoint", ["/data/checkpoint", None])
def test_a_write_is_planned_when_its_writer_is_pickled_and_once(plans: list[Any], checkpoint: str | None) -> None:
    writer = KafkaStreamWriter(GIVEN, checkpoint=checkpoint) if checkpoint else KafkaBatchWriter(GIVEN)
    assert plans == []
    again = pickle.loads(pickle.dumps(writer))
    pickle.dumps(writer)
    assert plans == [checkpoint]
    assert planned_in(again) == PLAN
    # Who unpickles it runs tasks, and who pickles it on takes the plan along.
    pickle.dumps(again)
    assert len(plans) == 1


def test_a_plan_ends_where_brokers_lack_a_request_before_it_makes_anything(kafka: ScriptedKafka) -> None:
    with pytest.raises(errors.MissingOption, match="as an option of the write"):
        plan_stream(given_options({"deliveryGuarantee": "exactly-once"}), None)
    kafka.leaders, kafka.lacking = {}, ("DescribeTransactions 0 to 0 (Kafka 3.0): it has none",)
    with pytest.raises(errors.BrokerUnsupported, match=r"DescribeTransactions.*deliveryGuarantee=at-least-once"):
        pickle.dumps(KafkaStreamWriter(NAMED | given_options({"createTopics": "true"})))
    assert kafka.received == []


def test_a_plan_makes_the_commit_topic_where_it_is_missing(kafka: ScriptedKafka) -> None:
    kafka.leaders = {("t", 0): 1}
    pickle.dumps(KafkaStreamWriter(NAMED))
    ((_, request),) = kafka.asked(apis.CreateTopicsRequest)
    assert (request.topic, request.partition_count) == (COMMIT_TOPIC, 2)
    # The next one finds it.
    pickle.dumps(KafkaStreamWriter(NAMED))
    assert len(kafka.asked(apis.CreateTopicsRequest)) == 1


@pytest.mark.parametrize(("topics", "looked_at"), [
    (("t",), [("t", 0), ("t", 1)]), (("t", "u"), [("t", 0), ("u", 0), ("t", 1), ("u", 1)]),
    (("gone", "t", "too"), [("t", 0), ("t", 1)]), (("gone", "too"), []), (("forbidden", "t"), [("t", 0), ("t", 1)]),
    ((), []), (None, []),
])  # fmt: skip
def test_a_run_looks_for_what_hangs_of_the_last_decision(
    exchange: Exchange, kafka: ScriptedKafka, topics: tuple[str, ...] | None, looked_at: list[tuple[str, int]]
) -> None:
    """In the topics where it said that its rows are, whatever this run's are."""
    # One of each has no leader at first.
    kafka.leaders |= {("t", 1): -1, ("u", 0): 1, ("u", 1): -1}
    kafka.at = [(5_000, lambda: kafka.leaders.update({("t", 1): 2, ("u", 1): 2}))]
    kafka.topic_codes = {"forbidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    decided = after(7, "x")
    decided = replace(decided, decision=None if topics is None else replace(decided.decision, topics=topics))
    if topics is not None:
        store(exchange, decided)
    given = given_options({**WITHOUT_TOPIC, "transactionalIdPrefix": "orders"})
    assert plan_stream(given, None).facts.decision == decided.decision
    asked = [each for _, request in kafka.asked(apis.DescribeProducersRequest) for each in request.partitions]
    assert sorted(asked) == sorted(looked_at)


@pytest.mark.parametrize(("option", "rows", "topics"), [
    ("t", 3, ("t",)), ("t", 0, ()), (None, 3, ("a", "b")), (None, 0, ()),
])  # fmt: skip
def test_rows_that_are_visible_are_counted_and_their_topics_told(
    exchange: Exchange, kafka: ScriptedKafka, task: dict[str, str], option: str | None, rows: int,
    topics: tuple[str, ...],
) -> None:  # fmt: skip
    """A transaction may hang on any partition of these topics."""
    kafka.leaders |= dict.fromkeys([("a", 0), ("b", 0), ("b", 1)], 1)
    exchange.micro_batch(1)
    facts, _ = exchange.tasks(0)
    columns = {"value": pa.array(["x", "y", "x"]), "topic": pa.array(["b", "a", "b"])}
    given = given_options(OPTIONS if option else WITHOUT_TOPIC)
    counted = write_slot(Plan(exchange.sink, facts, False, None), given, [pa.record_batch(columns).slice(0, rows)] * 2)
    assert isinstance(counted, PreparedCommitMessage)
    assert (counted.record_count, counted.partitions) == (2 * rows, ())
    assert counted.prepared.partitions == tuple(each for each in sorted(kafka.leaders) if each[0] in topics)
    assert set(counted.topic_ids) == set(topics)
    assert kafka.asked(apis.ProduceRequest) == []
    # No producer id, which only rows need.
    assert all(request.transactional_id for _, request in kafka.asked(apis.InitProducerIdRequest))


def test_a_task_without_rows_asks_no_broker_once_its_slot_has_committed(
    exchange: Exchange, kafka: ScriptedKafka, context: Any, task: dict[str, str]
) -> None:
    exchange.micro_batch(3)
    facts, (first,) = exchange.tasks(1, 1)
    plan, asked = Plan(exchange.sink, facts, False, None), len(kafka.received)
    task["streaming.sql.batchId"] = "1"
    messages = []
    for slot_number in (1, 2):
        context.partitionId = Mock(return_value=slot_number)
        messages.append(write_slot(plan))
    assert len(kafka.received) == asked
    assert [(each.record_count, each.prepared.rests, each.plan) for each in messages] == [(0, True, None)] * 2
    began = replace(messages[0], spark_partition_id=0, record_count=1, prepared=first, plan=plan)
    KafkaStreamWriter(GIVEN).commit([began, *messages], 1)
    assert (exchange.kafka.visible, exchange.decision().resting) == (["0/0", "0/1", "0/2", "1/0"], {1, 2})


def test_a_task_that_is_tried_again_takes_its_slot_over_though_it_has_no_rows(
    exchange: Exchange, context: Any, task: dict[str, str]
) -> None:
    """Its first attempt found rows, and its executor was lost. It may live on."""
    exchange.micro_batch(2)
    facts, (first,) = exchange.tasks(1, 1)
    lost, plan = exchange.task(facts, 1, 1), Plan(exchange.sink, facts, False, None)
    task["streaming.sql.batchId"] = "1"
    context.partitionId, context.attemptNumber = lambda: 1, lambda: 1
    again = write_slot(plan)
    assert (again.prepared.rests, again.prepared.ids.producer_epoch > lost.ids.producer_epoch) == (False, True)
    began = replace(again, spark_partition_id=0, record_count=1, prepared=first, plan=plan)
    KafkaStreamWriter(GIVEN).commit([began, again], 1)
    assert (exchange.kafka.visible, exchange.kafka.aborted) == (["0/0", "0/1", "1/0"], ["1/1"])


def test_what_is_done_before_a_decision_makes_transactions_older(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, *others = receipts(exchange)
    assert began.plan is not None
    plan = replace(began.plan, planned_ms=1_000, sink=replace(began.plan.sink, is_derived=True))
    clock = SimpleNamespace(now_ms=5_000)
    monkeypatch.setattr(commit, "monotonic_ms", lambda: clock.now_ms)

    def is_slow(client: object, steps: Any) -> None:
        clock.now_ms += 30_000
        steps.close()

    monkeypatch.setattr(commit, "run", is_slow)
    committing = Mock(wraps=deciding.commit)
    monkeypatch.setattr(deciding, "commit", committing)
    commit_micro_batch(GIVEN, [replace(began, plan=plan), *others])
    assert committing.call_args.kwargs["open_ms"] == 34_000


def test_task_and_commit_are_in_the_cluster_of_their_plan(
    exchange: Exchange, kafka: ScriptedKafka, task: dict[str, str], network: LiveNetwork
) -> None:
    """Three processes may meet three clusters behind the same addresses."""
    exchange.sink = replace(exchange.sink, cluster_id="c")
    (message,) = receipts(exchange, 1)

    # Between the begin of the slot's transaction and its rows. The connections end, and others are made.
    def move(request: apis.InitProducerIdRequest) -> int:
        kafka.cluster_id = "d"
        network.expect("c")
        return 0

    kafka.script(apis.InitProducerIdRequest, move)
    for _ in range(2):
        with pytest.raises(errors.ClusterChanged):
            write_slot(message.plan, rows=[rows("x")])
        assert len(kafka.asked(apis.InitProducerIdRequest)) == 1
    with pytest.raises(errors.ClusterChanged, match="Whether the last request was carried out is unknown"):
        commit_micro_batch(GIVEN, [message])
    assert len(kafka.asked(apis.InitProducerIdRequest)) == 1
    assert kafka.asked(apis.ProduceRequest) == [] == kafka.asked(apis.EndTxnRequest)


def test_a_commit_goes_by_the_plan_that_the_first_message_brings(exchange: Exchange, kafka: ScriptedKafka) -> None:
    """And its decision says which topics its rows are in."""
    kafka.leaders["u", 0] = 1
    first, second = receipts(exchange)
    ids, touched = {"t": str(uuid.UUID(int=1))}, replace(second.prepared, partitions=(("t", 1), ("u", 0)))
    told = [replace(first, topic_ids=ids), replace(second, topic_ids={**ids, "u": None}, prepared=touched)]
    KafkaStreamWriter(GIVEN).commit(told, 0)
    assert sorted(exchange.kafka.visible) == ["0/0", "0/1"]
    decision = exchange.decision()
    assert (decision.micro_batch_id, decision.generation) == (0, first.generation)
    assert decision.pinned == (first.prepared.ids, second.prepared.ids)
    assert (decision.topics, decision.topic_ids) == (("t", "u"), ids)


def test_a_commit_of_many_slots_says_once_what_makes_it_faster(
    exchange: Exchange, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_WARNED", set())
    KafkaStreamWriter(GIVEN).commit(receipts(exchange), 0)
    assert "slots" not in caplog.text
    monkeypatch.setattr(commit, "MANY", 1)
    for _ in range(2):
        KafkaStreamWriter(GIVEN).commit(receipts(exchange), 0)
    (told,) = caplog.messages
    assert "it has 2 slots" in told and "coalesce" in told


def with_proof(messages: Sequence[PreparedCommitMessage], path: Path) -> list[PreparedCommitMessage]:
    proof = TaskProof(str(path), Identity("q", 0, errors.WriteKind.STREAM), "exactly-once", 1, 2, PackedRuns())
    return [replace(each, record_count=0, proof=proof) for each in messages]


def files_in(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()]


def test_the_receipt_is_written_before_the_decision(exchange: Exchange, kafka: ScriptedKafka, tmp_path: Path) -> None:
    messages = with_proof(receipts(exchange), tmp_path)
    found: list[int] = []
    kafka.always(apis.TxnOffsetCommitRequest, lambda request: found.append(len(files_in(tmp_path))) or 0)
    KafkaStreamWriter(GIVEN).commit(messages, 0)
    assert found == [1]
    assert sorted(exchange.kafka.visible) == ["0/0", "0/1"]


def decides(kafka: ScriptedKafka) -> bool:
    """Whether it was asked for anything that a decision takes."""
    return any(kafka.asked(api) for api in (apis.TxnOffsetCommitRequest, apis.EndTxnRequest))


def test_nothing_is_decided_without_the_receipt(exchange: Exchange, kafka: ScriptedKafka, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ReceiptNotWritten) as failure:
        KafkaStreamWriter(GIVEN).commit(with_proof(receipts(exchange), tmp_path / "file"), 0)
    assert len(kafka.asked(apis.DescribeTransactionsRequest)) == 1
    assert not decides(kafka)
    assert "the micro-batch runs again and is written once" in str(failure.value)


def test_who_may_not_decide_writes_no_receipt(exchange: Exchange, kafka: ScriptedKafka, tmp_path: Path) -> None:
    """A replay of other rows than those that are visible, and a run that lost the sink."""
    first, second = with_proof(receipts(exchange), tmp_path)
    other = replace(first.prepared, visible=Marker(0, "q", "of other rows"))
    with pytest.raises(errors.NonDeterministicReplay):
        KafkaStreamWriter(GIVEN).commit([replace(first, prepared=other), second], 0)
    assert not decides(kafka)
    exchange.run(planning.plan(exchange.sink))
    with pytest.raises(errors.DriverFenced):
        KafkaStreamWriter(GIVEN).commit([first, second], 0)
    assert files_in(tmp_path) == []


OLD, NEW = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
TOLD = f"topic 't' was deleted and created again after micro-batch 0 was decided (topic id {OLD} is now {NEW})"


@pytest.mark.parametrize(("query_id", "micro_batch_id", "visible", "topic_ids", "warned"), [
    ("q", 0, True, {"t": NEW}, True), ("q", 0, True, {"t": OLD}, False),
    # Brokers without ids; a decision without.
    ("q", 0, True, {"t": None}, False), ("q", 0, True, {"u": NEW}, False),
    # Its rows are written now.
    ("q", 0, False, {"t": NEW}, False),
    # Another's.
    ("q", 3, True, {"t": NEW}, False), ("r", 0, True, {"t": NEW}, False),
])  # fmt: skip
def test_a_replay_warns_of_topics_that_took_its_rows_with_them(
    exchange: Exchange, caplog: pytest.LogCaptureFixture, query_id: str, micro_batch_id: int, visible: bool,
    topic_ids: dict[str, str | None], warned: bool,
) -> None:  # fmt: skip
    # Of the first time; a later decision is no place to replay.
    exchange.micro_batch(1)
    (message,) = receipts(exchange, 1)
    decided = {"micro_batch_id": micro_batch_id, "query_id": query_id, "topics": ("t", "u"), "topic_ids": {"t": OLD}}
    facts = replace(message.plan.facts, decision=replace(message.plan.facts.decision, **decided))
    prepared = message.prepared if visible else replace(message.prepared, visible=None)
    replayed = replace(message, plan=replace(message.plan, facts=facts), prepared=prepared, topic_ids=topic_ids)
    with suppress(errors.CheckpointBehind, errors.TransactionTimedOut):
        KafkaStreamWriter(GIVEN).commit([replayed], 0)
    assert [TOLD in each.getMessage() for each in caplog.records] == [True] * warned


GROUPS = {"orders.decision", "orders.0", "orders.1"}


@pytest.mark.parametrize("batch", [None, VERSION_7, ONCE])
def test_only_what_never_comes_again_deletes_its_groups_when_it_is_done(exchange: Exchange, batch: Any) -> None:
    messages = receipts(exchange, batch=batch)
    assert exchange.kafka.groups() >= GROUPS
    commit_micro_batch(GIVEN, messages)
    assert sorted(exchange.kafka.visible) == ["0/0", "0/1"]
    assert exchange.kafka.groups() & GROUPS == (set() if batch is ONCE else GROUPS)


def test_a_commit_that_did_not_find_all_rows_visible_deletes_nothing(exchange: Exchange, kafka: ScriptedKafka) -> None:
    # What the commit reads last.
    kafka.held = {apis.OffsetFetchRequest}
    with pytest.raises(errors.CoordinatorUnavailable):
        KafkaBatchWriter(GIVEN).commit(receipts(exchange, batch=ONCE))
    assert kafka.asked(apis.DeleteGroupsRequest) == []


DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("answer", [
    HANG_UP,
    lambda request: apis.DeleteGroupsResponse(0, tuple(apis.DeletedGroup(name, DENIED) for name in request.group_ids)),
    Mock(side_effect=MemoryError),
])  # fmt: skip
def test_groups_that_cannot_be_deleted_fail_no_write_and_start_no_look_at_hosts(
    exchange: Exchange, kafka: ScriptedKafka, clients: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, answer: Any,
) -> None:  # fmt: skip
    monkeypatch.setattr(examinations, "look_at_hosts", lambda error, config: pytest.fail("looked"))
    kafka.always(apis.DeleteGroupsRequest, answer)
    KafkaBatchWriter(GIVEN).commit(receipts(exchange, batch=ONCE))
    assert sorted(exchange.kafka.visible) == ["0/0", "0/1"]
    assert kafka.asked(apis.DeleteGroupsRequest) != []
    assert kafka.now_ms <= FORGET_MS
    # The client is closed, as requests are under way.
    assert clients.closed
    assert [each.levelname for each in caplog.records if each.levelname != "DEBUG"] == []


def test_an_error_in_mid_commit_claims_no_invisible_or_doubled_rows(exchange: Exchange, kafka: ScriptedKafka) -> None:
    messages = receipts(exchange)
    # Who leads the partitions is asked behind the decision.
    kafka.always(apis.MetadataRequest, HANG_UP)
    unknown = "Whether the last request was carried out is unknown"
    with pytest.raises(errors.BrokersUnreachable, match=unknown) as raised:
        KafkaStreamWriter(GIVEN).commit(messages, 0)
    assert "twice" not in str(raised.value)


@pytest.mark.parametrize(("batch", "again"), [
    (None, "the micro-batch runs again"), (VERSION_7, "run the write again with the same txnAppId"),
    (ONCE, "if the job fails, run the write again: nothing"),
])  # fmt: skip
def test_errors_say_who_runs_the_write_again(
    exchange: Exchange, kafka: ScriptedKafka, task: dict[str, str], batch: Identity | None, again: str
) -> None:
    first, second = receipts(exchange, batch=batch)
    kafka.script(apis.InitProducerIdRequest, apis.InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED, -1, -1))
    with pytest.raises(errors.AttemptFenced, match=again) as fenced:
        write_slot(first.plan)
    assert fenced.value.write_kind is (errors.WriteKind.STREAM if batch is None else batch.kind)
    ids = first.prepared.ids
    begun = transaction_state.ActiveProducer(ids.producer_id, ids.producer_epoch, current_txn_start_offset=1)
    leader = transaction_state.ProducersOfPartition("t", 0, 0, None, (begun,))
    kafka.always(apis.DescribeProducersRequest, transaction_state.DescribeProducersResponse(0, (leader,)))
    behind = replace(first, prepared=replace(first.prepared, first_offsets={("t", 0): 2}))
    with pytest.raises(errors.AbortedRowsOpen, match=again):
        commit_micro_batch(GIVEN, [behind, second])
    with pytest.raises(errors.DriverFenced, match=again):
        commit_micro_batch(GIVEN, [first, replace(second, generation=Ids(9, 2))])


def test_a_task_without_receipt_leaves_nothing_seen(exchange: Exchange, kafka: ScriptedKafka, plans: list[Any]) -> None:
    messages = receipts(exchange)
    with pytest.raises(errors.CommitRefused, match="the micro-batch runs again and is written once"):
        KafkaStreamWriter(GIVEN).commit([messages[0], None], 0)
    batch = KafkaBatchWriter(GIVEN)
    assert isinstance(batch.guarantee, ExactlyOnceBatch)
    batch.guarantee.planned = replace(PLAN, batch=ONCE)
    with pytest.raises(errors.CommitRefused, match="if the job fails, run the write again: nothing of this one will"):
        batch.commit([None])
    # At-least-once neither commits nor aborts anything.
    given = given_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    with pytest.raises(errors.CommitRefused, match="in the topic twice"):
        KafkaBatchWriter(given).commit([None])
    KafkaStreamWriter(given).commit([], 4)
    KafkaStreamWriter(given).abort([None], 4)
    KafkaBatchWriter(given).abort([None])
    assert kafka.received == []


def test_an_abort_is_of_the_run_that_a_message_names_else_of_the_last_planned_here(
    exchange: Exchange, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    _, message = receipts(exchange)
    KafkaStreamWriter(NAMED).abort([None, None], 0)
    assert kafka.received == []
    remember("orders", message.generation)
    KafkaStreamWriter(NAMED).abort([None, None], 0)
    assert exchange.kafka.holding_back() == []
    _, message = receipts(exchange)
    remember("another", Ids(9, 7))
    KafkaStreamWriter(NAMED | {"transactional_id_prefix": "another"}).abort([None, message], 0)
    assert (exchange.kafka.holding_back(), sorted(exchange.kafka.aborted)) == ([], ["0/0", "0/0", "0/1", "0/1"])


def test_a_streams_abort_is_not_of_another_query_that_has_its_prefix(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    one, other = (KafkaStreamWriter(NAMED, checkpoint=checkpoint) for checkpoint in ("/one", "/other"))
    pickle.dumps((one, other))
    exchange.task(planned_in(other).facts, 0, 0)
    one.abort([None], 0)
    assert exchange.kafka.holding_back() == ["orders.0"]
    other.abort([None], 0)
    assert exchange.kafka.holding_back() == []


def test_a_batch_writes_abort_is_of_the_run_that_it_planned(exchange: Exchange) -> None:
    batch = pickle.loads(pickle.dumps(KafkaBatchWriter(GIVEN)))
    exchange.sink = planned_in(batch).sink
    exchange.task(planned_in(batch).facts, 0, 0)
    assert len(exchange.kafka.holding_back()) == 1
    batch.abort([None, None])
    assert (exchange.kafka.holding_back(), exchange.kafka.aborted) == ([], ["0/0"])


def test_an_abort_never_hides_the_error_that_made_it_necessary(
    exchange: Exchange, kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    messages = receipts(exchange)
    kafka.always(apis.FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    KafkaStreamWriter(NAMED).abort(messages, 0)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    for part in ("of 'orders' could not be ended", "transactions describe --prefix orders", "orders.driver"):
        assert part in record.getMessage()


def written(facts: Facts) -> Plan:
    """A plan of version 7 of orders, which was written before."""
    sink = Sink(Names("orders", "commits"), 60_000, 2, is_versioned=True)
    return Plan(sink, facts, False, VERSION_7, is_written=True)


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values)})


def digest(*values: str, topic: str = "t") -> str:
    fingerprint = Fingerprint()
    if values:
        fingerprint.update(RecordColumns.from_arrow(rows(*values), now_ms=0))
    return f"{fingerprint.digest()}:{topic}"


def after(version: int, *fingerprints: str, query_id: str = "txnAppId:orders") -> Facts:
    """That version was decided and is visible whole, its slots with these fingerprints."""
    pinned = tuple(Ids(slot, 0) for slot in range(len(fingerprints)))
    decision = Decision(version, query_id, Ids(9, 0), 2, time.time_ns() // 1_000_000, pinned)
    markers = {slot: Marker(version, query_id, fingerprint) for slot, fingerprint in enumerate(fingerprints)}
    return Facts(Ids(9, 1), decision, markers)


@pytest.mark.parametrize(("version", "is_written"), [("6", True), ("7", True), ("8", False), ("1000000000000", False)])
def test_planning_tells_whether_a_version_is_written(exchange: Exchange, version: str, is_written: bool) -> None:
    store(exchange, after(7, "a", "b"))
    planned = planned_in(pickle.loads(pickle.dumps(KafkaBatchWriter(VERSIONED | {"txn_version": int(version)}))))
    assert planned.is_written is is_written
    assert (planned.sink.names.sink, planned.sink.is_versioned) == ("orders", True)
    assert planned.batch == Identity("txnAppId:orders", int(version), errors.WriteKind.VERSION)


@pytest.mark.parametrize("writer", [KafkaStreamWriter, KafkaBatchWriter])
def test_a_sinks_first_plan_refuses_a_topic_that_takes_no_transaction(
    exchange: Exchange, kafka: ScriptedKafka, writer: Callable[[dict[str, Any]], object]
) -> None:
    def settings(**values: str) -> None:
        configs = apis.TopicConfigs("t", 0, {"inkless.enable": "false"} | values)
        kafka.always(apis.TopicConfigsRequest, apis.TopicConfigsResponse(0, (configs,)))

    given = NAMED if writer is KafkaStreamWriter else GIVEN
    settings(**{"diskless.enable": "true"})
    with pytest.raises(errors.InvalidOption, match=r"no transaction for 't' \(diskless.enable=true\)") as failure:
        pickle.dumps(writer(given))
    assert failure.value.option == "deliveryGuarantee"
    settings()
    pickle.dumps(writer(given))
    # Unknown settings and a topic that is not there do not hold up a plan.
    before_ms = kafka.now_ms
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        kafka.always(apis.TopicConfigsRequest, code)
        pickle.dumps(writer(given))
    assert kafka.now_ms - before_ms < 1_000


def test_a_sinks_first_plan_looks_how_long_brokers_remember(
    exchange: Exchange, kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    named = {**NAMED, "transaction_timeout_ms": 120_000}
    forgets_ids = {(1, "transactional.id.expiration.ms"): "604800000"}
    for minutes, words in (("10080", ""), ("1440", "StateExpired"), (None, "")):
        kafka.settings = forgets_ids | ({} if minutes is None else {(1, "offsets.retention.minutes"): minutes})
        caplog.clear()
        pickle.dumps(KafkaStreamWriter(named))
        assert words in caplog.text and bool(words) == bool(caplog.text)
    kafka.settings = forgets_ids | {(1, "offsets.retention.minutes"): "2"}
    with pytest.raises(errors.InvalidOption, match=r"less than the brokers remember \(offsets.retention.minutes=2"):
        pickle.dumps(KafkaStreamWriter(named))
    # One that never comes again needs no memory; one that has begun has been told.
    pickle.dumps(KafkaBatchWriter({**GIVEN, "transaction_timeout_ms": 120_000}))
    store(exchange, after(0, "a", digest_of("b")))
    pickle.dumps(KafkaStreamWriter(named))
    # And of groups that were lost.
    assert "of slot 1 the transactions' coordinators proved" in caplog.text


def test_what_asks_nobody_before_it_is_refused(kafka: ScriptedKafka, task: dict[str, str]) -> None:
    # The driver's host has a folder of the checkpoint's path, and Spark has the checkpoint on another file system.
    with pytest.raises(errors.AnotherCheckpoint) as raised:
        write_slot(replace(PLAN, query_id="another"))
    assert (raised.value.query_id, raised.value.found_query_id) == ("q", "another")
    task["spark.speculation"] = "True"
    with pytest.raises(errors.RefusedOption, match="set it to false"):
        write_slot(PLAN)
    assert kafka.received == []


def test_a_query_that_takes_anothers_name_is_told(
    exchange: Exchange, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    store(exchange, after(7, "x", query_id="another"))
    pickle.dumps(KafkaStreamWriter(NAMED, checkpoint=str(tmp_path)))
    assert "query q begins as sink 'orders', under which query another committed" in caplog.text
    caplog.clear()
    store(exchange, after(7, "x", query_id="q"))
    pickle.dumps(KafkaStreamWriter(NAMED, checkpoint=str(tmp_path)))
    assert "begins as" not in caplog.text


def test_a_task_of_a_written_version_reads_all_rows_and_asks_nobody(kafka: ScriptedKafka, task: dict[str, str]) -> None:
    plan, given = written(after(7, "a")), iter([rows("x", "y"), rows("z")])
    counted = write_slot(plan, VERSIONED, given)
    assert isinstance(counted, CountedCommitMessage)
    assert next(given, None) is None
    assert (counted.record_count, counted.partitions, counted.plan) == (3, (), plan)
    assert counted.fingerprint == digest("x", "y", "z")
    assert kafka.received == []


@pytest.mark.parametrize("bad_rows", ["drop", "deadLetter"])
def test_rows_that_are_counted_are_those_that_were_written_bad_ones_too(task: dict[str, str], bad_rows: str) -> None:
    """With the fingerprint of a write, and all topics that rows or dead letters may be in."""
    options = {"badRows": bad_rows} | ({"deadLetterTopic": "letters"} if bad_rows == "deadLetter" else {})
    given = given_options({**OPTIONS, "txnAppId": "orders", "txnVersion": "7", **options})
    del given["topic"]
    times = pa.array([-1, 5, 5, 5], pa.timestamp("us", "UTC"))
    topics = pa.array(["of no cluster", "t", None, "u"])
    batch = pa.record_batch({"value": pa.array(["v"] * 4), "topic": topics, "timestamp": times})
    counted = write_slot(written(after(7, "a")), given, [batch.slice(0, 1), batch.slice(1)])
    assert isinstance(counted, CountedCommitMessage)
    fingerprint = Fingerprint()
    fingerprint.update(columns_for_fingerprint(batch, now_ms=0))
    assert (counted.record_count, counted.fingerprint) == (4, f"{fingerprint.digest()}:")
    assert counted.topics == (("letters", "t", "u") if bad_rows == "deadLetter" else ("t", "u"))


@pytest.mark.parametrize("options", [OPTIONS, WITHOUT_TOPIC])
def test_a_version_that_only_the_conf_knows_is_refused_by_tasks(task: dict[str, str], options: dict[str, str]) -> None:
    task.update({"spark.pykafka.txnAppId": "orders", "spark.pykafka.txnVersion": "7"})
    with pytest.raises(errors.NotPlanned, match="txnAppId is set in Spark's conf"):
        write_slot(PLAN, given_options(options))


def counted(plan: Plan, *fingerprints: str) -> list[CountedCommitMessage]:
    return [
        CountedCommitMessage(slot, 5, (), fingerprint=fingerprint, topics=("t",), plan=plan if slot == 0 else None)
        for slot, fingerprint in enumerate(fingerprints)
    ]


@pytest.mark.parametrize("again", [("x", "y", "z"), ("z", "y", "x")])
def test_a_version_again_succeeds_and_says_that_it_wrote_nothing(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture, again: tuple[str, ...]
) -> None:
    plan = written(after(7, digest("x", "y"), digest("z")))
    # In other slots than the first time: nothing is to be filled in.
    KafkaBatchWriter(VERSIONED).commit(counted(plan, digest(), digest(again[0]), digest(*again[1:])))
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "it was written before" in record.getMessage()
    assert "txnVersion 7 of txnAppId 'orders' writes nothing (15 rows were read)" in record.getMessage()
    asked = [each for _, request in kafka.asked(apis.DescribeProducersRequest) for each in request.partitions]
    assert asked == [("t", 0), ("t", 1)]


def test_a_version_again_warns_of_topics_that_took_its_rows(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.topic_ids = {"t": uuid.UUID(NEW)}
    facts = after(7, digest("x"))
    facts = replace(facts, decision=replace(facts.decision, topics=("t",), topic_ids={"t": OLD}))
    KafkaBatchWriter(VERSIONED).commit(counted(written(facts), digest("x")))
    warned, _ = (each.getMessage() for each in caplog.records)
    assert f"created again after txnVersion 7 of txnAppId 'orders' was decided (topic id {OLD} is now {NEW})" in warned


@pytest.mark.parametrize("again", [
    digest("x"), digest("x", "other"), digest("x", "y", "y"), digest("x", "y", topic="u"),
])  # fmt: skip
def test_a_version_again_with_other_rows_stops(again: str) -> None:
    plan = written(after(7, digest("x"), digest("y")))
    with pytest.raises(errors.NonDeterministicReplay, match="version 7 of txnAppId 'orders' was written before"):
        KafkaBatchWriter(VERSIONED).commit(counted(plan, again))


def test_a_lower_version_succeeds_and_needs_no_abort(kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture) -> None:
    plan = written(after(9, digest("x")))
    KafkaBatchWriter(VERSIONED).commit(counted(plan, digest("other")))
    assert "9 was written before" in caplog.records[0].getMessage()
    assert kafka.received == []
    KafkaBatchWriter(VERSIONED).abort([None, *counted(plan, digest("x"))])
    assert kafka.received == []
