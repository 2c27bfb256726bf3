from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.commit.markers import Decision, Ids, Marker, Names, digest_of
from kafka_sink.commit.sink import Facts, Sink, SlotBegun, SlotPrepared, command
from kafka_sink.config import given_options, sink_config
from kafka_sink.errors import (
    AbortedRowsOpen,
    AnotherCheckpoint,
    AttemptFenced,
    BrokersUnreachable,
    ClusterChanged,
    CommitRefused,
    CoordinatorUnavailable,
    DriverFenced,
    InvalidOption,
    KafkaSinkError,
    MissingOption,
    NonDeterministicReplay,
    NotPlanned,
    ReceiptNotWritten,
    StateExpired,
    TopicAuthorizationFailed,
    TopicNotFound,
    TransactionRefused,
    WriteKind,
)
from kafka_sink.producer.runs import PackedRuns
from kafka_sink.protocol.transactions import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.records.bad_rows import columns_for_fingerprint
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.spark import exactly_once, writer
from kafka_sink.spark.exactly_once import (
    BatchWrite,
    CountedReceipt,
    Plan,
    PreparedReceipt,
    batch_identity,
    write_slot,
)
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.last_run import remember
from kafka_sink.spark.proof import Identity, TaskProof
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t", "deliveryGuarantee": "exactly-once"}
GIVEN = given_options(OPTIONS)
NAMED = given_options({**OPTIONS, "transactionalIdPrefix": "orders"})
VERSIONED = given_options({**OPTIONS, "txnAppId": "orders", "txnVersion": "7"})
SINK = Sink(Names("sink", "commits"), timeout_ms=60_000, transaction_version=2)
PLAN = Plan(SINK, Facts(Ids(9, 1), None, {}), allow_lost_state=False, batch=None)


def receipt(slot: int, generation: Ids = PLAN.facts.generation) -> PreparedReceipt:
    return PreparedReceipt(
        slot, 0, 3, (),
        prepared=SlotPrepared(slot, Ids(slot, 0), "q", "f", visible=None),
        sink=SINK, generation=generation, micro_batch_id=4, plan=PLAN if slot == 0 else None,
    )  # fmt: skip


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_batch_write_has_a_name_of_its_own() -> None:
    named = given_options({**OPTIONS, "transactionalIdPrefix": "export"})
    one, other = batch_identity(named), batch_identity(named)
    assert one[0].startswith("export.") and other[0].startswith("export.")
    assert one[0] != other[0]
    assert one[1].query_id != other[1].query_id
    assert batch_identity(GIVEN)[0].startswith("pykafka-batch.")


def test_a_batch_write_may_be_named_for_its_receipt_and_its_transactions_are_its_own_all_the_same() -> None:
    named = given_options({**OPTIONS, "receiptName": "orders-1"})
    one, other = batch_identity(named), batch_identity(named)
    assert one[0] != other[0] and "orders-1" not in one[0]
    assert one[1].identity.named == other[1].identity.named == "orders-1"
    assert one[1].query_id != other[1].query_id


def test_a_batch_write_with_a_version_is_the_same_in_every_rerun() -> None:
    # Kept for ever: a release that derives another query doubles what was committed before.
    expected = ("orders", BatchWrite("txnAppId:orders", 7, is_versioned=True))
    assert batch_identity(VERSIONED) == batch_identity(VERSIONED) == expected


# --- who plans --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []

    def make_plan(
        given: object, prefix: str | None, batch: BatchWrite | None = None, *, checkpoint: str | None = None
    ) -> Plan:
        made.append((prefix, batch) if checkpoint is None else checkpoint)
        return PLAN

    monkeypatch.setattr(writer, "make_plan", make_plan)
    return made


def test_a_stream_is_planned_when_its_writer_is_pickled_and_once(plans: list[Any]) -> None:
    stream = KafkaStreamWriter(given_options(OPTIONS), checkpoint="/data/checkpoint")
    assert plans == []
    again = pickle.loads(pickle.dumps(stream))
    pickle.dumps(stream)
    assert plans == ["/data/checkpoint"]
    assert again.plan == PLAN
    # Who unpickles it runs tasks, and who pickles it on takes the plan along.
    pickle.dumps(again)
    assert len(plans) == 1


def test_a_batch_write_is_planned_when_its_writer_is_pickled_and_once(plans: list[Any]) -> None:
    batch = KafkaBatchWriter(GIVEN)
    again = pickle.loads(pickle.dumps(batch))
    pickle.dumps(batch)
    ((prefix, of),) = plans
    assert prefix == f"pykafka-batch.{of.query_id}"
    assert again.plan == PLAN


