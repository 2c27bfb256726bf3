"""Whose transactions they are, and what plan, tasks and commit, three processes, tell each other of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_sink.commit.markers import FORGOTTEN, METADATA_MAX_CHARACTERS, Decision, Ids, Marker, Names
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.text.quoting import shell_command


@dataclass(frozen=True, slots=True)
class Sink:
    """What stays the same for a sink. `timeout_ms` is the transactions' (`kafka.transaction.timeout.ms`),
    `transaction_version` the cluster's (2: KIP-890), `metadata_max_characters` the brokers' limit
    (`offset.metadata.max.bytes`). `bootstrap_servers`: for the commands that errors tell. `is_versioned`: its
    micro-batches are the versions of batch writes (`txnVersion`). `cluster_id`: the cluster that was planned on, where
    tasks and commit must be too; None: not known. `comes_again`: a later run may write the same micro-batch; not so for
    a batch write without a version. `is_derived`: the user did not set its name."""

    names: Names
    timeout_ms: int
    transaction_version: int
    metadata_max_characters: int = METADATA_MAX_CHARACTERS
    bootstrap_servers: str = "HOST:PORT"
    is_versioned: bool = False
    cluster_id: str | None = None
    comes_again: bool = True
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What `plan` found. They ride in the writer to the tasks, and in their messages to `commit`, which is another
    process. `generation`: the driver's ids of this micro-batch; whoever has others belongs to another run. `markers`:
    by slot, those of the decision's slots. `unproved`: the decision's slots that have lost their markers, and of which
    nothing else proves whether they are visible. `is_forgotten`: there was a decision, and it is gone."""

    generation: Ids
    decision: Decision | None
    markers: Mapping[int, Marker]
    unproved: tuple[int, ...] = ()
    is_forgotten: bool = False

    @property
    def visible(self) -> dict[int, Marker]:
        """The markers of the slots that are visible of what was decided."""
        return visible_of(self.decision, self.markers) if self.decision is not None else {}

    @property
    def incomparable(self) -> list[int]:
        """The visible slots whose fingerprints are lost."""
        return sorted(slot for slot, marker in self.visible.items() if marker.fingerprint == FORGOTTEN)

    @property
    def missing(self) -> list[int]:
        """The slots that were decided and are not visible."""
        visible = self.visible
        return [slot for slot in range(len(self.decision.pinned)) if slot not in visible] if self.decision else []


def visible_of(decision: Decision, markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """Those of `markers` that belong to the decision's micro-batch."""
    decided = decision.micro_batch_id, decision.query_id
    return {slot: marker for slot, marker in markers.items() if (marker.micro_batch_id, marker.query_id) == decided}


@dataclass(frozen=True, slots=True)
class SlotBegun:
    """`visible`: the marker, where rows of this slot and micro-batch are visible already: nothing is to be written."""

    slot: int
    ids: Ids
    visible: Marker | None


@dataclass(frozen=True, slots=True)
class SlotPrepared:
    """A task's rows, acknowledged and not visible; or its rows, counted again, where they were `visible` before.

    `partitions`: those it wrote to; where its rows were visible before, all that they can be in. `first_offsets`: where
    its rows begin in those it wrote to, None where the leader did not say.
    """

    slot: int
    ids: Ids
    query_id: str
    fingerprint: str
    visible: Marker | None
    partitions: tuple[TopicPartition, ...] = ()
    first_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)


def command(sink: Sink, name: str, *, topic: str | None = None) -> str:
    """What an operator types to do what `pykafka transactions` calls `name`, looking at `topic` alone."""
    options = {
        "--bootstrap-servers": sink.bootstrap_servers,
        "--prefix": sink.names.sink,
        "--commit-topic": sink.names.commit_topic,
    }
    only = {} if topic is None else {"--topic": topic}
    return shell_command(f"pykafka transactions {name}", options | only)
