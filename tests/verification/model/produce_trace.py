"""Produce requests of every kind that a leader checks, one after the other, for the model and for real brokers.

Each step is (name, records, how it is sent); the trace is run on an empty topic with max.message.bytes=1000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import crc32c

from model.byte_client import record_batch
from model.record_batches import HEADER

BASE_OFFSET, LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, COUNT = 0, 1, 3, 4, 5, 6, 12
LAST_SEQUENCE = 2**31 - 1
MAX_MESSAGE_BYTES = 1_000


def changed(records: bytes, field: int, value: int) -> bytes:
    """With another value in a field of the header, and the CRC of that unless the field is the CRC."""
    fields = list(HEADER.unpack_from(records))
    fields[field] = value
    data = HEADER.pack(*fields) + records[HEADER.size :]
    if field != CRC:
        data = data[:17] + crc32c.crc32c(data[21:]).to_bytes(4, "big") + data[21:]
    return data


class Step(NamedTuple):
    name: str
    records: bytes
    partition: int = 0
    acks: int = -1


def broken_batches() -> Iterator[Step]:
    good = record_batch(b"a", b"b")
    yield Step("wrong crc", changed(good, CRC, 1))
    yield Step("cut", good[:-1])
    yield Step("cut in the header", good[:40])
    yield Step("nothing", b"")
    yield Step("length of less than a header", changed(good, LENGTH, 40))
    yield Step("negative length", changed(good, LENGTH, -1))
    yield Step("two batches", good + good)
    yield Step("a batch and a piece of another", good + good[:20])
    yield Step("magic 1", changed(good, MAGIC, 1))
    yield Step("base offset", changed(good, BASE_OFFSET, 1))
    yield Step("last delta", changed(good, LAST_DELTA, 2))
    yield Step("count", changed(good, COUNT, 3))
    yield Step("count and delta", changed(changed(good, COUNT, 3), LAST_DELTA, 2))
    yield Step("count too small", changed(changed(good, COUNT, 1), LAST_DELTA, 0))
    yield Step("empty", changed(changed(good, COUNT, 0), LAST_DELTA, -1))
    yield Step("control", changed(good, ATTRIBUTES, 0b100000))
    yield Step("too large", record_batch(bytes(MAX_MESSAGE_BYTES)))
    yield Step("unknown partition", good, partition=7)
    yield Step("acks of 2", good, acks=2)


def idempotence(producer_id: int, other_producer_id: int) -> Iterator[Step]:
    def batch(base_sequence: int, count: int = 1, epoch: int = 0) -> bytes:
        values = [b"v"] * count
        return record_batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)

    yield Step("no sequence", batch(-1))
    for sequence in range(7):
        yield Step(f"sequence {sequence}", batch(sequence))
    yield Step("resent", batch(6))
    yield Step("the fifth last resent", batch(2))
    yield Step("the sixth last resent", batch(1))
    yield Step("the first resent", batch(0))
    yield Step("gap", batch(9))
    yield Step("two", batch(7, 2))
    yield Step("the second of two", batch(8))
    yield Step("three where two were", batch(7, 3))
    yield Step("new epoch not from 0", batch(9, epoch=1))
    yield Step("new epoch", batch(0, epoch=1))
    yield Step("old epoch resent", batch(7, 2))
    yield Step("old epoch goes on", batch(9))
    other = {"producer_id": other_producer_id, "producer_epoch": 0}
    yield Step("starts anywhere", record_batch(b"w", b"w", base_sequence=LAST_SEQUENCE - 1, **other))
    yield Step("wraps", record_batch(b"w", base_sequence=0, **other))
    yield Step("before the wrap, resent", record_batch(b"w", b"w", base_sequence=LAST_SEQUENCE - 1, **other))
    yield Step("acks of 1", record_batch(b"w", base_sequence=1, **other), acks=1)


Send = Callable[[Step], tuple[int, int] | None]


def run(send: Send, producer_id: int, other_producer_id: int) -> dict[str, tuple[int, int] | None]:
    """By name of the step, the error code and base offset that `send` got; None if the connection ended."""
    steps = [*broken_batches(), *idempotence(producer_id, other_producer_id), *broken_batches()]
    return {f"{number} {step.name}": send(step) for number, step in enumerate(steps)}
