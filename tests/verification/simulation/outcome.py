"""The rows of a write, and the result of a run as plain values: the writes and how each ended, the committed logs, the
producers' memory.

A value, or where that is null the key, starts with who wrote it: writer, write, and a number that counts through the
write. So every record of a log names its row, and the rows of a write that share a partition must have ascending
numbers there. Records are read by kafka-python: no code of this project decodes what the oracles look at.
"""

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.record_batches import RecordBatch, decode_records

# What the virtual clock's 0 is for rows without a timestamp.
EPOCH_MS = 1_700_000_000_000


class RowId(NamedTuple):
    writer: int
    write: int
    number: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `partition` is what the row asks for; None: the partitioner decides. `timestamp_ms` None: now."""

    row_id: RowId
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the rows of a write look like."""

    topics: tuple[str, ...]
    value_bytes: tuple[int, ...]
    keyed: float
    explicit_partitions: int
    with_headers: bool
    with_timestamps: bool
    with_tombstones: bool
    keys: int = 20


def make_rows(rng: random.Random, shape: RowShape, writer: int, write: int, start: int, count: int) -> list[Row]:
    return [_row(rng, shape, RowId(writer, write, number)) for number in range(start, start + count)]


def _row(rng: random.Random, shape: RowShape, row_id: RowId) -> Row:
    explicit = shape.explicit_partitions and rng.random() < 0.5
    headers = [(f"h{i}", rng.choice([None, b"", rng.randbytes(5)])) for i in range(rng.randint(0, 2))]
    key = b"key-%d" % rng.randrange(shape.keys) if rng.random() < shape.keyed else None
    tombstone = shape.with_tombstones and rng.random() < 0.2
    return Row(
        row_id=row_id, topic=rng.choice(shape.topics),
        partition=rng.randrange(shape.explicit_partitions) if explicit else None,
        key=_identify(row_id) if tombstone else key,
        value=None if tombstone else _identify(row_id) + rng.randbytes(rng.choice(shape.value_bytes)),
        headers=tuple(headers) if shape.with_headers else (),
        timestamp_ms=rng.randrange(EPOCH_MS) if shape.with_timestamps and rng.random() < 0.5 else None,
    )  # fmt: skip


def _identify(row_id: RowId) -> bytes:
    return b"%d/%d/%d|" % row_id


def row_id_of(key: bytes | None, value: bytes | None) -> RowId | None:
    """None for a record that nobody wrote."""
    text, bar, _ = (value or key or b"").partition(b"|")
    try:
        return RowId(*map(int, text.split(b"/"))) if bar else None
    except (ValueError, TypeError):
        return None


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_batch(rows: list[Row]) -> pa.RecordBatch:
    """As Spark would hand it over."""
    headers = [[{"key": key, "value": value} for key, value in row.headers] for row in rows]
    types = {"value": pa.binary(), "key": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
    columns = {name: pa.array([getattr(row, name) for row in rows], type_) for name, type_ in types.items()}
    timestamps = pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms"))
    return pa.record_batch({**columns, "headers": pa.array(headers, HEADERS), "timestamp": timestamps})


@dataclass(slots=True, eq=False)
class WriteOutcome:
    """The result of one write, and its rows.

    `routed`: where each row that was routed goes; `now_ms`: the time that stands for a missing timestamp. `topic_ids`,
    `key_partitions`: the id and the number of partitions with which the write saw each topic first. `acknowledgements`
    once it ended well, `error` once it ended badly, neither while it runs. `flushed_ms`: when its last row was placed.
    `throttled_ms`: since then, by any broker."""

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
