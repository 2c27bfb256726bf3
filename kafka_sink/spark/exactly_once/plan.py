"""The planning worker's part of exactly-once: it takes the sink over, and finds the facts for tasks and commit.

The messages of tasks are here too, because one of them brings the plan to the commit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_sink.commit import planning
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.commit.handover import Facts, Sink, SlotPrepared, command
from kafka_sink.commit.markers import Decision, Ids, Names
from kafka_sink.commit.runner import run
from kafka_sink.commit.stream_name import StreamName, began_as, is_new, name_stream, plain_name, stream_name
from kafka_sink.errors import (
    InvalidOption,
    KafkaSinkError,
    MissingOption,
    TopicAuthorizationFailed,
    TopicNotFound,
    WriteKind,
)
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.protocol.transaction_needs import DISKLESS, EXACTLY_ONCE, diskless
from kafka_sink.options.config import GivenOptions, SinkConfig, complete
from kafka_sink.spark.kept_clients import blocks_folder, lease_admin_client
from kafka_sink.spark.task_results import ONLY_MICRO_BATCH, Identity, TaskCommitMessage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """The facts for the tasks and the commit of a micro-batch.

    `batch`: of a batch write; None for a stream, because its tasks know query and micro-batch. `is_written`: the
    version is visible already, or a later one was decided, so tasks write nothing. `query_id`: the query of the
    checkpoint that names the sink, None if unknown. `planned_ms`: the monotonic time of the driver's host before any
    task began; the process that commits runs there, too.
    """

    sink: Sink
    facts: Facts
    allow_lost_state: bool
    batch: Identity | None
    is_written: bool = False
    query_id: str | None = None
    planned_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommitMessage(TaskCommitMessage):
    """The rows of a task attempt: acknowledged and not visible yet, or visible before.

    Only the message of Spark partition 0 has `plan`: its size grows with the number of slots, and one copy is enough.
    `sink_name`, `generation`: for an abort, which may have no such message.
    """

    prepared: SlotPrepared
    sink_name: str
    generation: Ids
    micro_batch_id: int
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommitMessage(TaskCommitMessage):
    """Rows that were read and not sent, because the plan found them written. `topics`: the topics of the rows. `plan`:
    as in PreparedCommitMessage."""

    fingerprint: str
    topics: tuple[str, ...]
    plan: Plan | None


@contextmanager
def in_transaction_errors(batch: Identity | None, *, committing: Sink | None = None) -> Iterator[None]:
    """Make errors describe rows that are invisible until they are committed, and the way to run the write again.

    `committing`: the sink if some rows may be visible, otherwise None.
    """
    try:
        with exhaustion_named():
            yield
    except KafkaSinkError as error:
        raise error.in_transaction(
            committing=committing is not None,
            write_kind=WriteKind.STREAM if batch is None else batch.kind,
            repair="" if committing is None else command(committing, "repair"),
        ) from error.__cause__


# --- planning ---------------------------------------------------------------------------------------------------------


def plan_batch(given: GivenOptions) -> Plan:
    """Plan a batch write. Raises as `plan_stream`."""
    prefix, batch = batch_identity(given)
    is_versioned = batch.kind is WriteKind.VERSION
    config = planned_config(given)
    with in_transaction_errors(batch), lease_admin_client(config.producer) as client:
        _ensure_topics(client, config)
        sink = sink_of(config, prefix, client, is_versioned=is_versioned, comes_again=is_versioned)
        facts = _take_over(client, config, sink)
        is_written = is_versioned and run(
            client,
            planning.is_written(
                sink, facts, query_id=batch.query_id, version=batch.batch_id, allow_lost_state=config.allow_lost_state
            ),
        )
        if not is_written:
            _end_hanging(client, config, sink, facts)
    return Plan(sink, facts, config.allow_lost_state, batch, is_written, planned_ms=monotonic_ms())


def plan_stream(given: GivenOptions, checkpoint: str | None) -> Plan:
    """Plan a micro-batch of a stream, and end all open transactions of its sink.

    The name of the sink comes from the option transactionalIdPrefix or from `checkpoint`. Raises ConfigError,
    ExactlyOnceError, ClusterError.
    """
    config = planned_config(given)
    # Raise errors of the name before any request to the cluster.
    stream_name(given, checkpoint)
    has_worked = not is_new(checkpoint)
    with in_transaction_errors(None), lease_admin_client(config.producer, has_worked=has_worked) as client:
        _ensure_topics(client, config)
        name = _name_stream(given, checkpoint, config, client)
        sink = sink_of(config, name.sink, client, is_derived=name.is_derived)
        facts = _take_over(client, config, sink)
        remember(name.sink, facts.generation, checkpoint)
        _warn_of_another_query(name, facts.decision)
        _end_hanging(client, config, sink, facts)
    query_id = name.query_id if name.is_derived else None
    return Plan(sink, facts, config.allow_lost_state, None, query_id=query_id, planned_ms=monotonic_ms())


def planned_config(given: GivenOptions) -> SinkConfig:
    """Return the configuration for planning and committing processes. Raises ConfigError."""
    if "bootstrap_servers" not in given:
        raise MissingOption(
            option="kafka.bootstrap.servers",
            hint="with deliveryGuarantee=exactly-once as an option of the write: where a micro-batch is planned and "
            "committed Spark's conf cannot be seen.",
        )
    return complete(given)


def sink_of(
    config: SinkConfig,
    prefix: str,
    client: AdminClient,
    *,
    is_versioned: bool = False,
    comes_again: bool = True,
    is_derived: bool = False,
) -> Sink:
    """Return the sink named `prefix` in the client's cluster. Raises BrokersUnreachable."""
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


