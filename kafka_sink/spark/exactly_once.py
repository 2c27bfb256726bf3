"""Exactly-once in Spark's processes: who runs which part of the two-phase commit, and what travels between them.

    planning worker   pickles the writer  ─> `Plan`: takes the sink over, finishes what was decided, finds the facts
    task              write()             ─> begin, rows in a transaction, marker, `PreparedReceipt`
    committing worker commit(), abort()   ─> `commit_micro_batch`, from the messages; `abort_micro_batch`, `abort_run`

Spark also makes a writer in the process that commits, which must not plan: what is about to be committed would be
aborted as left over. But only the planning process pickles its writer, once a micro-batch, to send it to tasks. So
`Plan` runs when it is pickled (`PythonPlannerRunner`; a test counts it on a real Spark).

A batch write with `txnAppId` and `txnVersion` is a micro-batch of that sink and number. Where the plan finds it
written, or a later one, tasks, which Spark runs all the same, read their rows and send none (`CountedReceipt`), and
the commit says so.

Nothing here may come from Spark's conf but what only tasks need, as neither planning nor committing knows it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.client import lease
from kafka_sink.clock import wall_clock_ms
from kafka_sink.commit import two_phase
from kafka_sink.commit.coordinator_client import CoordinatorClient
from kafka_sink.commit.coordinator_client import lease as lease_client
from kafka_sink.commit.earlier_name import began_as
from kafka_sink.commit.exchanges import check_generation
from kafka_sink.commit.forgetting import forget
from kafka_sink.commit.lineage import check_decision, check_replay
from kafka_sink.commit.markers import Decision, Ids, Marker, Names
from kafka_sink.commit.runner import run
from kafka_sink.commit.sink import Facts, Sink, SlotBegun, SlotPrepared, command
from kafka_sink.config import EXACTLY_ONCE, FAIL, GivenOptions, SinkConfig, complete, over_conf
from kafka_sink.doctor.first_aid import ensure_topic
from kafka_sink.errors import (
    AnotherCheckpoint,
    ConfigError,
    DriverFenced,
    InvalidOption,
    KafkaSinkError,
    MissingOption,
    NotPlanned,
    RefusedOption,
    TopicAuthorizationFailed,
    TopicNotFound,
    WriteKind,
)
from kafka_sink.exhaustion import exhaustion_named
from kafka_sink.producer.bad_row_tally import BadRowPolicy, BadRowReceipt
from kafka_sink.producer.receipts import PartitionReceipt
from kafka_sink.producer.runs import PackedRuns
from kafka_sink.producer.statistics import WriteStatistics
from kafka_sink.producer.transaction_manager import Transaction
from kafka_sink.protocol.transactions import TopicAndPartition
from kafka_sink.quoting import shell_command
from kafka_sink.records.bad_rows import columns_for_fingerprint, named_topics
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint, total
from kafka_sink.records.row_identity import RowIdentity
from kafka_sink.spark.bad_rows import ask_client, bad_row_policy, finish
from kafka_sink.spark.commit_message import TaskReceipt
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.last_run import recall, remember
from kafka_sink.spark.proof import Identity, TaskProof, row_identity, stream_identity
from kafka_sink.spark.rate import pace, rate_limit, tell_throttled, tell_too_fast
from kafka_sink.spark.receipt_writer import write_receipt
from kafka_sink.spark.stream_naming import name_stream, stream_name
from kafka_sink.stream_name import StreamName

log = logging.getLogger(__name__)

# What the deletion of a batch write's groups may take; it takes some 10 ms (8 slots, one broker).
FORGET_MS = 3_000
# A batch write without a version is one micro-batch of a query of its own.
ONLY_MICRO_BATCH = 0


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """Which query and micro-batch a batch write is, in markers and decisions. `is_versioned`: they are users' own,
    `txnAppId` and `txnVersion`."""

    query_id: str
    micro_batch_id: int
    is_versioned: bool = False
    receipt_name: str | None = None

    @property
    def kind(self) -> WriteKind:
        return WriteKind.VERSION if self.is_versioned else WriteKind.BATCH

    @property
    def identity(self) -> Identity:
        return Identity(self.query_id, self.micro_batch_id, self.kind, self.receipt_name)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a micro-batch's tasks and its commit go by. `batch` is None for a stream, whose tasks know query and
    micro-batch. `is_written`: the version is visible already, or a later one was decided: nothing is to be written.
    `query_id`: the query's whose checkpoint names the sink; None: not known."""

    sink: Sink
    facts: Facts
    allow_lost_state: bool
    batch: BatchWrite | None
    is_written: bool = False
    query_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReceipt(TaskReceipt):
    """A task attempt's rows, acknowledged and not visible. `plan` is there for the first Spark partition only: its
    facts are as large as the number of slots, and one is enough."""

    prepared: SlotPrepared
    sink: Sink
    generation: Ids
    micro_batch_id: int
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedReceipt(TaskReceipt):
    """Rows that were read and not sent, as the plan says that they are written. `topics`: theirs. `plan`: as above."""

    fingerprint: str
    topics: tuple[str, ...]
    plan: Plan | None


