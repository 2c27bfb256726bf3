"""Record sets made field by field, right and wrong, and what a reader should get from them.

The bytes are made by struct and the scalar reference of record_cases, and share no code with the decoder.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import crc32c
import pyarrow as pa
from hypothesis import strategies as st

from kafka_sink.records.compression import codec_for
from kafka_sink.records.record_batch import AbortedTransaction
from record_cases import TEXT, Row, scalar_record

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
NO_END = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`rows`: with their offset deltas. Fields that are None follow from the others."""

    rows: Sequence[tuple[int, Row]] = ()
    base_offset: int = 0
    last_offset_delta: int | None = None
    codec: str = "none"
    attributes: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    magic: int = 2
    record_count: int | None = None
    records: bytes | None = None
    stored: bytes | None = None
    length: int | None = None
    crc: int | None = None

    @property
    def last_delta(self) -> int:
        if self.last_offset_delta is not None:
            return self.last_offset_delta
        return self.rows[-1][0] if self.rows else 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta

    def __bytes__(self) -> bytes:
        records = self.records
        if records is None:
            records = b"".join(
                scalar_record(row, delta, row.timestamp_ms - self.base_timestamp) for delta, row in self.rows
            )
        stored = self.stored
        if stored is None:
            stored = bytes(codec_for(self.codec).compress(memoryview(records))) if records else b""
        count = len(self.rows) if self.record_count is None else self.record_count
        covered = struct.pack(
            ">hiqqqhii", self.attributes | CODEC_IDS[self.codec], self.last_delta, self.base_timestamp,
            self.max_timestamp, self.producer_id, 0, 0, count,
        ) + stored  # fmt: skip
        crc = crc32c.crc32c(covered) if self.crc is None else self.crc
        length = 9 + len(covered) if self.length is None else self.length
        return struct.pack(">qiibI", self.base_offset, length, -1, self.magic, crc) + covered

    def expected(self) -> list[dict[str, Any]]:
        """The rows of a reader that wants all columns and all offsets."""
        if self.attributes & CONTROL:
            return []
        has_append_time = bool(self.attributes & LOG_APPEND_TIME)
        return [
            {
                "key": row.key, "value": row.value, "offset": self.base_offset + delta,
                "timestamp": 1000 * (self.max_timestamp if has_append_time else row.timestamp_ms),
                "timestampType": int(has_append_time),
                "headers": [(key.decode(), value) for key, value in row.headers or ()] or None,
            }
            for delta, row in self.rows
        ]  # fmt: skip


def row(value: bytes | None = b"v", key: bytes | None = None, timestamp_ms: int = 0, *headers: Any) -> Row:
    return Row(key, value, headers or None, timestamp_ms)


def plain(*values: bytes | None, base_offset: int = 0, **fields: Any) -> Batch:
    """A batch of these values, at offsets that follow one another."""
    return Batch(rows=[(i, row(value)) for i, value in enumerate(values)], base_offset=base_offset, **fields)


