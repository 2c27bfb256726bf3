"""Compares a run with the records that a reader finds at its offsets. Pure: records and partition state are arguments.

| At a run's offsets | Verdict |
|---|---|
| all records are there, and the checksum is the receipt's | EQUAL |
| all records are there, and the checksum differs | ALTERED |
| the same, but the times are the broker's (message.timestamp.type=LogAppendTime) | COUNTED |
| some records are missing | MISSING |
| ... because the log begins after them: retention, or DeleteRecords | DELETED |
| ... because the topic is compacted, and only the last record of a key is kept | COMPACTED |
| ... because an open transaction hides them from read_committed readers | HIDDEN |
| the topic is gone, or was recreated with the same name | MISSING |

The checksum covers the records' own times, and the broker's times replace them. Rows without a `timestamp` column
mostly have the base time of their batch. So the checksum is also computed with that time, and the verdict is EQUAL if
it matches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from crc32c import crc32c

from kafka_sink.cli.verification.receipts import Run


class Verdict(Enum):
    EQUAL = auto()
    ALTERED = auto()
    MISSING = auto()
    HIDDEN = auto()
    DELETED = auto()
    COMPACTED = auto()
    COUNTED = auto()
    UNPLACED = auto()
    """The receipt has no offsets."""


WRONG = frozenset({Verdict.ALTERED, Verdict.MISSING, Verdict.HIDDEN})


class Record(NamedTuple):
    """A record from a consumer. `is_brokers_time`: the broker set the time when it appended the record."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    is_brokers_time: bool


@dataclass(frozen=True, slots=True)
class Log:
    """The state of a partition.

    `start`: the first offset. `visible_end`: the offset after the last visible one for this reader. `end`: the offset
    after the last one. `is_compacted`: None if unknown.
    """

    start: int
    visible_end: int
    end: int
    is_compacted: bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """`absent`: ranges of offsets (first, last) without a record. `why`: the reason, if the verdict is not EQUAL."""

    verdict: Verdict
    run: Run
    absent: tuple[tuple[int, int], ...] = ()
    why: str = ""

    @property
    def absent_count(self) -> int:
        return sum(last - first + 1 for first, last in self.absent)


def all_absent(run: Run, why: str) -> Finding:
    return Finding(Verdict.MISSING, run, ((run.base_offset, run.last_offset),), why)


def check(run: Run, records: Iterable[Record], log: Log) -> Finding:
    """Compare a run with `records`, the records at the run's offsets in order."""
    checksum, at_base_time = RunChecksum(run.base_timestamp), RunChecksum(run.base_timestamp)
    absent: list[tuple[int, int]] = []
    expected, are_brokers_times = run.base_offset, False
    for record in records:
        if record.offset > expected:
            absent.append((expected, record.offset - 1))
        expected = record.offset + 1
        if record.is_brokers_time:
            are_brokers_times = True
            at_base_time.add(record.key, record.value, record.headers, run.base_timestamp)
        else:
            checksum.add(record.key, record.value, record.headers, record.timestamp_ms)
    if expected <= run.last_offset:
        absent.append((expected, run.last_offset))
    if absent:
        verdict, why = _absence(absent, log)
        return Finding(verdict, run, tuple(absent), why)
    if are_brokers_times:
        if at_base_time.crc == run.checksum:
            return Finding(Verdict.EQUAL, run)
        return Finding(
            Verdict.COUNTED, run, why="its times are the broker's (message.timestamp.type=LogAppendTime), which the "
            "checksum of what was sent does not cover; every offset has a record"
        )  # fmt: skip
    if checksum.crc != run.checksum:
        return Finding(
            Verdict.ALTERED, run,
            why=f"checksum {checksum.crc:08x}, and {run.checksum & 0xFFFFFFFF:08x} in the receipt",
        )  # fmt: skip
    return Finding(Verdict.EQUAL, run)


def _absence(absent: list[tuple[int, int]], log: Log) -> tuple[Verdict, str]:
    """Return the reason for the absent records; the worst one if there are several."""
    within = [(first, last) for first, last in absent if last >= log.start]
    if any(first < log.visible_end for first, _ in within):
        if log.is_compacted:
            return Verdict.COMPACTED, "the topic is compacted: of records with the same key the last one is kept"
        unknown = "" if log.is_compacted is False else "; whether the topic is compacted could not be asked"
        return Verdict.MISSING, f"the log goes from {log.start} to {log.end - 1} and has no records there{unknown}"
    if any(first >= log.end for first, _ in within):
        return Verdict.MISSING, f"the log ends before, at offset {log.end}"
    if within:
        return Verdict.HIDDEN, (
            f"read_committed readers see nothing from offset {log.visible_end} on: a transaction is open there. "
            "While the query runs, verify again; else pykafka transactions tells whose it is"
        )
    return Verdict.DELETED, f"the log begins at offset {log.start}: retention, or somebody, has deleted what was before"


# --- records, encoded again -------------------------------------------------------------------------------------------

Headers = Iterable[tuple[str, bytes | None]]


class RunChecksum:
    """CRC-32C of a run's records section, over the records added so far. `base_timestamp`: the run's, in ms.

    It uses nothing of `kafka_sink.records`, because the encoder that wrote the records must not check them. Plain
    Python for each record (5 us each), because speed does not matter here. A record is (DefaultRecord, KIP-98):

        length | attributes 0 | timestamp delta | offset delta | key | value | count of headers | (key | value)*

    All numbers are zigzag varints. Keys and values, also those of headers, follow their length, which is -1 for null.
    """

    __slots__ = ("_base_timestamp", "count", "crc")

    def __init__(self, base_timestamp: int) -> None:
        self._base_timestamp = base_timestamp
        self.count = 0
        self.crc = 0

    def add(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> None:
        """Add the next record."""
        body = bytearray(b"\0")
        body += varint(timestamp_ms - self._base_timestamp) + varint(self.count)
        _put(body, key)
        _put(body, value)
        entries = tuple(headers)
        body += varint(len(entries))
        for name, content in entries:
            _put(body, name.encode())
            _put(body, content)
        self.crc = crc32c(bytes(body), crc32c(varint(len(body)), self.crc))
        self.count += 1


def varint(number: int) -> bytes:
    """Return the zigzag varint: seven bits in each byte, the lowest first. `number`: at most 64 bits."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _put(body: bytearray, part: bytes | None) -> None:
    if part is None:
        body += varint(-1)
    else:
        body += varint(len(part))
        body += part