@pytest.mark.parametrize("kind", [KafkaStreamWriter, KafkaBatchWriter])
def test_at_least_once_plans_nothing(plans: list[Any], kind: type) -> None:
    assert pickle.loads(pickle.dumps(kind(given_options({"topic": "t"})))).plan is None
    assert plans == []


def test_planning_needs_to_know_the_brokers() -> None:
    with pytest.raises(MissingOption, match="as an option of the write"):
        exactly_once.make_plan(given_options({"deliveryGuarantee": "exactly-once"}), "p")


class Brokers:
    """What planning asks a client for."""

    config = None
    cluster_id = "c"

    def broker_setting(self, name: str) -> None:
        pass

    def ensure_topic(self, name: str, *, ask_also: tuple[str, ...]) -> None:
        pass

    def transaction_version(self) -> int:
        return 2

    def partitions(self, topics: tuple[str, ...]) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        for gone in {"gone", "too"}.intersection(topics):
            raise TopicNotFound(topic=gone, waited_ms=0)
        if "forbidden" in topics:
            raise TopicAuthorizationFailed(topic="forbidden")
        return tuple((topic, 0) for topic in topics), tuple((topic, 1) for topic in topics)


@pytest.mark.parametrize(
    ("topics", "looked_at"),
    [
        (("t",), [("t", 0), ("t", 1)]),
        (("t", "u"), [("t", 0), ("u", 0), ("t", 1), ("u", 1)]),
        (("gone", "t", "too"), [("t", 0), ("t", 1)]),
        (("gone", "too"), []),
        (("forbidden", "t"), [("t", 0), ("t", 1)]),
        ((), []),
        (None, None),
    ],
)
def test_a_run_looks_for_what_hangs_of_the_last_decision(
    monkeypatch: pytest.MonkeyPatch,
    topics: tuple[str, ...] | None,
    looked_at: list[tuple[str, int]] | None,
) -> None:
    """In the topics where it said that its rows are, whatever this run's are."""
    asked: list[Any] = []
    decision = after(7, "x").decision
    assert decision is not None
    facts = Facts(Ids(9, 1), None if topics is None else replace(decision, topics=topics), {})

    @contextmanager
    def lease(config: object, cluster_id: str | None = None) -> Iterator[Brokers]:
        yield Brokers()

    def run(client: Brokers, steps: Any) -> Any:
        if steps.gi_code.co_name == "plan":
            return facts
        asked.append(list(steps.gi_frame.f_locals["touched"]))
        return None

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    monkeypatch.setattr(exactly_once, "run", run)
    given = given_options({"kafka.bootstrap.servers": "h:1", "deliveryGuarantee": "exactly-once"})
    assert exactly_once.make_plan(given, "orders").facts == facts
    assert asked == ([] if looked_at is None else [looked_at])


# --- a task whose rows are visible ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "rows", "topics"),
    [("t", 3, ("t",)), ("t", 0, ()), (None, 3, ("a", "b")), (None, 0, ())],
)
def test_rows_that_are_visible_are_counted_and_their_topics_told(
    option: str | None, rows: int, topics: tuple[str, ...]
) -> None:
    """What hangs may be on any partition of them."""
    named = {} if option is None else {"topic": option}
    config = sink_config({"kafka.bootstrap.servers": "h:1", **named})
    columns = {"value": pa.array(["x", "y", "x"]), "topic": pa.array(["b", "a", "b"])}
    arrow_batch = pa.record_batch(columns).slice(0, rows)
    counted, found = exactly_once._count(config, InterceptorChain(()), iter([arrow_batch, arrow_batch]))
    assert (counted.record_count, found) == (2 * rows, topics)
    assert counted.partitions == ()


# --- who commits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was carried out, by the name of the generator; an error in the list is raised by the next."""
    carried_out: list[Any] = []

    class Client:
        cluster_id = "c"

        def transaction_version(self) -> int:
            return 2

        @contextmanager
        def within(self, milliseconds: int) -> Iterator[None]:
            yield

    @contextmanager
    def lease(config: object, cluster_id: str | None = None) -> Iterator[Client]:
        yield Client()

    def run(client: Client, steps: Any) -> None:
        if carried_out and isinstance(carried_out[-1], Exception):
            raise carried_out[-1]
        carried_out.append((steps.gi_code.co_name, steps.gi_frame.f_locals))

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    monkeypatch.setattr(exactly_once, "run", run)
    return carried_out


