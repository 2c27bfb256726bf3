"""Exactly-once in Spark's processes: who runs which part of the two-phase commit, and what travels between them.

    planning worker   pickles the writer  ─> `Plan`: takes the sink over, finishes what was decided, finds the facts
    task              write()             ─> begin, rows in a transaction, marker, `PreparedReceipt`
    committing worker commit(), abort()   ─> `commit_micro_batch`, from the messages; `abort_micro_batch`, `abort_run`

Spark also makes a writer in the process that commits, which must not plan: what is about to be committed would be
aborted as left over. But only the planning process pickles its writer, once a micro-batch, to send it to tasks. So
`Plan` runs when it is pickled (`PythonPlannerRunner`; a test counts it on a real Spark).

Nothing here may come from Spark's conf but what only tasks need, as neither planning nor committing knows it.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.client import lease
from kafka_sink.commit import two_phase
from kafka_sink.commit.coordinator_client import CoordinatorClient
from kafka_sink.commit.coordinator_client import lease as lease_client
from kafka_sink.commit.markers import Ids, Marker, Names
from kafka_sink.commit.runner import run
from kafka_sink.commit.two_phase import Facts, Sink, SlotBegun, SlotPrepared
from kafka_sink.config import EXACTLY_ONCE, GivenOptions, SinkConfig, complete, given_conf
from kafka_sink.errors import (
    DriverFenced,
    KafkaSinkError,
    MissingOption,
    ReceiptMismatch,
    RefusedOption,
)
from kafka_sink.producer.receipts import PartitionReceipt
from kafka_sink.producer.transaction_manager import Transaction
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.spark.commit_message import TaskReceipt
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.last_run import recall, remember

# A batch write is one micro-batch of a query of its own.
ONLY_MICRO_BATCH = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a micro-batch's tasks and its commit go by. `query_id` is None for a stream, whose tasks know it."""

    sink: Sink
    facts: Facts
    allow_lost_state: bool
    query_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReceipt(TaskReceipt):
    """A task attempt's rows, acknowledged and not visible. `plan` is there for the first Spark partition only: its
    facts are as large as the number of slots, and one is enough."""

    prepared: SlotPrepared
    sink: Sink
    generation: Ids
    micro_batch_id: int
    plan: Plan | None


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


# --- planning ---------------------------------------------------------------------------------------------------------


def stream_prefix(given: GivenOptions, checkpoint: str | None) -> str:
    """The name of a stream's transactional ids. Raises MissingOption."""
    prefix = given.get("transactional_id_prefix")
    if prefix:
        return str(prefix)
    if checkpoint is None:
        raise MissingOption(
            option="transactionalIdPrefix",
            hint="the stream's checkpointLocation is not an option of the write, so no name can be derived from it.",
        )
    return "pykafka-" + hashlib.sha256(checkpoint.encode()).hexdigest()[:16]


@contextmanager
def _told_of_a_transaction(*, committing: bool = False) -> Iterator[None]:
    """What errors say of the rows is made true of rows that nobody sees unless they are committed."""
    try:
        yield
    except KafkaSinkError as error:
        raise error.in_transaction(committing=committing) from error.__cause__


def make_plan(given: GivenOptions, prefix: str, *, query_id: str | None) -> Plan:
    """Asks the cluster, and leaves none of the sink's transactions open. Raises ExactlyOnceError, ClusterError."""
    config = _planned_config(given)
    with _told_of_a_transaction(), lease_client(config.producer) as client:
        client.ensure_topic(config.commit_topic)
        sink = _sink(config, prefix, client)
        facts = run(client, two_phase.plan(sink))
    remember(prefix, facts.generation)
    return Plan(sink, facts, config.allow_lost_state, query_id)


def batch_identity(given: GivenOptions) -> tuple[str, str]:
    """Prefix and query id of a batch write: its own, so that no other write can meet its transactions."""
    write_id = uuid.uuid4().hex
    return f"{given.get('transactional_id_prefix') or 'pykafka-batch'}.{write_id}", write_id


def _sink(config: SinkConfig, prefix: str, client: CoordinatorClient) -> Sink:
    return Sink(
        names=Names(prefix, config.commit_topic),
        timeout_ms=config.transaction_timeout_ms,
        transaction_version=client.transaction_version(),
        bootstrap_servers=config.producer.bootstrap_servers_text,
    )


def _planned_config(given: GivenOptions) -> SinkConfig:
    if "bootstrap_servers" not in given:
        raise MissingOption(
            option="kafka.bootstrap.servers",
            hint="with deliveryGuarantee=exactly-once as an option of the write: where a micro-batch is planned and "
            "committed Spark's conf cannot be seen.",
        )
    return complete(given)


# --- a task -----------------------------------------------------------------------------------------------------------


