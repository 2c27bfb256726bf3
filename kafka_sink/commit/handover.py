"""The sink's identity, and the facts that plan, tasks and commit (three processes) pass on about a micro-batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from kafka_sink.commit.markers import (
    FORGOTTEN,
    METADATA_MAX_CHARACTERS,
    MOST_RESTING_SLOTS,
    Decision,
    Ids,
    Marker,
    Names,
)
from kafka_sink.errors.quoting import shell_command
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Sink:
    """The identity and the settings of a sink.

    `timeout_ms`: the timeout of its transactions (`kafka.transaction.timeout.ms`). `transaction_version`: the version
    of the cluster (2: KIP-890). `metadata_max_characters`: the brokers' limit (`offset.metadata.max.bytes`).
    `bootstrap_servers`: used in the commands that error messages show. `is_versioned`: its micro-batches are versions
    of batch writes (`txnVersion`). `cluster_id`: the cluster of the plan, which tasks and commit must use too; None if
    unknown. `comes_again`: a later run may write the same micro-batch; False for a batch write without a version.
    `is_derived`: the user did not set the name of the sink.
    """

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
    """The facts that `plan` found. The writer carries them to the tasks, and the tasks' messages carry them to
    `commit`, which runs in another process.

    `generation`: the driver's ids for this micro-batch; other ids belong to another run. `markers`: the markers of the
    decision's slots, by slot. `unproved`: the decision's slots that lost their markers and may be visible or not.
    `is_forgotten`: there was a decision, and it is gone. `awake`: slots with an open transaction under ids that have
    committed, which only InitProducerId ends: a late request of version 1 began it, or the coordinator went back.
    """

    generation: Ids
    decision: Decision | None
    markers: Mapping[int, Marker]
    unproved: tuple[int, ...] = ()
    is_forgotten: bool = False
    awake: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the slots in columns, of which a task reads one place."""
        decision = self.decision and replace(self.decision, pinned=Pins.of(self.decision.pinned))
        markers = Markers.of(self.markers)
        return Facts, (self.generation, decision, markers, self.unproved, self.is_forgotten, self.awake)

    @property
    def visible(self) -> dict[int, Marker]:
        """The markers of the decided slots that are visible, by slot."""
        return visible_of(self.decision, self.markers) if self.decision is not None else {}

    @property
    def incomparable(self) -> list[int]:
        """The visible slots without a fingerprint, because it was lost."""
        return sorted(slot for slot, marker in self.visible.items() if marker.fingerprint == FORGOTTEN)

    @property
    def missing(self) -> list[int]:
        """The decided slots that are not visible. A slot that rested has nothing to show."""
        if self.decision is None:
            return []
        there = self.visible.keys() | self.decision.resting
        return [slot for slot in range(len(self.decision.pinned)) if slot not in there]

    def resting_ids(self, slot: int, transaction_version: int) -> Ids | None:
        """Return the ids of the slot's last commit if the slot may rest: without rows it then needs no transaction.

        None: the slot needs one, even without rows. Slot 0 always does, so that its coordinator shows if a decision
        was lost. So does a slot whose last commit is unknown or of another version of transactions, and one beyond
        MOST_RESTING_SLOTS.
        """
        decision = self.decision
        slots = 0 if decision is None else min(len(decision.pinned), MOST_RESTING_SLOTS)
        if decision is None or not 0 < slot < slots or slot in self.awake:
            return None
        marker = self.markers.get(slot)
        decided = decision.micro_batch_id, decision.query_id
        is_visible = marker is not None and (marker.micro_batch_id, marker.query_id) == decided
        is_settled = is_visible or slot in decision.resting
        return decision.pinned[slot] if is_settled and decision.transaction_version == transaction_version else None