def test_task_and_commit_are_in_the_cluster_of_their_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes may meet three clusters behind the same addresses."""
    leased: list[tuple[str, str | None]] = []

    def leasing(what: str) -> Any:
        @contextmanager
        def lease(config: object, cluster_id: str | None = None) -> Iterator[None]:
            leased.append((what, cluster_id))
            raise ClusterChanged(broker="b", expected="c", found="d")
            yield

        return lease

    for name in ("lease", "lease_client"):
        monkeypatch.setattr(exactly_once, name, leasing(name))
    sink = replace(SINK, cluster_id="c")
    plan, config = replace(PLAN, sink=sink, batch=VERSION_7), sink_config(OPTIONS)
    begun = SlotBegun(0, Ids(1, 0), None)
    context: Any = SimpleNamespace(partitionId=lambda: 0, _localProperties={})
    with pytest.raises(ClusterChanged):
        exactly_once._write_slot(config, plan, context, InterceptorChain(()), iter(()))
    with pytest.raises(ClusterChanged):
        exactly_once._produce(config, sink, begun, InterceptorChain(()), iter(()), None, None)
    with pytest.raises(ClusterChanged, match="Whether the last request was carried out is unknown"):
        exactly_once.commit_micro_batch(GIVEN, [replace(receipt(0), plan=replace(PLAN, sink=sink))])
    assert leased == [("lease_client", "c"), ("lease", "c"), ("lease_client", "c")]


def test_a_plan_says_which_cluster_it_is_on() -> None:
    client: Any = Brokers()
    assert exactly_once._sink(sink_config(OPTIONS), "orders", client).cluster_id == "c"


def test_a_commit_goes_by_the_plan_that_the_first_message_brings(ran: list[Any]) -> None:
    KafkaStreamWriter(GIVEN).commit([receipt(0), receipt(1)], 4)
    ((name, given),) = ran
    assert name == "commit"
    assert (given["sink"], given["facts"], given["micro_batch_id"]) == (SINK, PLAN.facts, 4)
    assert [each.slot for each in given["prepared"]] == [0, 1]


def with_proof(slot: int, path: Path) -> PreparedReceipt:
    plan = replace(PLAN, allow_lost_state=True) if slot == 0 else None
    proof = TaskProof(str(path), Identity("q", 4, WriteKind.STREAM), "exactly-once", 1, 2, PackedRuns())
    return replace(receipt(slot), record_count=0, plan=plan, proof=proof)


def test_the_receipt_is_written_by_the_run_that_the_sink_has_and_before_the_decision(
    ran: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "write_receipt", lambda messages: ran.append(("receipt", len(messages))))
    KafkaStreamWriter(GIVEN).commit([with_proof(0, tmp_path), with_proof(1, tmp_path)], 4)
    assert [name for name, _ in ran] == ["check_generation", "receipt", "commit"]


def test_nothing_is_decided_without_the_receipt(ran: list[Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReceiptNotWritten) as failure:
        KafkaStreamWriter(GIVEN).commit([with_proof(0, tmp_path / "file")], 4)
    assert [name for name, _ in ran] == ["check_generation"]
    assert "the micro-batch runs again and is written once" in str(failure.value)


def test_a_replay_of_other_rows_leaves_the_receipt_of_those_that_are_visible(ran: list[Any], tmp_path: Path) -> None:
    first = with_proof(0, tmp_path)
    other = replace(first.prepared, visible=Marker(4, "q", "of other rows"))
    with pytest.raises(NonDeterministicReplay):
        KafkaStreamWriter(GIVEN).commit([replace(first, prepared=other)], 4)
    assert [name for name, _ in ran] == ["check_generation"]
    assert list(tmp_path.iterdir()) == []


TOLD = "topic 't' was deleted and created again after micro-batch 4 was decided (topic id old is now new)"


@pytest.mark.parametrize(
    ("query_id", "micro_batch_id", "visible", "topic_ids", "warned"),
    [
        ("q", 4, True, {"t": "new"}, True),
        ("q", 4, True, {"t": "old"}, False),
        # Brokers without ids; a decision without.
        ("q", 4, True, {"t": None}, False),
        ("q", 4, True, {"u": "new"}, False),
        # Its rows are written now.
        ("q", 4, False, {"t": "new"}, False),
        # Another's.
        ("q", 3, True, {"t": "new"}, False),
        ("r", 4, True, {"t": "new"}, False),
    ],
)
def test_a_replay_warns_of_topics_that_took_its_rows_with_them(
    ran: list[Any], caplog: pytest.LogCaptureFixture, query_id: str, micro_batch_id: int, visible: bool,
    topic_ids: dict[str, str | None], warned: bool,
) -> None:  # fmt: skip
    decision = Decision(micro_batch_id, query_id, Ids(9, 0), 2, 0, (Ids(0, 0),), ("t", "u"), {"t": "old"})
    message = receipt(0)
    marker = Marker(4, "q", "f") if visible else None
    plan = replace(PLAN, facts=replace(PLAN.facts, decision=decision))
    prepared = replace(message.prepared, visible=marker)
    KafkaStreamWriter(GIVEN).commit([replace(message, plan=plan, prepared=prepared, topic_ids=topic_ids)], 4)
    assert [TOLD in each.getMessage() for each in caplog.records] == [True] * warned


def test_a_decision_is_told_which_topics_its_rows_are_in(ran: list[Any]) -> None:
    told = [replace(receipt(0), topic_ids={"t": "1"}), replace(receipt(1), topic_ids={"t": "1", "u": None})]
    KafkaStreamWriter(GIVEN).commit(told, 4)
    ((_, given),) = ran
    assert given["topic_ids"] == {"t": "1", "u": None}


# --- the groups of a batch write --------------------------------------------------------------------------------------


def of_batch(batch: BatchWrite | None) -> list[PreparedReceipt]:
    return [replace(receipt(0), plan=replace(PLAN, batch=batch))]


ONCE = BatchWrite("id", 0)


def test_a_batch_write_deletes_its_groups_when_its_commit_is_done(ran: list[Any]) -> None:
    KafkaBatchWriter(GIVEN).commit(of_batch(ONCE))
    assert [name for name, _ in ran] == ["commit", "forget"]
    assert (ran[1][1]["sink"], ran[1][1]["generation"]) == (SINK, PLAN.facts.generation)


@pytest.mark.parametrize("batch", [None, BatchWrite("txnAppId:orders", 7, is_versioned=True)])
def test_what_comes_again_under_its_name_keeps_its_groups(ran: list[Any], batch: BatchWrite | None) -> None:
    exactly_once.commit_micro_batch(GIVEN, of_batch(batch))
    assert [name for name, _ in ran] == ["commit"]


def test_a_commit_that_did_not_find_all_rows_visible_deletes_nothing(ran: list[Any]) -> None:
    ran.append(CoordinatorUnavailable(kind="group", key="sink.0", waited_ms=1, last_error="gone"))
    with pytest.raises(CoordinatorUnavailable):
        KafkaBatchWriter(GIVEN).commit(of_batch(ONCE))
    assert len(ran) == 1


@pytest.mark.parametrize(
    "error",
    [
        CoordinatorUnavailable(kind="group", key="sink.0", waited_ms=1, last_error="gone"),
        TransactionRefused(transactional_id="sink.decision", api="DeleteGroups", code=30, name="GROUP_AUTHORIZATION"),
        MemoryError(),
    ],
)
def test_groups_that_cannot_be_deleted_fail_no_write_and_nobody_looks_at_hosts_for_them(
    monkeypatch: pytest.MonkeyPatch, ran: list[Any], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    left: list[BaseException] = []

    @contextmanager
    def lease(config: object, cluster_id: str | None = None) -> Iterator[Any]:
        try:
            yield SimpleNamespace(transaction_version=lambda: 2, within=within)
        except BaseException as raised:
            left.append(raised)
            raise

    @contextmanager
    def within(milliseconds: int) -> Iterator[None]:
        assert milliseconds == exactly_once.FORGET_MS
        yield

    def run(client: object, steps: Any) -> None:
        if steps.gi_code.co_name == "forget":
            raise error

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    monkeypatch.setattr(exactly_once, "run", run)
    KafkaBatchWriter(GIVEN).commit(of_batch(ONCE))
    # The client is closed, as requests are under way.
    assert len(left) == 1
    assert not isinstance(left[0], KafkaSinkError)
    assert [each.levelname for each in caplog.records if each.levelname != "DEBUG"] == []


def test_tasks_of_two_plans_are_not_committed_together(ran: list[Any]) -> None:
    with pytest.raises(DriverFenced):
        KafkaStreamWriter(GIVEN).commit([receipt(0), receipt(1, Ids(9, 2))], 4)
    assert ran == []


def test_an_error_in_mid_commit_claims_neither_that_nothing_is_visible_nor_that_rows_come_twice(ran: list[Any]) -> None:
    ran.append(BrokersUnreachable(bootstrap_servers="h:1", waited_ms=1, last_error="gone"))
    with pytest.raises(BrokersUnreachable, match="Whether the last request was carried out is unknown") as raised:
        KafkaStreamWriter(GIVEN).commit([receipt(0)], 4)
    assert "twice" not in str(raised.value)


@pytest.mark.parametrize(
    ("batch", "again"),
    [
        (None, "the micro-batch runs again"),
        (BatchWrite("txnAppId:orders", 7, is_versioned=True), "run the write again with the same txnAppId"),
        (BatchWrite("id", 0), "if the job fails, run the write again: nothing"),
    ],
)
def test_errors_say_who_runs_the_write_again(
    ran: list[Any], task: dict[str, str], batch: BatchWrite | None, again: str
) -> None:
    plan = replace(PLAN, batch=batch)
    kind = WriteKind.STREAM if batch is None else batch.kind
    task.update({"sql.streaming.queryId": "q", "streaming.sql.batchId": "4"})
    ran.append(AttemptFenced(transactional_id="sink.0", api="Produce", name="PRODUCER_FENCED"))
    with pytest.raises(AttemptFenced, match=again) as fenced:
        write_slot(GIVEN, plan, InterceptorChain(()), iter(()))
    assert fenced.value.write_kind is kind
    ran.append(AbortedRowsOpen(
        micro_batch_id=4, topic="t", partition=0, transactional_id="sink.0", open_since_offset=1, first_offset=2
    ))  # fmt: skip
    with pytest.raises(AbortedRowsOpen, match=again):
        exactly_once.commit_micro_batch(GIVEN, [replace(receipt(0), plan=plan)])
    with pytest.raises(DriverFenced, match=again):
        exactly_once.commit_micro_batch(GIVEN, [replace(receipt(0), plan=plan), receipt(1, Ids(9, 2))])


def test_a_task_without_a_receipt_leaves_nothing_visible(ran: list[Any], plans: list[Any]) -> None:
    with pytest.raises(CommitRefused, match="the micro-batch runs again and is written once"):
        KafkaStreamWriter(GIVEN).commit([receipt(0), None], 4)
    batch = KafkaBatchWriter(GIVEN)
    batch.plan = replace(PLAN, batch=BatchWrite("id", 0))
    with pytest.raises(CommitRefused, match="if the job fails, run the write again: nothing of this one will be"):
        batch.commit([None])
    with pytest.raises(CommitRefused, match="in the topic twice"):
        KafkaBatchWriter(given_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})).commit([None])


def test_a_batch_write_whose_commit_is_unknown_names_the_command_that_finishes_it(ran: list[Any]) -> None:
    ran.append(BrokersUnreachable(bootstrap_servers="h:1", waited_ms=1, last_error="gone"))
    plan = replace(PLAN, batch=BatchWrite("id", 0))
    with pytest.raises(BrokersUnreachable, match="Do not run it again before you know") as raised:
        exactly_once.commit_micro_batch(GIVEN, [replace(receipt(0), plan=plan)])
    assert command(SINK, "repair") in str(raised.value)


def test_a_streams_abort_is_of_the_run_that_a_message_names_else_of_the_last_that_was_planned_here(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    KafkaStreamWriter(NAMED).abort([None, None], 4)
    assert ran == []
    remember("orders", Ids(9, 7))
    KafkaStreamWriter(NAMED).abort([None, None], 4)
    KafkaStreamWriter(NAMED).abort([None, receipt(1)], 4)
    assert [(name, args["sink"].names, args["generation"]) for name, args in ran] == [
        ("abort", Names("orders", "pykafka-commits"), Ids(9, 7)),
        ("abort", Names("sink", "pykafka-commits"), Ids(9, 1)),
    ]


def test_a_streams_abort_is_not_of_another_query_that_has_its_prefix(
    found: list[Facts], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    queries = [KafkaStreamWriter(NAMED, checkpoint=checkpoint) for checkpoint in ("/one", "/other")]
    for epoch, query in enumerate(queries):
        found[:] = [Facts(Ids(9, epoch), None, {})]
        pickle.dumps(query)
    aborted: list[Ids] = []
    monkeypatch.setattr(exactly_once, "abort_run", lambda given, prefix, generation: aborted.append(generation))
    for query in queries:
        query.abort([None], 4)
    assert aborted == [Ids(9, 0), Ids(9, 1)]


def test_a_batch_writes_abort_is_of_the_run_that_it_planned(ran: list[Any], plans: list[Any]) -> None:
    batch = pickle.loads(pickle.dumps(KafkaBatchWriter(GIVEN)))
    batch.abort([None, None])
    ((name, args),) = ran
    assert (name, args["sink"].names, args["generation"]) == (
        "abort", Names("sink", "pykafka-commits"), PLAN.facts.generation,
    )  # fmt: skip


def test_an_abort_never_hides_the_error_that_made_it_necessary(
    ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    ran.append(CoordinatorUnavailable(kind="group", key="sink.decision", waited_ms=1, last_error="gone"))
    KafkaStreamWriter(NAMED).abort([receipt(0)], 4)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    said = record.getMessage()
    assert "of 'sink' has open could not be ended" in said
    assert "transactions describe --prefix sink" in said
    assert "sink.decision" in said


def test_at_least_once_neither_commits_nor_aborts_anything(ran: list[Any]) -> None:
    given = given_options({"topic": "t", "kafka.bootstrap.servers": "h:1"})
    KafkaStreamWriter(given).commit([], 4)
    KafkaStreamWriter(given).abort([None], 4)
    KafkaBatchWriter(given).commit([])
    KafkaBatchWriter(given).abort([None])
    assert ran == []


# --- versions ---------------------------------------------------------------------------------------------------------

ORDERS = Sink(Names("orders", "commits"), timeout_ms=60_000, transaction_version=2, is_versioned=True)
VERSION_7 = BatchWrite("txnAppId:orders", 7, is_versioned=True)


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


SETTINGS: dict[str, str | None] = {}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Facts]:
    """What planning finds is what a test puts in here."""
    facts: list[Facts] = []
    SETTINGS.update({"offsets.retention.minutes": "10080", "transactional.id.expiration.ms": "604800000"})

    class Client:
        cluster_id = "c"

        def broker_setting(self, name: str) -> str | None:
            return SETTINGS[name]

        def ensure_topic(self, topic: str, *, ask_also: tuple[str, ...]) -> None:
            assert topic == "pykafka-commits"

        def transaction_version(self) -> int:
            return 2

        def partitions(self, topics: tuple[str, ...]) -> tuple[tuple[()], tuple[()]]:
            return (), ()

    @contextmanager
    def lease(config: object, cluster_id: str | None = None) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    def run(client: Client, steps: Any) -> Any:
        if steps.gi_code.co_name == "plan":
            return facts[0]
        driver = TransactionDescription("orders.driver", 0, "Empty", 60_000, -1, 9, 1, ())
        try:
            next(steps)
            steps.send([DescribeTransactionsResponse(0, (driver,))])
        except StopIteration as ended:
            return ended.value
        raise AssertionError("asked for more than the generation")

    monkeypatch.setattr(exactly_once, "run", run)
    return facts


@pytest.mark.parametrize(
    ("version", "is_written"), [("6", True), ("7", True), ("8", False), ("1000000000000", False)]
)
def test_planning_tells_whether_a_version_is_written(found: list[Facts], version: str, is_written: bool) -> None:
    found.append(after(7, "a", "b"))
    planned = pickle.loads(pickle.dumps(KafkaBatchWriter(VERSIONED | {"txn_version": int(version)}))).plan
    assert planned.is_written is is_written
    assert (planned.sink.names.sink, planned.sink.is_versioned) == ("orders", True)
    assert planned.batch == BatchWrite("txnAppId:orders", int(version), is_versioned=True)


def test_what_a_version_must_not_follow_upon_stops_its_planning(found: list[Facts]) -> None:
    found.append(Facts(Ids(9, 1), None, {}))
    with pytest.raises(StateExpired, match="is the first under this name and not 0"):
        pickle.dumps(KafkaBatchWriter(VERSIONED))
    allowed = pickle.loads(pickle.dumps(KafkaBatchWriter(VERSIONED | {"allow_lost_state": True})))
    assert not allowed.plan.is_written


def test_a_sinks_first_plan_looks_how_long_brokers_remember(
    found: list[Facts], caplog: pytest.LogCaptureFixture
) -> None:
    new, going_on = Facts(Ids(9, 1), None, {}), after(0, "a")
    named = {**NAMED, "transaction_timeout_ms": 120_000}
    for minutes, words in (("10080", ""), ("1440", "StateExpired"), (None, "")):
        SETTINGS["offsets.retention.minutes"] = minutes
        found[:] = [new]
        caplog.clear()
        pickle.dumps(KafkaStreamWriter(named))
        assert words in caplog.text and bool(words) == bool(caplog.text)
    SETTINGS["offsets.retention.minutes"] = "2"
    with pytest.raises(InvalidOption, match=r"less than the brokers remember \(offsets.retention.minutes=2"):
        pickle.dumps(KafkaStreamWriter(named))
    # One that never comes again needs no memory; one that has begun has been told.
    pickle.dumps(KafkaBatchWriter({**GIVEN, "transaction_timeout_ms": 120_000}))
    found[:] = [going_on]
    pickle.dumps(KafkaStreamWriter(named))


def test_a_plan_tells_of_groups_that_were_lost(found: list[Facts], caplog: pytest.LogCaptureFixture) -> None:
    found.append(after(7, "a", digest_of("b")))
    pickle.dumps(KafkaStreamWriter(NAMED))
    assert "of slot 1 the transactions' coordinators proved" in caplog.text


def test_a_batch_write_without_a_version_asks_for_none(found: list[Facts]) -> None:
    found.append(after(7, "a"))
    planned = pickle.loads(pickle.dumps(KafkaBatchWriter(GIVEN))).plan
    assert (planned.is_written, planned.sink.is_versioned) == (False, False)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """In a task of Spark partition 0; the conf it knows is what a test puts in here."""
    conf: dict[str, str] = {}
    context = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: 2, _localProperties=conf)
    monkeypatch.setattr(exactly_once.TaskContext, "get", lambda: context)
    return conf


def test_a_task_of_another_query_than_was_planned_for_asks_nobody(
    task: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's host has a folder of the checkpoint's path, and Spark has the checkpoint on another file system."""
    monkeypatch.setattr(exactly_once, "lease_client", lambda config, cluster_id: pytest.fail("asked somebody"))
    task.update({"sql.streaming.queryId": "q", "streaming.sql.batchId": "4"})
    with pytest.raises(AnotherCheckpoint) as raised:
        write_slot(GIVEN, replace(PLAN, query_id="another"), InterceptorChain(()), iter(()))
    assert (raised.value.query_id, raised.value.found_query_id) == ("q", "another")


