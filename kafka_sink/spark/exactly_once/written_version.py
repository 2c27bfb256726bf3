"""The commit of a version that was written before: it compares the rows, and logs that nothing was written."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_sink.commit import two_phase
from kafka_sink.commit.runner import run
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.exactly_once.counting import total_of
from kafka_sink.spark.exactly_once.created_again import warn_created_again
from kafka_sink.spark.exactly_once.messages import CountedCommitMessage
from kafka_sink.spark.exactly_once.plan import Plan, planned_config
from kafka_sink.spark.exactly_once.transactional_errors import told_of_a_transaction

log = logging.getLogger(__name__)


def pass_over(given: GivenOptions, counted: Sequence[CountedCommitMessage]) -> None:
    """Commit a version that the plan found written: compare its rows, and log a warning that nothing was written.

    The rows are compared only if this version was the last decision. Raises NonDeterministicReplay, ExactlyOnceError,
    ClusterError.
    """
    plan = counted[0].plan
    assert plan is not None and plan.batch is not None and plan.facts.decision is not None, "a version was planned"
    version, decided = plan.batch.micro_batch_id, plan.facts.decision.micro_batch_id
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
    assert plan.facts.decision is not None, "the decision of the written version"
    topics = tuple(sorted({topic for each in counted for topic in each.topics}))
    with (
        told_of_a_transaction(plan.batch, committing=plan.sink),
        lease_admin_client(planned_config(given).producer, plan.sink.cluster_id) as client,
    ):
        led, leaderless = client.partitions(topics)
        warn_created_again(plan, plan.facts.decision, client.topic_ids(topics))
        steps = two_phase.check_written(
            plan.sink,
            plan.facts,
            [each.fingerprint for each in counted],
            total=total_of,
            touched=led + leaderless,
            allow_lost_state=plan.allow_lost_state,
        )
        run(client, steps)
