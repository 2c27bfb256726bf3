"""Warns of topics that were deleted and created again, so that committed rows are gone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from kafka_sink.commit.markers import Decision
from kafka_sink.spark.exactly_once.messages import PreparedCommitMessage
from kafka_sink.spark.exactly_once.plan import Plan

log = logging.getLogger(__name__)


def tell_created_again(plan: Plan, messages: Sequence[PreparedCommitMessage]) -> None:
    """Warn of recreated topics whose rows are not written again, because their slots were visible before."""
    decision = plan.facts.decision
    ids = {topic: found for each in messages if each.prepared.visible for topic, found in each.topic_ids.items()}
    decided = messages[0].micro_batch_id, messages[0].prepared.query_id
    if decision is not None and (decision.micro_batch_id, decision.query_id) == decided:
        warn_created_again(plan, decision, ids)


def warn_created_again(plan: Plan, decision: Decision, topic_ids: Mapping[str, str | None]) -> None:
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