def test_a_query_that_begins_under_anothers_name_is_told_of_it(
    found: list[Facts], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    found.append(after(7, "x", query_id="another"))
    pickle.dumps(KafkaStreamWriter(NAMED, checkpoint=str(tmp_path)))
    assert "query q begins as sink 'orders', under which query another committed" in caplog.text
    caplog.clear()
    found[:] = [after(7, "x", query_id="q")]
    pickle.dumps(KafkaStreamWriter(NAMED, checkpoint=str(tmp_path)))
    assert "begins as" not in caplog.text


def test_a_task_of_a_written_version_reads_its_rows_to_the_end_and_asks_nobody(
    task: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "lease_client", lambda config: pytest.fail("asked somebody"))
    plan = Plan(ORDERS, after(7, "a"), False, VERSION_7, is_written=True)
    given = iter([rows("x", "y"), rows("z")])
    counted = write_slot(VERSIONED, plan, InterceptorChain(()), given)
    assert isinstance(counted, CountedReceipt)
    assert next(given, None) is None
    assert (counted.record_count, counted.partitions, counted.plan) == (3, (), plan)
    assert (counted.fingerprint, counted.attempt_number) == (digest("x", "y", "z"), 2)


@pytest.mark.parametrize("bad_rows", ["drop", "deadLetter"])
def test_rows_that_are_counted_again_are_those_that_were_written_bad_ones_too(
    task: dict[str, str], bad_rows: str
) -> None:
    """With the fingerprint of a write, and all topics that rows or dead letters may be in."""
    options = {"badRows": bad_rows} | ({"deadLetterTopic": "letters"} if bad_rows == "deadLetter" else {})
    given = given_options({**OPTIONS, "txnAppId": "orders", "txnVersion": "7", **options})
    del given["topic"]
    times = pa.array([-1, 5, 5, 5], pa.timestamp("us", "UTC"))
    topics = pa.array(["of no cluster", "t", None, "u"])
    batch = pa.record_batch({"value": pa.array(["v"] * 4), "topic": topics, "timestamp": times})
    plan = Plan(ORDERS, after(7, "a"), False, VERSION_7, is_written=True)
    counted = write_slot(given, plan, InterceptorChain(()), iter([batch.slice(0, 1), batch.slice(1)]))
    assert isinstance(counted, CountedReceipt)
    fingerprint = Fingerprint()
    fingerprint.update(columns_for_fingerprint(batch, now_ms=0))
    assert (counted.record_count, counted.fingerprint) == (4, f"{fingerprint.digest()}:")
    assert counted.topics == (("letters", "t", "u") if bad_rows == "deadLetter" else ("t", "u"))


@pytest.mark.parametrize("given", [GIVEN, {name: value for name, value in GIVEN.items() if name != "topic"}])
def test_a_version_that_only_the_conf_knows_is_refused_by_tasks(task: dict[str, str], given: dict[str, Any]) -> None:
    task.update({"spark.pykafka.txnAppId": "orders", "spark.pykafka.txnVersion": "7"})
    with pytest.raises(NotPlanned, match="txnAppId is set in Spark's conf"):
        write_slot(given, PLAN, InterceptorChain(()), iter(()))


def counted(plan: Plan, *fingerprints: str) -> list[CountedReceipt]:
    return [
        CountedReceipt(slot, 0, 5, (), fingerprint=fingerprint, topics=("t",), plan=plan if slot == 0 else None)
        for slot, fingerprint in enumerate(fingerprints)
    ]


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which partitions' leaders were asked what they have open: nothing."""
    asked: list[Any] = []

    class Client:
        def partitions(self, topics: tuple[str, ...]) -> tuple[tuple[tuple[str, int], ...], tuple[()]]:
            return tuple((topic, 0) for topic in topics), ()

        def topic_ids(self, topics: tuple[str, ...]) -> dict[str, str]:
            return dict.fromkeys(topics, "new")

    @contextmanager
    def lease(config: object, cluster_id: str | None = None) -> Iterator[Client]:
        yield Client()

    def run(client: Client, steps: Any) -> None:
        (effect,) = next(steps)
        asked.extend(effect.request.partitions)
        with pytest.raises(StopIteration):
            steps.send([DescribeProducersResponse(0, ())])

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    monkeypatch.setattr(exactly_once, "run", run)
    return asked


@pytest.mark.parametrize("again", [("x", "y", "z"), ("z", "y", "x")])
def test_a_version_again_succeeds_and_says_that_it_wrote_nothing(
    leaders: list[Any], caplog: pytest.LogCaptureFixture, again: tuple[str, ...]
) -> None:
    plan = Plan(ORDERS, after(7, digest("x", "y"), digest("z")), False, VERSION_7, is_written=True)
    # In other slots than the first time: nothing is to be filled in.
    KafkaBatchWriter(VERSIONED).commit(counted(plan, digest(), digest(again[0]), digest(*again[1:])))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "txnVersion 7 of txnAppId 'orders' writes nothing (15 rows were read)" in record.getMessage()
    assert "it was written before" in record.getMessage()
    assert leaders == [("t", 0)]


def test_a_version_again_warns_of_topics_that_took_its_rows_with_them(
    leaders: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    facts = after(7, digest("x"))
    assert facts.decision is not None
    facts = replace(facts, decision=replace(facts.decision, topics=("t",), topic_ids={"t": "old"}))
    KafkaBatchWriter(VERSIONED).commit(counted(Plan(ORDERS, facts, False, VERSION_7, is_written=True), digest("x")))
    warned, _ = (each.getMessage() for each in caplog.records)
    assert "created again after txnVersion 7 of txnAppId 'orders' was decided (topic id old is now new)" in warned


@pytest.mark.parametrize(
    "again", [digest("x"), digest("x", "other"), digest("x", "y", "y"), digest("x", "y", topic="u")]
)
def test_a_version_again_with_other_rows_stops(leaders: list[Any], again: str) -> None:
    plan = Plan(ORDERS, after(7, digest("x"), digest("y")), False, VERSION_7, is_written=True)
    with pytest.raises(NonDeterministicReplay, match="version 7 of txnAppId 'orders' was written before"):
        KafkaBatchWriter(VERSIONED).commit(counted(plan, again))


def test_a_lower_version_succeeds_whatever_its_rows_and_says_that_it_wrote_nothing(
    ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(ORDERS, after(9, digest("x")), False, VERSION_7, is_written=True)
    KafkaBatchWriter(VERSIONED).commit(counted(plan, digest("other")))
    assert "9 was written before" in caplog.records[0].getMessage()
    assert ran == []


def test_what_was_only_counted_needs_no_abort(ran: list[Any]) -> None:
    plan = Plan(ORDERS, after(9, digest("x")), False, VERSION_7, is_written=True)
    KafkaBatchWriter(VERSIONED).abort([None, *counted(plan, digest("x"))])
    assert ran == []