def is_exactly_once(given: GivenOptions) -> bool:
    return given.get("delivery_guarantee") == EXACTLY_ONCE


# --- planning ---------------------------------------------------------------------------------------------------------


@contextmanager
def told_of_a_transaction(batch: BatchWrite | None, *, committing: Sink | None = None) -> Iterator[None]:
    """What errors say of the rows is made true of rows that nobody sees unless they are committed, and of who runs the
    write again. `committing`: where they may have been."""
    try:
        with exhaustion_named():
            yield
    except KafkaSinkError as error:
        raise error.in_transaction(
            committing=committing is not None,
            write_kind=WriteKind.STREAM if batch is None else batch.kind,
            repair="" if committing is None else command(committing, "repair"),
        ) from error.__cause__


def make_plan(
    given: GivenOptions, prefix: str | None, batch: BatchWrite | None = None, *, checkpoint: str | None = None
) -> Plan:
    """Asks the cluster, and leaves none of the sink's transactions open. `prefix`: a batch write's; a stream's is that
    of its `checkpoint`. Raises ConfigError, ExactlyOnceError, ClusterError."""
    config = _planned_config(given)
    if prefix is None:
        # What is wrong with it is said before the cluster is asked.
        stream_name(given, checkpoint)
    with told_of_a_transaction(batch), lease_client(config.producer) as client:
        ensure_topic(config)
        client.ensure_topic(config.commit_topic, ask_also=() if config.topic is None else (config.topic,))
        is_versioned = batch is not None and batch.is_versioned
        comes_again = batch is None or is_versioned
        name = StreamName(prefix) if prefix is not None else _name_stream(given, checkpoint, config, client)
        sink = _sink(
            config, name.sink, client, is_versioned=is_versioned, comes_again=comes_again, is_derived=name.is_derived
        )
        facts = run(client, two_phase.plan(sink))
        if facts.decision is None and comes_again:
            _check_retention(client, config)
        if restored := [slot for slot, marker in facts.visible.items() if marker.is_restored]:
            log.warning(
                "consumer groups of %r were deleted or have expired: of slot %s the transactions' coordinators proved "
                "that the last micro-batch is committed. Nothing is written again.",
                name.sink,
                ", ".join(map(str, restored)),
            )
        if batch is None:
            remember(name.sink, facts.generation, checkpoint)
            _tell_of_another_query(name, facts.decision)
        is_written = batch is not None and is_versioned and run(
            client,
            two_phase.is_written(
                sink,
                facts,
                query_id=batch.query_id,
                version=batch.micro_batch_id,
                allow_lost_state=config.allow_lost_state,
            ),
        )
        if not is_written and facts.decision is not None:
            run(client, two_phase.end_what_hangs(sink, facts, _partitions(client, facts.decision.topics)))
    return Plan(sink, facts, config.allow_lost_state, batch, is_written, name.query_id if name.is_derived else None)


def _name_stream(
    given: GivenOptions, checkpoint: str | None, config: SinkConfig, client: CoordinatorClient
) -> StreamName:
    def began(earlier: str, query_id: str) -> bool:
        return run(client, began_as(_sink(config, earlier, client), query_id))

    return name_stream(given, checkpoint, began)


def _tell_of_another_query(name: StreamName, decision: Decision | None) -> None:
    """Of a query that begins under a name that another has used: if that still runs, they will stop each other."""
    if decision is None or name.query_id in (None, decision.query_id):
        return
    log.warning(
        "query %s begins as sink %r, under which query %s committed its micro-batch %d. If that query is to go on, "
        "stop this one and set another transactionalIdPrefix for it: of two queries with one name each stops the "
        "other.",
        name.query_id, name.sink, decision.query_id, decision.micro_batch_id,
    )  # fmt: skip


