"""The losses that the planner of a stream finds. failOnDataLoss decides whether a loss ends the query.

A loss is an error with its facts. With failOnDataLoss=true it is raised, with false it is logged as a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafka_sink.errors import LogBroken, OffsetsLost, ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.clip import Offsets
from kafka_sink.spark.reading.continuity import Break

log = logging.getLogger("kafka_sink")


def warn(error: ReadError) -> None:
    log.warning("%s The stream goes on (failOnDataLoss is false).", error.parts().happened)


class Losses:
    """`tell`: takes each loss that does not end the query."""

    def __init__(self, *, fail_on_data_loss: bool, tell: Callable[[ReadError], None] = warn) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._tell = tell

    def log_broken(self, partition: TopicPartition, found: Break) -> None:
        """Raise or tell LogBroken."""
        goes_on_at = -1 if found.goes_on_at is None else found.goes_on_at
        self.take(LogBroken(**partition._asdict(), position=found.position, cause=found.cause, goes_on_at=goes_on_at))

    def offsets_lost(self, partition: TopicPartition, lost: Offsets, cause: LossCause) -> None:
        """Raise or tell OffsetsLost."""
        self.take(OffsetsLost(**partition._asdict(), first=lost.first, end=lost.end, cause=cause))

    def take(self, error: ReadError) -> None:
        """Raise or tell `error`."""
        if self._fail_on_data_loss:
            raise error
        self._tell(error)