def marker(kind: int, base_offset: int, producer_id: int, **fields: Any) -> Batch:
    """A control batch; kind 0 aborts, 1 commits (ControlRecordType)."""
    record = Row(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), None, 0)
    attributes = TRANSACTIONAL | CONTROL
    given: dict[str, Any] = {"rows": [(0, record)], "attributes": attributes} | fields
    return Batch(base_offset=base_offset, producer_id=producer_id, **given)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows, timestamps as microseconds and headers as pairs."""

    def as_given(name: str, array: pa.Array) -> list[Any]:
        if name == "headers":
            pairs = array.to_pylist()
            return [each and [(entry["key"], entry["value"]) for entry in each] for each in pairs]
        values: list[Any] = (array.cast(pa.int64()) if name == "timestamp" else array).to_pylist()
        return values

    found = []
    for batch in batches:
        batch.validate(full=True)
        columns = [as_given(name, batch.column(name)) for name in batch.schema.names]
        found += [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


@dataclass(frozen=True)
class Case:
    """Batches with ascending offsets, the range and the transactions that a reader gives, and how many bytes of one
    more batch are there."""

    batches: list[Batch]
    first_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]
    cut_bytes: int = 0
    columns: tuple[str, ...] = field(default=COLUMNS)

    def __bytes__(self) -> bytes:
        whole = b"".join(map(bytes, self.batches))
        return whole + bytes(plain(b"cut off", base_offset=self.after))[: self.cut_bytes]

    @property
    def after(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @property
    def next_offset(self) -> int:
        return min(max(self.first_offset, self.after), self.end_offset)

    def expected(self) -> list[dict[str, Any]]:
        """As Java's consumer gives them (CompletedFetch)."""
        ahead = sorted(self.aborted, key=lambda each: each.first_offset)
        open_ids: set[int] = set()
        found = []
        for batch in self.batches:
            if self.aborted and batch.producer_id >= 0:
                while ahead and ahead[0].first_offset <= batch.last_offset:
                    open_ids.add(ahead.pop(0).producer_id)
                if batch.attributes & CONTROL:
                    if batch.rows and batch.rows[0][1].key == bytes(4):
                        open_ids.discard(batch.producer_id)
                elif batch.attributes & TRANSACTIONAL and batch.producer_id in open_ids:
                    continue
            found += batch.expected()
        wanted = [each for each in found if self.first_offset <= each["offset"] < self.end_offset]
        return [{name: each[name] for name in self.columns} for each in wanted]


MAYBE_TEXT = st.one_of(st.none(), TEXT)
# As far as microseconds go.
TIMESTAMPS_MS = st.one_of(st.integers(0, 2 * 10**12), st.sampled_from([-1, -(2**52), 2**52]))
ROWS = st.builds(
    Row, key=MAYBE_TEXT, value=MAYBE_TEXT, timestamp_ms=TIMESTAMPS_MS,
    headers=st.none() | st.lists(st.tuples(TEXT, MAYBE_TEXT), min_size=1, max_size=3).map(tuple),
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> Batch:
    kind = draw(st.sampled_from(["data", "data", "transactional", "marker", "empty"]))
    producer_id = draw(st.integers(1, 3))
    if kind == "marker":
        return marker(draw(st.integers(0, 2)), base_offset, producer_id)
    # Compaction leaves gaps, also before the first record and after the last.
    deltas = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True).map(sorted))
    rows = [] if kind == "empty" else [(delta, draw(ROWS)) for delta in deltas]
    made = Batch(
        rows=rows, base_offset=base_offset, last_offset_delta=deltas[-1] + draw(st.integers(0, 3)),
        codec="none" if kind == "empty" else draw(st.sampled_from(["none", "none", *CODEC_IDS])),
        attributes=draw(st.sampled_from([0, 0, LOG_APPEND_TIME])),
        base_timestamp=draw(TIMESTAMPS_MS), max_timestamp=draw(TIMESTAMPS_MS),
    )  # fmt: skip
    if kind != "transactional":
        return made
    return replace(made, attributes=made.attributes | TRANSACTIONAL, producer_id=producer_id)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    made: list[Batch] = []
    offset = draw(st.sampled_from([0, 5, 2**31, 2**62]))
    first = offset
    for _ in range(draw(st.integers(0, 6))):
        made.append(draw(batches(offset)))
        offset = made[-1].last_offset + 1 + draw(st.integers(0, 4))
    wanted = st.integers(first, offset)
    aborted = draw(st.lists(st.builds(AbortedTransaction, st.integers(1, 3), wanted), max_size=3))
    columns = draw(st.one_of(st.just(COLUMNS), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True).map(tuple)))
    return Case(
        made, first_offset=draw(st.one_of(st.just(0), wanted)), end_offset=draw(st.one_of(st.just(NO_END), wanted)),
        aborted=aborted, cut_bytes=draw(st.one_of(st.just(0), st.integers(1, 60))), columns=columns,
    )  # fmt: skip