def _check_retention(client: CoordinatorClient, config: SinkConfig) -> None:
    """Of a sink that has nothing decided yet, so once. Raises InvalidOption."""
    # What workers need once in a sink's life.
    from kafka_sink.doctor.judging import IDS_EXPIRATION, OFFSETS_RETENTION, retention

    offsets, ids = client.broker_setting(OFFSETS_RETENTION), client.broker_setting(IDS_EXPIRATION)
    finding = retention(offsets, ids, config.transaction_timeout_ms)
    if finding.status == "FAILED":
        raise InvalidOption(
            option="kafka.transaction.timeout.ms",
            value=str(config.transaction_timeout_ms),
            expected=f"less than the brokers remember ({OFFSETS_RETENTION}={offsets}, {IDS_EXPIRATION}={ids})",
        )
    if finding.status == "WARNING":
        log.warning("%s. To do: %s.", finding.found, finding.remedy)


def _partitions(client: CoordinatorClient, topics: tuple[str, ...]) -> tuple[TopicAndPartition, ...]:
    while topics:
        try:
            led, leaderless = client.partitions(topics)
            return led + leaderless
        except TopicNotFound as gone:
            # And so is what was in it.
            topics = tuple(topic for topic in topics if topic != gone.topic)
        except TopicAuthorizationFailed as refused:
            # WRITE implies DESCRIBE: who may not look there writes nothing behind what hangs.
            log.warning(
                "whether readers see all of the last micro-batch in %r is not checked: %s", refused.topic, refused
            )
            topics = tuple(topic for topic in topics if topic != refused.topic)
    return ()


def batch_identity(given: GivenOptions) -> tuple[str, BatchWrite]:
    """The name of a batch write's transactional ids, and which write it is. With `txnAppId` and `txnVersion` both are
    the same in a rerun; without, they are its own, so that no other write can meet its transactions."""
    if (app_id := given.get("txn_app_id")) is not None:
        return app_id, BatchWrite(f"txnAppId:{app_id}", given["txn_version"], is_versioned=True)
    write_id = uuid.uuid4().hex
    prefix = given.get("transactional_id_prefix") or "pykafka-batch"
    write = BatchWrite(write_id, ONLY_MICRO_BATCH, receipt_name=given.get("receipt_name"))
    return f"{prefix}.{write_id}", write


