from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.commit.markers import Ids, Names
from kafka_sink.commit.two_phase import Facts, Sink, SlotPrepared
from kafka_sink.config import given_options
from kafka_sink.errors import BrokersUnreachable, CoordinatorUnavailable, DriverFenced, MissingOption
from kafka_sink.spark import exactly_once, writer
from kafka_sink.spark.exactly_once import Plan, PreparedReceipt, batch_identity, stream_prefix
from kafka_sink.spark.last_run import remember
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t", "deliveryGuarantee": "exactly-once"}
GIVEN = given_options(OPTIONS)
NAMED = given_options({**OPTIONS, "transactionalIdPrefix": "orders"})
SINK = Sink(Names("sink", "commits"), timeout_ms=60_000, transaction_version=2)
PLAN = Plan(SINK, Facts(Ids(9, 1), None, {}), allow_lost_state=False, query_id=None)


def receipt(slot: int, generation: Ids = PLAN.facts.generation) -> PreparedReceipt:
    return PreparedReceipt(
        slot, 0, 3, (),
        prepared=SlotPrepared(slot, Ids(slot, 0), "q", "f", visible=None),
        sink=SINK, generation=generation, micro_batch_id=4, plan=PLAN if slot == 0 else None,
    )  # fmt: skip


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_stream_is_named_by_its_option_else_by_its_checkpoint() -> None:
    named = given_options({**OPTIONS, "transactionalIdPrefix": "orders"})
    assert stream_prefix(named, "s3://bucket/checkpoint") == stream_prefix(named, None) == "orders"
    derived = stream_prefix(GIVEN, "s3://bucket/checkpoint")
    # Kept for ever: a release that derives another name loses the state of every stream.
    assert derived == "pykafka-fed0669422493087"
    assert stream_prefix(GIVEN, "s3://bucket/another") != derived


def test_a_stream_without_either_has_no_name() -> None:
    with pytest.raises(MissingOption, match="transactionalIdPrefix"):
        stream_prefix(GIVEN, None)


def test_every_batch_write_has_a_name_of_its_own() -> None:
    named = given_options({**OPTIONS, "transactionalIdPrefix": "export"})
    one, other = batch_identity(named), batch_identity(named)
    assert one[0].startswith("export.") and other[0].startswith("export.")
    assert one != other
    assert batch_identity(GIVEN)[0].startswith("pykafka-batch.")


# --- who plans --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []

    def make_plan(given: object, prefix: str, *, query_id: str | None) -> Plan:
        made.append((prefix, query_id))
        return PLAN

    monkeypatch.setattr(writer, "make_plan", make_plan)
    return made


def test_a_stream_is_planned_when_its_writer_is_pickled_and_once(plans: list[Any]) -> None:
    stream = KafkaStreamWriter(given_options({**OPTIONS, "transactionalIdPrefix": "orders"}))
    assert plans == []
    again = pickle.loads(pickle.dumps(stream))
    pickle.dumps(stream)
    assert plans == [("orders", None)]
    assert again.plan == PLAN
    # Who unpickles it runs tasks, and who pickles it on takes the plan along.
    pickle.dumps(again)
    assert len(plans) == 1


def test_a_batch_write_is_planned_when_its_writer_is_pickled_and_once(plans: list[Any]) -> None:
    batch = KafkaBatchWriter(GIVEN)
    again = pickle.loads(pickle.dumps(batch))
    pickle.dumps(batch)
    ((prefix, query_id),) = plans
    assert prefix == f"pykafka-batch.{query_id}"
    assert again.plan == PLAN


@pytest.mark.parametrize("kind", [KafkaStreamWriter, KafkaBatchWriter])
def test_at_least_once_plans_nothing(plans: list[Any], kind: type) -> None:
    assert pickle.loads(pickle.dumps(kind(given_options({"topic": "t"})))).plan is None
    assert plans == []


def test_planning_needs_to_know_the_brokers() -> None:
    with pytest.raises(MissingOption, match="as an option of the write"):
        exactly_once.make_plan(given_options({"deliveryGuarantee": "exactly-once"}), "p", query_id=None)


# --- who commits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was carried out, by the name of the generator; an error in the list is raised by the next."""
    carried_out: list[Any] = []

    class Client:
        def transaction_version(self) -> int:
            return 2

    @contextmanager
    def lease(config: object) -> Iterator[Client]:
        yield Client()

    def run(client: Client, steps: Any) -> None:
        if carried_out and isinstance(carried_out[-1], Exception):
            raise carried_out[-1]
        carried_out.append((steps.gi_code.co_name, steps.gi_frame.f_locals))

    monkeypatch.setattr(exactly_once, "lease_client", lease)
    monkeypatch.setattr(exactly_once, "run", run)
    return carried_out


def test_a_commit_goes_by_the_plan_that_the_first_message_brings(ran: list[Any]) -> None:
    KafkaStreamWriter(GIVEN).commit([receipt(0), receipt(1)], 4)
    ((name, given),) = ran
    assert name == "commit"
    assert (given["sink"], given["facts"], given["micro_batch_id"]) == (SINK, PLAN.facts, 4)
    assert [each.slot for each in given["prepared"]] == [0, 1]


def test_tasks_of_two_plans_are_not_committed_together(ran: list[Any]) -> None:
    with pytest.raises(DriverFenced):
        KafkaStreamWriter(GIVEN).commit([receipt(0), receipt(1, Ids(9, 2))], 4)
    assert ran == []


def test_an_error_in_mid_commit_claims_neither_that_nothing_is_visible_nor_that_rows_come_twice(ran: list[Any]) -> None:
    ran.append(BrokersUnreachable(bootstrap_servers="h:1", waited_ms=1, last_error="gone"))
    with pytest.raises(BrokersUnreachable, match="Whether the last request was carried out is unknown") as raised:
        KafkaStreamWriter(GIVEN).commit([receipt(0)], 4)
    assert "twice" not in str(raised.value)


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
        ("abort", Names("orders", "pykafka-commits"), Ids(9, 1)),
    ]


def test_a_batch_writes_abort_is_of_the_run_that_it_planned(ran: list[Any], plans: list[Any]) -> None:
    batch = pickle.loads(pickle.dumps(KafkaBatchWriter(GIVEN)))
    batch.abort([None, None])
    ((name, args),) = ran
    assert (name, args["sink"].names, args["generation"]) == (
        "abort", Names("sink", "pykafka-commits"), PLAN.facts.generation,
    )  # fmt: skip


def test_an_abort_never_hides_the_error_that_made_it_necessary(ran: list[Any]) -> None:
    ran.append(CoordinatorUnavailable(kind="group", key="sink.decision", waited_ms=1, last_error="gone"))
    KafkaStreamWriter(NAMED).abort([receipt(0)], 4)


def test_at_least_once_neither_commits_nor_aborts_anything(ran: list[Any]) -> None:
    given = given_options({"topic": "t", "kafka.bootstrap.servers": "h:1"})
    KafkaStreamWriter(given).commit([], 4)
    KafkaStreamWriter(given).abort([None], 4)
    KafkaBatchWriter(given).commit([])
    KafkaBatchWriter(given).abort([None])
    assert ran == []
