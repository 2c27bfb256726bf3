"""The committing worker's part of exactly-once: it makes the rows of all tasks visible."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_sink.commit import two_phase
from kafka_sink.commit.exchanges import check_generation
from kafka_sink.commit.forgetting import forget
from kafka_sink.commit.lineage import check_decision, check_replay
from kafka_sink.commit.runner import run
from kafka_sink.errors import DriverFenced, KafkaSinkError
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.exactly_once.created_again import tell_created_again
from kafka_sink.spark.exactly_once.many_slots import tell_many_slots
from kafka_sink.spark.exactly_once.messages import CountedCommitMessage, PreparedCommitMessage
from kafka_sink.spark.exactly_once.plan import Plan, planned_config
from kafka_sink.spark.exactly_once.transactional_errors import told_of_a_transaction
from kafka_sink.spark.exactly_once.written_version import pass_over
from kafka_sink.spark.rate import tell_too_fast
from kafka_sink.spark.receipt_writer import write_receipt

log = logging.getLogger(__name__)

# Time limit for the deletion of a batch write's groups, which normally takes about 10 ms (8 slots, one broker).
FORGET_MS = 3_000


def commit_micro_batch(given: GivenOptions, receipts: Sequence[TaskCommitMessage]) -> None:
    """Make the rows of all tasks visible. Raises ExactlyOnceError, ClusterError."""
    counted = [receipt for receipt in receipts if isinstance(receipt, CountedCommitMessage)]
    if counted:
        pass_over(given, counted)
        return
    messages = [receipt for receipt in receipts if isinstance(receipt, PreparedCommitMessage)]
    tell_too_fast(messages)
    plan, began_ms = _plan_of(messages), monotonic_ms()
    with (
        told_of_a_transaction(plan.batch, committing=plan.sink),
        lease_admin_client(planned_config(given).producer, plan.sink.cluster_id) as client,
    ):
        tell_created_again(plan, messages)
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
                open_ms=max(0, began_ms - plan.planned_ms),
                allow_lost_state=plan.allow_lost_state,
                topic_ids={topic: topic_id for each in messages for topic, topic_id in each.topic_ids.items()},
            ),
        )
    tell_many_slots(plan.sink.names.sink, len(messages), (monotonic_ms() - began_ms) / 1_000)
    if plan.batch is not None and not plan.batch.is_versioned:
        _forget(given, plan)


def _plan_of(messages: Sequence[PreparedCommitMessage]) -> Plan:
    """Return the plan of all tasks. Raises DriverFenced if some tasks had another plan."""
    plan = messages[0].plan
    assert plan is not None, "the first Spark partition's message brings the plan"
    for message in messages:
        if message.generation != plan.facts.generation:
            with told_of_a_transaction(plan.batch):
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
                    run(client, forget(plan.sink, plan.facts.generation))
            except KafkaSinkError as error:
                # A different error class, so that the client does not check the cluster's hosts (`first_aid`).
                raise _LeftThere from error
    # Catch all exceptions: after an error Spark would fail a write that is complete.
    except Exception as error:
        log.debug("groups of %s are left to expire: %s", plan.sink.names.sink, error.__cause__ or error)