def _sink(
    config: SinkConfig,
    prefix: str,
    client: CoordinatorClient,
    *,
    is_versioned: bool = False,
    comes_again: bool = True,
    is_derived: bool = False,
) -> Sink:
    return Sink(
        names=Names(prefix, config.commit_topic),
        timeout_ms=config.transaction_timeout_ms,
        transaction_version=client.transaction_version(),
        bootstrap_servers=config.producer.bootstrap_servers_text,
        is_versioned=is_versioned,
        cluster_id=client.cluster_id,
        comes_again=comes_again,
        is_derived=is_derived,
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
) -> PreparedReceipt | CountedReceipt:
    """Writes the rows of one task attempt into its slot's transaction, and leaves that prepared. Where the plan says
    that they are written, reads them to their end: Spark runs the task all the same.

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
    with told_of_a_transaction(plan.batch):
        config = complete(over_conf(given, conf))
        if config.txn_app_id is not None and "txn_app_id" not in given:
            raise NotPlanned(option="txnAppId")
        if plan.is_written:
            return _count_slot(config, plan, context, chain, arrow_batches)
        return _write_slot(config, plan, context, chain, arrow_batches)


def _count_slot(
    config: SinkConfig,
    plan: Plan,
    context: TaskContext,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
) -> CountedReceipt:
    rows, topics = _count(config, chain, arrow_batches)
    slot = context.partitionId()
    return CountedReceipt(
        spark_partition_id=slot,
        attempt_number=context.attemptNumber(),
        record_count=rows.record_count,
        partitions=(),
        fingerprint=rows.fingerprint,
        topics=topics,
        plan=plan if slot == 0 else None,
    )


def _write_slot(
    config: SinkConfig,
    plan: Plan,
    context: TaskContext,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
) -> PreparedReceipt:
    conf: Mapping[str, str] = context._localProperties or {}
    slot = context.partitionId()
    # Of a batch write its own also in foreachBatch, where tasks know a stream's query and micro-batch.
    identity = stream_identity(conf) if plan.batch is None else plan.batch.identity
    query_id, micro_batch_id = identity.query_id, identity.batch_id
    if plan.query_id not in (None, query_id):
        raise AnotherCheckpoint(sink=plan.sink.names.sink, query_id=query_id, found_query_id=plan.query_id)
    started_ms = wall_clock_ms()
    with lease_client(config.producer, plan.sink.cluster_id) as client:
        begun = run(
            client,
            two_phase.begin(
                plan.sink,
                plan.facts,
                slot=slot,
                micro_batch_id=micro_batch_id,
                query_id=query_id,
                allow_lost_state=plan.allow_lost_state,
            ),
        )
        if begun.visible is None:
            policy = bad_row_policy(
                config, conf, ask_client(client), query_id=query_id, batch_id=micro_batch_id
            )
            of_rows = row_identity(config, identity, slot)
            rows = _produce(config, plan.sink, begun, chain, arrow_batches, policy, of_rows)
            marker = Marker(micro_batch_id, query_id, rows.fingerprint)
            run(client, two_phase.prepare(plan.sink, begun, marker))
            first_offsets = {(each.topic, each.partition): each.first_offset for each in rows.partitions}
            touched = tuple(first_offsets)
        else:
            rows, topics = _count(config, chain, arrow_batches)
            # Which of them its rows are in only the attempt knew that wrote them.
            led, leaderless = client.partitions(topics)
            touched, first_offsets = led + leaderless, {}
            rows = replace(rows, topic_ids=client.topic_ids(topics))
    return PreparedReceipt(
        spark_partition_id=slot,
        attempt_number=context.attemptNumber(),
        record_count=rows.record_count,
        partitions=rows.partitions,
        topic_ids=rows.topic_ids,
        proof=None
        if config.receipts_path is None
        else TaskProof(config.receipts_path, identity, EXACTLY_ONCE, started_ms, wall_clock_ms(), rows.runs),
        bad_rows=rows.bad_rows,
        pace=pace(config, started_ms),
        statistics=rows.statistics,
        prepared=SlotPrepared(
            slot=slot,
            ids=begun.ids,
            query_id=query_id,
            fingerprint=rows.fingerprint,
            visible=begun.visible,
            partitions=touched,
            first_offsets=first_offsets,
        ),
        sink=plan.sink,
        generation=plan.facts.generation,
        micro_batch_id=micro_batch_id,
        plan=plan if slot == 0 else None,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A task's rows: how many and which; and where they went, if they did: each batch of them where a receipt asks."""

    record_count: int
    fingerprint: str
    partitions: tuple[PartitionReceipt, ...] = ()
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    runs: PackedRuns | None = None
    bad_rows: BadRowReceipt = field(default_factory=BadRowReceipt)
    statistics: WriteStatistics = field(default_factory=WriteStatistics)


def _produce(
    config: SinkConfig,
    sink: Sink,
    begun: SlotBegun,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
    policy: BadRowPolicy | None,
    of_rows: RowIdentity | None,
) -> _Rows:
    transaction = Transaction(
        transactional_id=sink.names.slot(begun.slot),
        producer_id=begun.ids.producer_id,
        producer_epoch=begun.ids.producer_epoch,
        version=sink.transaction_version,
        timeout_ms=sink.timeout_ms,
    )
    fingerprint = Fingerprint()
    with lease(config.producer, sink.cluster_id) as producer:
        write = producer.begin(
            topic=config.topic,
            partitioner=config.partitioner,
            transaction=transaction,
            fingerprint=fingerprint,
            bad_rows=policy,
            rate_limit=rate_limit(config, transactional_id=transaction.transactional_id),
            row_identity=of_rows,
        )
        if config.receipts_path is not None:
            write.keep_runs()
        for to_send in chain.checked(arrow_batches, topic_option=config.topic is not None):
            write.append(to_send)
        receipts, bad_rows = finish(write, config)
    tell_throttled(write, config)
    runs = None if config.receipts_path is None else write.runs
    return _Rows(
        record_count=write.record_count,
        fingerprint=_digest(fingerprint, config),
        partitions=receipts,
        topic_ids=write.topic_ids,
        runs=runs,
        bad_rows=bad_rows,
        statistics=write.statistics(),
    )