def _ensure_topics(client: AdminClient, config: SinkConfig) -> None:
    """Raises BrokerUnsupported before anything is created."""
    client.require(EXACTLY_ONCE)
    if config.create_topics:
        from kafka_sink.spark.created_topic import ensure_topic_by

        ensure_topic_by(client, config)
    ensure_commit_topic(client, config.commit_topic, ask_also=() if config.topic is None else (config.topic,))


def _name_stream(given: GivenOptions, checkpoint: str | None, config: SinkConfig, client: AdminClient) -> StreamName:
    def began(earlier: str, query_id: str | None) -> bool:
        otherwise = None if checkpoint is None else plain_name(checkpoint)
        return run(client, began_as(sink_of(config, earlier, client), query_id, otherwise=otherwise))

    return name_stream(given, checkpoint, began)


def _take_over(client: AdminClient, config: SinkConfig, sink: Sink) -> Facts:
    facts = run(client, planning.plan(sink, allow_lost_state=config.allow_lost_state))
    if facts.decision is None:
        _refuse_diskless(client, config)
        if sink.comes_again:
            _check_retention(client, config)
    resting = facts.decision.resting if facts.decision is not None else ()
    if restored := [slot for slot, marker in facts.visible.items() if marker.is_restored and slot not in resting]:
        log.warning(
            "consumer groups of %r were deleted or have expired: of slot %s the transactions' coordinators proved "
            "that the last micro-batch is committed. Nothing is written again.",
            sink.names.sink,
            ", ".join(map(str, restored)),
        )
    return facts


def _refuse_diskless(client: AdminClient, config: SinkConfig) -> None:
    """Raises InvalidOption if the option `topic` names a topic that takes no transaction."""
    if config.topic is None:
        return
    settings = client.topic_settings((config.topic,), DISKLESS, waits=False)
    if (named := diskless(settings[config.topic])) is not None:
        raise InvalidOption(
            option="deliveryGuarantee",
            value="exactly-once",
            expected=f"at-least-once, or another topic, because brokers take no transaction for {config.topic!r} "
            f"({named})",
        )


