"""Segment files of a local broker, written by a test while the broker is down: logs that no client can make."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_sink.broker import LocalKafka
from waiting import wait_until

DEADLINE_S = 60
_LENGTH_END, _EPOCH = 12, slice(12, 16)
# The broker makes them again.
_DERIVED = {".index", ".timeindex", ".txnindex", ".snapshot"}


@contextmanager
def down(kafka: LocalKafka) -> Iterator[None]:
    """Stop the broker in order, and start it after the block. A killed broker would repair its logs when it starts."""
    os.kill(kafka.pid(1), signal.SIGTERM)
    wait_until(lambda: any(kafka.dir.glob("**/.kafka_cleanshutdown")), DEADLINE_S, "the broker has stopped")
    kafka.kill(1)
    yield
    kafka.start(1)


def segment_of(kafka: LocalKafka, topic: str) -> Path:
    """Return the one file of partition 0."""
    (segment,) = kafka.dir.glob(f"**/{topic}-0/*.log")
    return segment


def move(kafka: LocalKafka, topic: str, by: int) -> None:
    """Add so much to all offsets of a log. No CRC covers them."""
    segment = segment_of(kafka, topic)
    content = bytearray(segment.read_bytes())
    at = 0
    while at < len(content):
        base = int.from_bytes(content[at : at + 8], "big")
        content[at : at + 8] = (base + by).to_bytes(8, "big")
        at += _LENGTH_END + int.from_bytes(content[at + 8 : at + 12], "big")
    _replace(segment, segment.with_name(f"{int(segment.stem) + by:020d}.log"), bytes(content))


def fill(kafka: LocalKafka, topic: str, batches: Iterable[bytes]) -> None:
    """Let the log have these batches and no others."""
    content = bytearray()
    for batch in batches:
        of_leader = bytearray(batch)
        of_leader[_EPOCH] = bytes(4)
        content += of_leader
    segment = segment_of(kafka, topic)
    _replace(segment, segment, bytes(content))


def _replace(segment: Path, by: Path, content: bytes) -> None:
    for each in segment.parent.iterdir():
        if each.suffix in _DERIVED:
            each.unlink()
    segment.unlink()
    by.write_bytes(content)