def _count(
    config: SinkConfig, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]
) -> tuple[_Rows, tuple[str, ...]]:
    """The rows of a slot that is visible already, their number and fingerprint, and their topics. None is sent.

    Which of them were bad is not asked, as the answer may be another by now: dead letters may be among them.
    """
    fingerprint, record_count, topics = Fingerprint(), 0, set[str]()
    columns_of = RecordColumns.from_arrow if config.bad_rows == FAIL else columns_for_fingerprint
    if config.dead_letter_topic is not None:
        topics.add(config.dead_letter_topic)
    for arrow_batch in chain.checked(arrow_batches, topic_option=config.topic is not None):
        columns = columns_of(arrow_batch, now_ms=0)
        fingerprint.update(columns)
        record_count += columns.num_rows
        if config.topic is None:
            topics |= named_topics(arrow_batch)
        elif columns.num_rows:
            topics.add(config.topic)
    return _Rows(record_count, _digest(fingerprint, config)), tuple(sorted(topics))


def _digest(fingerprint: Fingerprint, config: SinkConfig) -> str:
    """Of the rows, and of the topic that the option sends them all to: the rows do not say."""
    return f"{fingerprint.digest()}:{config.topic or ''}"


def _total(digests: Iterable[str]) -> tuple[str, frozenset[str]]:
    """The same of all slots, of which there is one topic."""
    parts = [digest.rpartition(":") for digest in digests]
    return total(rows for rows, _, _ in parts), frozenset(topic for _, _, topic in parts)


# --- committing -------------------------------------------------------------------------------------------------------


def commit_micro_batch(given: GivenOptions, receipts: Sequence[TaskReceipt]) -> None:
    """Makes the rows of all tasks visible. Raises ExactlyOnceError, ClusterError."""
    counted = [receipt for receipt in receipts if isinstance(receipt, CountedReceipt)]
    if counted:
        _pass_over(given, counted)
        return
    messages = [receipt for receipt in receipts if isinstance(receipt, PreparedReceipt)]
    tell_too_fast(messages)
    plan = _plan_of(messages)
    with (
        told_of_a_transaction(plan.batch, committing=plan.sink),
        lease_client(_planned_config(given).producer, plan.sink.cluster_id) as client,
    ):
        _tell_created_again(plan, messages)
        if messages[0].proof is not None:
            _prove(client, plan, messages)
        run(
            client,
            two_phase.commit(
                plan.sink,
                plan.facts,
                [message.prepared for message in messages],
                micro_batch_id=messages[0].micro_batch_id,
                now_ms=wall_clock_ms(),
                allow_lost_state=plan.allow_lost_state,
                topic_ids={topic: topic_id for each in messages for topic, topic_id in each.topic_ids.items()},
            ),
        )
    if plan.batch is not None and not plan.batch.is_versioned:
        _forget(given, plan)


class _LeftThere(Exception):
    """Groups that could not be deleted."""


def _forget(given: GivenOptions, plan: Plan) -> None:
    """Deletes the write's groups, which nobody reads any more. Never raises: its rows are visible."""
    try:
        with lease_client(_planned_config(given).producer, plan.sink.cluster_id) as client:
            try:
                with client.within(FORGET_MS):
                    run(client, forget(plan.sink, plan.facts.generation))
            except KafkaSinkError as error:
                # As another error, so that nobody looks at the cluster's hosts for its sake.
                raise _LeftThere from error
    # Whatever it is: Spark would run a job again that is done.
    except Exception as error:
        log.debug("groups of %s are left to expire: %s", plan.sink.names.sink, error.__cause__ or error)


def _tell_created_again(plan: Plan, messages: Sequence[PreparedReceipt]) -> None:
    """Warns of topics that took rows with them which are not written again, as their slots were visible before."""
    decision = plan.facts.decision
    ids = {topic: found for each in messages if each.prepared.visible for topic, found in each.topic_ids.items()}
    decided = messages[0].micro_batch_id, messages[0].prepared.query_id
    if decision is not None and (decision.micro_batch_id, decision.query_id) == decided:
        _warn_created_again(plan, decision, ids)


def _warn_created_again(plan: Plan, decision: Decision, topic_ids: Mapping[str, str | None]) -> None:
    name, sink = f"micro-batch {decision.micro_batch_id}", plan.sink.names.sink
    advice = f"If the new topic is to have them, write them with a batch write, from what {name} read"
    if plan.sink.is_versioned:
        name = f"txnVersion {decision.micro_batch_id} of txnAppId {sink!r}"
        advice = "If the new topic is to have them, write them under a higher txnVersion"
    for topic, (old_id, new_id) in decision.created_again(topic_ids).items():
        log.warning(
            "topic %r was deleted and created again after %s was decided (topic id %s is now %s). Rows of %s that were "
            "in the old topic are gone with it, and are not written again, as they were committed. %s.",
            topic, name, old_id, new_id, name, advice,
        )  # fmt: skip