def _check_retention(client: AdminClient, config: SinkConfig) -> None:
    """Check the brokers' retention once, when a sink has no decision yet. Raises InvalidOption."""
    # Imported here, because a sink needs it only once.
    from kafka_sink.doctor.findings import IDS_EXPIRATION, OFFSETS_RETENTION, retention

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


def _warn_of_another_query(name: StreamName, decision: Decision | None) -> None:
    """Warn if another query has used this name. If that query still runs, the two queries stop each other."""
    if decision is None or name.query_id in (None, decision.query_id):
        return
    log.warning(
        "query %s begins as sink %r, under which query %s committed its micro-batch %d. If that query is to go on, "
        "stop this one and set another transactionalIdPrefix for it: of two queries with one name each stops the "
        "other.",
        name.query_id, name.sink, decision.query_id, decision.micro_batch_id,
    )  # fmt: skip


def _end_hanging(client: AdminClient, config: SinkConfig, sink: Sink, facts: Facts) -> None:
    if facts.decision is not None:
        touched = _partitions(client, facts.decision.topics)
        steps = planning.end_what_hangs(sink, facts, touched, allow_lost_state=config.allow_lost_state)
        run(client, steps)


def _partitions(client: AdminClient, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
    while topics:
        try:
            led, leaderless = client.partitions(topics)
            return led + leaderless
        except TopicNotFound as gone:
            # The rows of a deleted topic are gone too, so skip the topic.
            topics = tuple(topic for topic in topics if topic != gone.topic)
        except TopicAuthorizationFailed as refused:
            # WRITE implies DESCRIBE: without DESCRIBE this run cannot write there, so skipping the topic is safe.
            log.warning(
                "could not check that readers see all of the last micro-batch in %r: %s", refused.topic, refused
            )
            topics = tuple(topic for topic in topics if topic != refused.topic)
    return ()


def batch_identity(given: GivenOptions) -> tuple[str, Identity]:
    """Return the prefix of a batch write's transactional ids, and its identity for markers and decisions.

    With `txnAppId` and `txnVersion` a rerun has the same ones. Otherwise they are unique, so that no other write uses
    the same transactions.
    """
    if (app_id := given.get("txn_app_id")) is not None:
        return app_id, Identity(f"txnAppId:{app_id}", given["txn_version"], WriteKind.VERSION)
    write_id = uuid.uuid4().hex
    prefix = given.get("transactional_id_prefix") or "pykafka-batch"
    return f"{prefix}.{write_id}", Identity(write_id, ONLY_MICRO_BATCH, WriteKind.BATCH, given.get("receipt_name"))


# --- the last run -----------------------------------------------------------------------------------------------------
# Spark tells `abort` nothing of a stream's micro-batch that was stopped. So the planning process stores the generation
# of its run. The file is a hint: without it the next plan, or the brokers' timeout, ends the transactions.


def remember(prefix: str, generation: Ids, checkpoint: str | None = None) -> None:
    """Store the generation of the last run that began on this driver, for the sink `prefix` and a checkpoint.

    Two queries of one driver may use the same prefix by mistake. An abort of one must not end the other's transactions.
    """
    file = _file(prefix, checkpoint)
    if file is None:
        return
    # A full disk must not fail the plan.
    with suppress(OSError):
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(str(generation), encoding="ascii")
        new.replace(file)


def recall(prefix: str, checkpoint: str | None = None) -> Ids | None:
    """Return the stored generation, or None if unknown."""
    file = _file(prefix, checkpoint)
    try:
        return None if file is None else Ids.read(file.read_text(encoding="ascii"))
    except OSError:
        return None


def _file(prefix: str, checkpoint: str | None) -> Path | None:
    folder = blocks_folder()
    if not folder:
        return None
    # A newline separates the parts: no prefix has one, because it is part of transactional ids.
    name = f"{prefix}\n{checkpoint or ''}"
    return Path(folder) / f"pykafka-run-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