def write_slot(
    given: GivenOptions, plan: Plan, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> PreparedReceipt:
    """Writes the rows of one task attempt into its slot's transaction, and leaves that prepared.

    Raises what `write_task` does, and ExactlyOnceError.
    """
    context = TaskContext.get()
    assert context is not None, "write() runs in a task"
    conf: Mapping[str, str] = context._localProperties or {}
    if conf.get("spark.speculation", "").lower() == "true":
        raise RefusedOption(
            option="spark.speculation",
            instead="with deliveryGuarantee=exactly-once a second attempt of a running task takes its transaction "
            "over: set it to false.",
        )
    with _told_of_a_transaction():
        return _write_slot(complete({**given_conf(conf), **given}), plan, context, chain, arrow_batches)


def _write_slot(
    config: SinkConfig,
    plan: Plan,
    context: TaskContext,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
) -> PreparedReceipt:
    conf: Mapping[str, str] = context._localProperties or {}
    slot = context.partitionId()
    query_id = plan.query_id or conf["sql.streaming.queryId"]
    micro_batch_id = ONLY_MICRO_BATCH if plan.query_id else int(conf["streaming.sql.batchId"])
    with lease_client(config.producer) as client:
        begun = run(
            client, two_phase.begin(plan.sink, plan.facts, slot=slot, micro_batch_id=micro_batch_id, query_id=query_id)
        )
        if begun.visible is None:
            rows = _produce(config, plan.sink, begun, chain, arrow_batches)
            marker = Marker(micro_batch_id, query_id, rows.fingerprint)
            run(client, two_phase.prepare(plan.sink, begun, marker))
            touched = tuple((each.topic, each.partition) for each in rows.partitions)
        else:
            rows, topics = _count(config, chain, arrow_batches)
            # Which of them its rows are in only the attempt knew that wrote them.
            led, leaderless = client.partitions(topics)
            touched = led + leaderless
    return PreparedReceipt(
        spark_partition_id=slot,
        attempt_number=context.attemptNumber(),
        record_count=rows.record_count,
        partitions=rows.partitions,
        topic_ids=rows.topic_ids,
        prepared=SlotPrepared(
            slot=slot,
            ids=begun.ids,
            query_id=query_id,
            fingerprint=rows.fingerprint,
            visible=begun.visible,
            partitions=touched,
        ),
        sink=plan.sink,
        generation=plan.facts.generation,
        micro_batch_id=micro_batch_id,
        plan=plan if slot == 0 else None,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A task's rows: how many and which; and where they went, if they did."""

    record_count: int
    fingerprint: str
    partitions: tuple[PartitionReceipt, ...] = ()
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)


def _produce(
    config: SinkConfig,
    sink: Sink,
    begun: SlotBegun,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
) -> _Rows:
    transaction = Transaction(
        transactional_id=sink.names.slot(begun.slot),
        producer_id=begun.ids.producer_id,
        producer_epoch=begun.ids.producer_epoch,
        version=sink.transaction_version,
    )
    fingerprint = Fingerprint()
    with lease(config.producer) as producer:
        write = producer.begin(
            topic=config.topic, partitioner=config.partitioner, transaction=transaction, fingerprint=fingerprint
        )
        for to_send in chain.checked(arrow_batches, topic_option=config.topic is not None):
            write.append(to_send)
        receipts = write.finish()
        acknowledged = sum(receipt.record_count for receipt in receipts)
        if acknowledged != write.record_count:
            raise ReceiptMismatch(received=write.record_count, acknowledged=acknowledged)
    return _Rows(write.record_count, _digest(fingerprint, config), receipts, write.topic_ids)


def _count(
    config: SinkConfig, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> tuple[_Rows, tuple[str, ...]]:
    """The rows of a slot that is visible already, their number and fingerprint, and their topics. None is sent."""
    fingerprint, record_count, topics = Fingerprint(), 0, set[str]()
    for arrow_batch in chain.checked(arrow_batches, topic_option=config.topic is not None):
        columns = RecordColumns.from_arrow(arrow_batch, now_ms=0)
        fingerprint.update(columns)
        record_count += columns.num_rows
        if config.topic is None and columns.topic is not None:
            topics.update(columns.topic.unique().to_pylist())
        elif config.topic is not None and columns.num_rows:
            topics.add(config.topic)
    return _Rows(record_count, _digest(fingerprint, config)), tuple(sorted(topics))


def _digest(fingerprint: Fingerprint, config: SinkConfig) -> str:
    """Of the rows, and of the topic that the option sends them all to: the rows do not say."""
    return f"{fingerprint.digest()}:{config.topic or ''}"


# --- committing -------------------------------------------------------------------------------------------------------


def commit_micro_batch(given: GivenOptions, receipts: Sequence[TaskReceipt]) -> None:
    """Makes the rows of all tasks visible. Raises ExactlyOnceError, ClusterError."""
    messages = [receipt for receipt in receipts if isinstance(receipt, PreparedReceipt)]
    plan = _plan_of(messages)
    with _told_of_a_transaction(committing=True), lease_client(_planned_config(given).producer) as client:
        run(
            client,
            two_phase.commit(
                plan.sink,
                plan.facts,
                [message.prepared for message in messages],
                micro_batch_id=messages[0].micro_batch_id,
                now_ms=time.time_ns() // 1_000_000,
                allow_lost_state=plan.allow_lost_state,
            ),
        )


def _plan_of(messages: Sequence[PreparedReceipt]) -> Plan:
    """The one plan that all tasks went by. Raises DriverFenced: some went by another."""
    plan = messages[0].plan
    assert plan is not None, "the first Spark partition's message brings the plan"
    for message in messages:
        if message.generation != plan.facts.generation:
            raise DriverFenced(
                sink=plan.sink.names.sink, generation=str(plan.facts.generation), current=str(message.generation)
            )
    return plan


def abort_micro_batch(given: GivenOptions, prefix: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Ends what a stream's micro-batch has left open. Does nothing where neither a message nor this driver's processes
    know which run that was. Never raises, as `abort_run`."""
    of_messages = (message.generation for message in messages if isinstance(message, PreparedReceipt))
    generation = next(of_messages, None) or recall(prefix)
    if generation is not None:
        abort_run(given, prefix, generation)


def abort_run(given: GivenOptions, prefix: str, generation: Ids) -> None:
    """Leaves nothing open of a run, as far as it can be done now. Never raises: if it did, Spark would show its error
    in place of the one that failed the micro-batch, and whatever is left the next plan ends."""
    # Also an option that is missing or wrong: who planned has said so.
    with suppress(KafkaSinkError):
        config = _planned_config(given)
        with lease_client(config.producer) as client:
            run(client, two_phase.abort(_sink(config, prefix, client), generation))
