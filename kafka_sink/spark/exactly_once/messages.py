"""The messages from tasks of an exactly-once write to the commit."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.commit.handover import SlotPrepared
from kafka_sink.commit.markers import Ids
from kafka_sink.spark.exactly_once.plan import Plan
from kafka_sink.spark.task_results import TaskCommitMessage


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