def visible_of(decision: Decision, markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """Return the `markers` that belong to the decision's micro-batch.

    Once a slot is visible, the slots that rested are too: their replay must have no rows either.
    """
    decided = decision.micro_batch_id, decision.query_id
    visible = {slot: marker for slot, marker in markers.items() if (marker.micro_batch_id, marker.query_id) == decided}
    return {slot: decision.marker_of(slot) for slot in decision.resting} | visible if visible else {}


@dataclass(frozen=True, slots=True)
class SlotBegun:
    """`visible`: the marker if rows of this slot and micro-batch are visible already. Then the task writes nothing."""

    slot: int
    ids: Ids
    visible: Marker | None


@dataclass(frozen=True, slots=True)
class SlotPrepared:
    """The result of a task: rows that are acknowledged and not visible yet, or rows that were `visible` before.

    The task counts visible rows again and does not write them. `partitions`: the partitions that the task wrote to, or
    all partitions that may have the visible rows. `first_offsets`: the offset of the first row by written partition,
    None if the leader did not return it. `record_counts`: how many records the leader acknowledged, by written
    partition. `rests`: the slot has no rows and no transaction; `ids` are those of its last commit.
    """

    slot: int
    ids: Ids
    query_id: str
    fingerprint: str
    visible: Marker | None
    partitions: tuple[TopicPartition, ...] = ()
    first_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    record_counts: Mapping[TopicPartition, int] = field(default_factory=dict)
    rests: bool = False

    @property
    def is_open(self) -> bool:
        """True if the task has left a transaction open, which the commit must end."""
        return self.visible is None and not self.rests


def command(sink: Sink, name: str, *, topic: str | None = None) -> str:
    """Return the shell command `pykafka transactions <name>` for this sink, limited to `topic` unless that is None."""
    options = {
        "--bootstrap-servers": sink.bootstrap_servers,
        "--prefix": sink.names.sink,
        "--commit-topic": sink.names.commit_topic,
    }
    only = {} if topic is None else {"--topic": topic}
    return shell_command(f"pykafka transactions {name}", options | only)


# --- by slot ----------------------------------------------------------------------------------------------------------
# Spark gives the facts of all slots to every task, which reads those of its own slot. As objects, those of 1,024 slots
# take a task 3 ms to unpickle. So they are pickled as plain columns, and made one by one when they are read.

_NOT_PINNED = "-"


class Pins(Sequence[Ids | None]):
    """The ids that a decision pins, by slot; None for a slot that was visible before."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._texts = text.split()

    @classmethod
    def of(cls, pinned: Iterable[Ids | None]) -> Pins:
        return cls(" ".join(_NOT_PINNED if ids is None else str(ids) for ids in pinned))

    def __reduce__(self) -> tuple[Any, ...]:
        return Pins, (self._text,)

    @overload
    def __getitem__(self, slot: int) -> Ids | None: ...
    @overload
    def __getitem__(self, slot: slice) -> tuple[Ids | None, ...]: ...
    def __getitem__(self, slot: int | slice) -> Ids | tuple[Ids | None, ...] | None:
        if isinstance(slot, slice):
            return tuple(map(_read, self._texts[slot]))
        return _read(self._texts[slot])

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)


def _read(text: str) -> Ids | None:
    return None if text == _NOT_PINNED else Ids.read(text)


class Markers(Mapping[int, Marker]):
    """Markers by slot."""

    def __init__(self, slots: Sequence[int], *columns: Sequence[Any]) -> None:
        """`slots`: ascending. `columns`: a field of Marker each, in the order of `slots`."""
        self._slots = slots
        self._columns = columns

    @classmethod
    def of(cls, markers: Mapping[int, Marker]) -> Markers:
        slots = sorted(markers)
        in_order = [markers[slot] for slot in slots]
        # Equal query ids become one object, which is pickled once.
        query_ids = {marker.query_id: marker.query_id for marker in in_order}
        return cls(
            slots,
            [marker.micro_batch_id for marker in in_order],
            [query_ids[marker.query_id] for marker in in_order],
            [marker.fingerprint for marker in in_order],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Markers, (self._slots, *self._columns)

    def __getitem__(self, slot: int) -> Marker:
        place = bisect_left(self._slots, slot)
        if place == len(self._slots) or self._slots[place] != slot:
            raise KeyError(slot)
        return Marker(*(column[place] for column in self._columns))

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)
