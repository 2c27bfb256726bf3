"""The result of a run, as plain values: the writes and how each ended, the committed logs, the producers' memory.

Records are read by kafka-python: no code of this project decodes what the oracles look at.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.record_batches import RecordBatch, decode_records
from simulation.rows import Row, RowId, row_id_of


@dataclass(slots=True, eq=False)
class WriteOutcome:
    """The result of one write, and its rows.

    `routed`: where each row that was routed goes; `now_ms`: the time that stands for a missing timestamp. `topic_ids`,
    `key_partitions`: the id and the number of partitions with which the write saw each topic first. `acknowledgements`
    once it ended well, `error` once it ended badly, neither while it runs. `flushed_ms`: when its last row was placed.
    `throttled_ms`: since then, by any broker.
    """

    writer: int
    write: int
    acks: str
    idempotent: bool
    max_in_flight: int
    partitioner: str
    producer: str
    started_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    rows: dict[RowId, Row] = field(default_factory=dict)
    routed: dict[RowId, TopicPartition] = field(default_factory=dict)
    now_ms: dict[RowId, int] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID | None] = field(default_factory=dict)
    key_partitions: dict[str, int] = field(default_factory=dict)
    acknowledgements: tuple[PartitionOffsets, ...] | None = None
    error: KafkaSinkError | None = None
    flushed_ms: int | None = None
    ended_ms: int | None = None
    throttled_ms: int = 0

    @property
    def keeps_order(self) -> bool:
        """Without sequences and with answers, one request at a time keeps the order of what is new."""
        return self.idempotent or (self.max_in_flight == 1 and self.acks != "0")

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(row.topic for row in self.rows.values())

    def __str__(self) -> str:
        if self.error is not None:
            result = type(self.error).__name__
        else:
            result = "ok" if self.acknowledgements is not None else "running"
        return f"writer {self.writer} write {self.write} by {self.producer}: {len(self.rows)} rows, {result}"


class LogKey(NamedTuple):
    """A partition of one incarnation of a topic: `topic_id` tells a topic from one of the same name after it, and `era`
    a cluster from the one that took its place, where topics may have the same ids."""

    topic: str
    topic_id: object
    partition: int
    era: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read; `row_id` is None if nobody wrote it. `batch_bytes` is the size of its batch,
    `batch_offset` where that starts."""

    row_id: RowId | None
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    batch_offset: int
    batch_bytes: int


def read_log(batches: Iterable[RecordBatch]) -> list[Record]:
    return [
        Record(
            row_id=row_id_of(key, value), offset=batch.base_offset + index, key=key, value=value,
            timestamp_ms=timestamp_ms, headers=headers, batch_offset=batch.base_offset, batch_bytes=len(batch.data),
        )
        for batch in batches
        for index, (key, value, timestamp_ms, headers) in enumerate(decode_records(batch.data))
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PoolState:
    """A producer's memory when it had nothing more to do. `available_bytes` by the pool's own count, `out_bytes` and
    `peak_bytes` by the buffers themselves."""

    producer: str
    total_bytes: int
    available_bytes: int
    out_bytes: int
    peak_bytes: int
    in_flight: bool


@dataclass(slots=True)
class Outcome:
    """`logs`: what is committed, of topics that were deleted what was when they were. `recreated`: topics that were
    deleted and made again, and when. `partition_counts`: of topics, at the end. `topic_ids`: whether the brokers take
    Produce by topic id. `names_topics_only`: they have no topic ids when the run begins. `pauses_ms`: for how long
    Sender threads did nothing. `refusals`: the codes that brokers were made to answer with. `only_quotas`: nothing else
    went wrong. `replaced`: when another cluster took the place of the one before. `exposed`: the rows that were under
    way when one was restored: nobody can tell whether they are there."""

    writes: list[WriteOutcome]
    logs: Mapping[LogKey, Sequence[Record]]
    pools: list[PoolState]
    faults_end_ms: int
    topic_ids: bool = True
    names_topics_only: bool = False
    recreated: Mapping[str, Sequence[int]] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    pauses_ms: int = 0
    refusals: frozenset[int] = frozenset()
    only_quotas: bool = False
    replaced: Sequence[int] = ()
    exposed: frozenset[RowId] = frozenset()
