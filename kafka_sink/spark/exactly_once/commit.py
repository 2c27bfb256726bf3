"""The committing worker's part of exactly-once: it makes the rows of all tasks visible, or ends their transactions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.commit import deciding, planning
from kafka_sink.commit.markers import Decision, Ids
from kafka_sink.commit.replay import check_decision, check_replay
from kafka_sink.commit.requests import check_generation
from kafka_sink.commit.runner import run
from kafka_sink.commit.stream_name import check_first_name, possible_names, stream_name
from kafka_sink.errors import ConfigError, DriverFenced, KafkaSinkError, WriteKind
from kafka_sink.errors.quoting import shell_command
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.exactly_once.plan import (
    CountedCommitMessage,
    Plan,
    PreparedCommitMessage,
    in_transaction_errors,
    planned_config,
    recall,
    sink_of,
)
from kafka_sink.spark.kept_clients import lease_admin_client
from kafka_sink.spark.limits import warn_of_rate
from kafka_sink.spark.receipt_writer import write_receipt
from kafka_sink.spark.task_results import TaskCommitMessage

log = logging.getLogger(__name__)

# Time limit for the deletion of a batch write's groups, which normally takes about 10 ms (8 slots, one broker).
FORGET_MS = 3_000
# Spark tells the user why the micro-batch failed only after the abort. The next plan ends what is left.
ABORT_MS = 60_000
# A commit of 1,024 slots takes 4.0 s on brokers that share two cores (docs/design/performance.md, "Many slots").
MANY = 500
# Sinks of this process. Each micro-batch of a stream has about as many slots as the one before.
_WARNED: set[str] = set()


def commit_micro_batch(given: GivenOptions, receipts: Sequence[TaskCommitMessage]) -> None:
    """Make the rows of all tasks visible. Raises ExactlyOnceError, ClusterError."""
    counted = [receipt for receipt in receipts if isinstance(receipt, CountedCommitMessage)]
    if counted:
        _skip_version(given, counted)
        return
    messages = [receipt for receipt in receipts if isinstance(receipt, PreparedCommitMessage)]
    warn_of_rate(messages)
    plan, began_ms = _plan_of(messages), monotonic_ms()
    with (
        in_transaction_errors(plan.batch, committing=plan.sink),
        lease_admin_client(planned_config(given).producer, plan.sink.cluster_id) as client,
    ):
        if plan.sink.is_derived and messages[0].micro_batch_id == 0:
            run(client, check_first_name(plan.sink, messages[0].prepared.query_id))
        _warn_of_recreated(plan, messages)
        if messages[0].proof is not None:
            _prove(client, plan, messages)
        run(
            client,
            deciding.commit(
                plan.sink,
                plan.facts,
                [message.prepared for message in messages],
                micro_batch_id=messages[0].micro_batch_id,
                now_ms=wall_clock_ms(),
                open_ms=max(0, monotonic_ms() - plan.planned_ms),
                allow_lost_state=plan.allow_lost_state,
                topic_ids={topic: topic_id for each in messages for topic, topic_id in each.topic_ids.items()},
            ),
        )
    with_transactions = sum(not message.prepared.rests for message in messages)
    _warn_of_many_slots(plan.sink.names.sink, with_transactions, (monotonic_ms() - began_ms) / 1_000)
    if plan.batch is not None and plan.batch.kind is WriteKind.BATCH:
        _forget(given, plan)


def _plan_of(messages: Sequence[PreparedCommitMessage]) -> Plan:
    """Return the plan of all tasks. Raises DriverFenced if some tasks had another plan."""
    plan = messages[0].plan
    assert plan is not None, "the first Spark partition's message brings the plan"
    for message in messages:
        if message.generation != plan.facts.generation:
            with in_transaction_errors(plan.batch):
                raise DriverFenced(
                    sink=plan.sink.names.sink, generation=str(plan.facts.generation), current=str(message.generation)
                )
    return plan


def _prove(client: AdminClient, plan: Plan, messages: Sequence[PreparedCommitMessage]) -> None:
    """Write the receipt file after the checks of the decision, so that a refused run replaces no valid file."""
    prepared, micro_batch_id = [message.prepared for message in messages], messages[0].micro_batch_id
    run(client, check_generation(plan.sink, plan.facts.generation))
    check_decision(
        plan.sink, plan.facts, prepared, micro_batch_id=micro_batch_id, allow_lost_state=plan.allow_lost_state
    )
    check_replay(plan.sink, prepared, micro_batch_id=micro_batch_id)
    write_receipt(messages)


class _LeftThere(Exception):
    """Some groups could not be deleted."""


def _forget(given: GivenOptions, plan: Plan) -> None:
    """Delete the write's groups, which nobody reads again. Never raises, because the rows are visible."""
    try:
        with lease_admin_client(planned_config(given).producer, plan.sink.cluster_id) as client:
            try:
                with client.within(FORGET_MS):
                    run(client, deciding.forget(plan.sink, plan.facts.generation))
            except KafkaSinkError as error:
                # A different error class, so that the client does not check the cluster's hosts (`look_at_hosts`).
                raise _LeftThere from error
    # Catch all exceptions: after an error Spark would fail a write that is complete.
    except Exception as error:
        log.debug("groups of %s are left to expire: %s", plan.sink.names.sink, error.__cause__ or error)


