"""Offsets of a read: where a stream has read to, as Spark keeps it in a checkpoint, and what a log has of a range.

A checkpoint has the JSON of Spark's own Kafka source, {"orders": {"0": 23, "1": 5}}: for each partition the offset of
the next record. So a query can go on with the other source on the same checkpoint.

Source: org.apache.spark.sql.kafka010.KafkaSourceOffset, JsonUtils, KafkaOffsetReaderAdmin,
consumer.KafkaDataConsumer.reportDataLoss.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_sink.errors import OffsetNotWritten, OffsetsLost
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

log = logging.getLogger("kafka_sink")

Positions: TypeAlias = Mapping[TopicPartition, int]
Checkpointed: TypeAlias = dict[str, dict[str, int]]


def positions_of(checkpointed: Checkpointed) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, by_number in checkpointed.items()
        for number, offset in by_number.items()
    }


def checkpointed(positions: Positions) -> Checkpointed:
    """Return the positions for a checkpoint, always in the same order: Spark compares texts."""
    found: Checkpointed = {}
    for each in sorted(positions):
        found.setdefault(each.topic, {})[str(each.partition)] = positions[each]
    return found


def named(names: Sequence[str | TopicPartition], most: int = 3) -> str:
    """Return topics and partitions for a message, at most so many of them."""
    texts = [each if isinstance(each, str) else f"{each.topic}-{each.partition}" for each in names[:most]]
    return ", ".join(texts) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True, slots=True)
class Offsets:
    """From `first` to before `end`."""

    first: int
    end: int


def clipped(partition: TopicPartition, asked: Offsets, there: Offsets, *, fail_on_data_loss: bool) -> Offsets:
    """Return the asked offsets that are there. They may be none.

    `there`: what this reader may read of the log. Raises OffsetNotWritten, OffsetsLost if `fail_on_data_loss`.
    """
    found = Offsets(_near(asked.first, there), _near(asked.end, there))
    lost_end = min(asked.end, there.first)
    if fail_on_data_loss:
        for option, offset in (("startingOffsets", asked.first), ("endingOffsets", asked.end)):
            if offset > there.end:
                raise OffsetNotWritten(option=option, **partition._asdict(), offset=offset, latest=there.end)
        if asked.first < lost_end:
            raise OffsetsLost(**partition._asdict(), first=asked.first, end=lost_end, cause=LossCause.DELETED)
    elif asked.first < lost_end or max(asked.first, asked.end) > there.end:
        log.warning(
            "%s-%d has the offsets %d to %d, and the read asks for %d to %d: it reads those that are there "
            "(failOnDataLoss is false)",
            *partition, there.first, there.end - 1, asked.first, asked.end - 1,
        )  # fmt: skip
    return found


def _near(offset: int, there: Offsets) -> int:
    return min(max(offset, there.first), there.end)
