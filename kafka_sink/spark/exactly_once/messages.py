"""What a task of an exactly-once write tells the commit."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.commit.handover import Sink, SlotPrepared
from kafka_sink.commit.markers import Ids
from kafka_sink.spark.commit_message import TaskCommitMessage
from kafka_sink.spark.exactly_once.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommitMessage(TaskCommitMessage):
    """A task attempt's rows, acknowledged and not visible. `plan` is there for the first Spark partition only: its
    facts are as large as the number of slots, and one is enough."""

    prepared: SlotPrepared
    sink: Sink
    generation: Ids
    micro_batch_id: int
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommitMessage(TaskCommitMessage):
    """Rows that were read and not sent, as the plan says that they are written. `topics`: theirs. `plan`: as above."""

    fingerprint: str
    topics: tuple[str, ...]
    plan: Plan | None