def _warn_of_recreated(plan: Plan, messages: Sequence[PreparedCommitMessage]) -> None:
    """Warn of recreated topics whose rows are not written again, because their slots were visible before."""
    decision = plan.facts.decision
    ids = {topic: found for each in messages if each.prepared.visible for topic, found in each.topic_ids.items()}
    decided = messages[0].micro_batch_id, messages[0].prepared.query_id
    if decision is not None and (decision.micro_batch_id, decision.query_id) == decided:
        _warn_of_recreated_topics(plan, decision, ids)


def _warn_of_recreated_topics(plan: Plan, decision: Decision, topic_ids: Mapping[str, str | None]) -> None:
    """Warn if the current `topic_ids` differ from those of the decision."""
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


def _warn_of_many_slots(sink: str, slots: int, took_s: float) -> None:
    """Log one line for each sink with more than MANY slots. `took_s`: how long the commit took."""
    if slots <= MANY or sink in _WARNED:
        return
    _WARNED.add(sink)
    log.warning(
        "a commit of exactly-once sink %r took %.1f s: it has %d slots, one for each Spark partition. The rows "
        "are safe. Fewer Spark partitions make it faster: df.coalesce(64) before the write.",
        sink,
        took_s,
        slots,
    )


# --- versions that were written before --------------------------------------------------------------------------------


def _skip_version(given: GivenOptions, counted: Sequence[CountedCommitMessage]) -> None:
    """Commit a version that the plan found written: compare its rows, and log a warning that nothing was written.

    The rows are compared only if this version was the last decision. Raises NonDeterministicReplay, ExactlyOnceError,
    ClusterError.
    """
    plan = counted[0].plan
    assert plan is not None and plan.batch is not None and plan.facts.decision is not None, "a version was planned"
    version, decided = plan.batch.batch_id, plan.facts.decision.micro_batch_id
    if version == decided:
        _check_written(given, plan, counted)
    log.warning(
        "txnVersion %d of txnAppId %r writes nothing (%d rows were read), because %s. New rows need a higher "
        "txnVersion; a stream with a new checkpoint, whose batch ids begin again, a new txnAppId.",
        version,
        plan.sink.names.sink,
        sum(each.record_count for each in counted),
        "it was written before" if version == decided else f"{decided} was written before",
    )


def _check_written(given: GivenOptions, plan: Plan, counted: Sequence[CountedCommitMessage]) -> None:
    # Imported here: other commits need nothing of a task.
    from kafka_sink.spark.exactly_once.slot import total_of

    assert plan.facts.decision is not None, "the decision of the written version"
    topics = tuple(sorted({topic for each in counted for topic in each.topics}))
    with (
        in_transaction_errors(plan.batch, committing=plan.sink),
        lease_admin_client(planned_config(given).producer, plan.sink.cluster_id) as client,
    ):
        led, leaderless = client.partitions(topics)
        _warn_of_recreated_topics(plan, plan.facts.decision, client.topic_ids(topics))
        steps = planning.check_written(
            plan.sink,
            plan.facts,
            [each.fingerprint for each in counted],
            total=total_of,
            touched=led + leaderless,
            allow_lost_state=plan.allow_lost_state,
        )
        run(client, steps)


# --- abort ------------------------------------------------------------------------------------------------------------


def abort_micro_batch(
    given: GivenOptions, messages: Sequence[WriterCommitMessage | None], *, checkpoint: str | None = None
) -> None:
    """End the open transactions of a stream's micro-batch. Never raises, like `abort_run`.

    Does nothing if neither a message nor the file of the last run has its generation.
    """
    prepared = next((message for message in messages if isinstance(message, PreparedCommitMessage)), None)
    if prepared is not None:
        abort_run(given, prepared.sink_name, prepared.generation)
        return
    try:
        name = stream_name(given, checkpoint)
    except ConfigError:  # the planning process has raised it
        return
    if name is None and checkpoint is not None:
        # The planning process knows which.
        names = possible_names(checkpoint)
    else:
        names = [] if name is None else [name.sink]
    for sink in names:
        if (generation := recall(sink, checkpoint)) is not None:
            abort_run(given, sink, generation)


def abort_run(given: GivenOptions, prefix: str, generation: Ids) -> None:
    """End the open transactions of a run, if the cluster answers. The next plan ends those that remain.

    Never raises: Spark would show this error instead of the error that failed the micro-batch.
    """
    try:
        config = planned_config(given)
    except ConfigError:  # the planning process has raised it
        return
    try:
        with lease_admin_client(config.producer, has_worked=True) as client, client.within(ABORT_MS):
            run(client, planning.abort(sink_of(config, prefix, client), generation))
    except KafkaSinkError as error:
        log.warning(
            "the open transactions of this run of %r could not be ended. read_committed readers wait until the "
            "transactions time out (kafka.transaction.timeout.ms) or the next start ends them; `%s` lists them: %s",
            prefix,
            shell_command("pykafka transactions describe", {"--prefix": prefix}),
            error,
        )