def _prove(client: CoordinatorClient, plan: Plan, messages: Sequence[PreparedReceipt]) -> None:
    """Writes the receipt file, unless this run could not be decided: the file may be of one that is."""
    prepared, micro_batch_id = [message.prepared for message in messages], messages[0].micro_batch_id
    run(client, check_generation(plan.sink, plan.facts.generation))
    check_decision(
        plan.sink,
        plan.facts,
        prepared,
        micro_batch_id=micro_batch_id,
        allow_lost_state=plan.allow_lost_state,
    )
    check_replay(plan.sink, prepared, micro_batch_id=micro_batch_id)
    write_receipt(messages)


def _pass_over(given: GivenOptions, counted: Sequence[CountedReceipt]) -> None:
    """A version that is written already is done, if these are its rows; that nothing is written is said."""
    plan = counted[0].plan
    assert plan is not None and plan.batch is not None and plan.facts.decision is not None, "a version was planned"
    version, decided = plan.batch.micro_batch_id, plan.facts.decision.micro_batch_id
    if version == decided:
        with (
            told_of_a_transaction(plan.batch, committing=plan.sink),
            lease_client(_planned_config(given).producer, plan.sink.cluster_id) as client,
        ):
            topics = tuple(sorted({topic for each in counted for topic in each.topics}))
            led, leaderless = client.partitions(topics)
            _warn_created_again(plan, plan.facts.decision, client.topic_ids(topics))
            fingerprints = [each.fingerprint for each in counted]
            check = two_phase.check_written(
                plan.sink,
                plan.facts,
                fingerprints,
                total=_total,
                touched=led + leaderless,
                allow_lost_state=plan.allow_lost_state,
            )
            run(client, check)
    log.warning(
        "txnVersion %d of txnAppId %r writes nothing (%d rows were read), because %s. New rows need a higher "
        "txnVersion; a stream with a new checkpoint, whose batch ids begin again, a new txnAppId.",
        version,
        plan.sink.names.sink,
        sum(each.record_count for each in counted),
        "it was written before" if version == decided else f"{decided} was written before",
    )


def _plan_of(messages: Sequence[PreparedReceipt]) -> Plan:
    """The one plan that all tasks went by. Raises DriverFenced: some went by another."""
    plan = messages[0].plan
    assert plan is not None, "the first Spark partition's message brings the plan"
    for message in messages:
        if message.generation != plan.facts.generation:
            with told_of_a_transaction(plan.batch):
                raise DriverFenced(
                    sink=plan.sink.names.sink, generation=str(plan.facts.generation), current=str(message.generation)
                )
    return plan


def abort_micro_batch(
    given: GivenOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    checkpoint: str | None = None,
) -> None:
    """Ends what a stream's micro-batch has left open. Does nothing where neither a message nor this driver's processes
    know which run that was. Never raises, as `abort_run`."""
    prepared = next((message for message in messages if isinstance(message, PreparedReceipt)), None)
    if prepared is not None:
        abort_run(given, prepared.sink.names.sink, prepared.generation)
        return
    try:
        name = stream_name(given, checkpoint)
    except ConfigError:  # who planned has said so
        return
    if name is not None and (generation := recall(name.sink, checkpoint)) is not None:
        abort_run(given, name.sink, generation)


def abort_run(given: GivenOptions, prefix: str, generation: Ids) -> None:
    """Leaves nothing open of a run, as far as it can be done now. Never raises: if it did, Spark would show its error
    in place of the one that failed the micro-batch, and whatever is left the next plan ends."""
    try:
        config = _planned_config(given)
    except ConfigError:  # who planned has said so
        return
    try:
        with lease_client(config.producer) as client:
            run(client, two_phase.abort(_sink(config, prefix, client), generation))
    except KafkaSinkError as error:
        log.warning(
            "what this run of %r has open could not be ended, and read_committed readers wait for its transactions' "
            "time-out (kafka.transaction.timeout.ms) or the next start; `%s` tells which: %s",
            prefix,
            shell_command("pykafka transactions describe", {"--prefix": prefix}),
            error,
        )
