"""Commits the progress of a stream to the consumer group of the option groupId, so that Kafka's tools show its lag.

The stream never reads the group: its own offsets are in Spark's checkpoint. So a failure is a warning. A commit that is
left out loses nothing, because the next one has newer offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.admin.group_offsets import commit_group_offsets
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ConsumerConfig
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kept import lease_admin_client

log = logging.getLogger("kafka_sink")

# After a commit that failed, the stream leaves commits out for this many times as long as the commit took. So a group
# that cannot be committed to slows a stream down by a tenth at most.
PAUSE_FACTOR = 9
# An idle stream comes with the same offsets at each look at the logs, up to a hundred times a second. If they were
# refused, they are sent again after this time.
SAME_OFFSETS_PAUSE_MS = 5_000


class GroupProgress:
    """The progress of one stream, on the driver. For one thread."""

    def __init__(self, config: ConsumerConfig, group_id: str, *, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._config = config
        self._group_id = group_id
        self._clock_ms = clock_ms
        # What the last commit asked for, and until when the next is left out; None after a success.
        self._offsets: Mapping[TopicPartition, int] = {}
        self._not_before_ms: int | None = None
        # The last warning; empty while commits succeed.
        self._warning = ""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offset of the next record of each partition unless the group has it, or log why that failed."""
        began_ms = self._clock_ms()
        is_same = offsets == self._offsets
        if self._not_before_ms is None:
            if is_same:
                return
        elif began_ms < self._not_before_ms + (SAME_OFFSETS_PAUSE_MS if is_same else 0):
            return
        self._offsets = dict(offsets)
        try:
            with lease_admin_client(self._config) as client:
                commit_group_offsets(client, self._group_id, offsets)
        except KafkaSinkError as error:
            now_ms = self._clock_ms()
            self._not_before_ms = now_ms + PAUSE_FACTOR * (now_ms - began_ms)
            self._warn(error)
        else:
            self._not_before_ms = None
            self._tell_recovery()

    def _warn(self, error: KafkaSinkError) -> None:
        """Log the error unless the last warning was the same: a stream may run ten micro-batches a second."""
        happened, _, advice = error.parts()
        warning = f"{happened} {advice}"
        if warning != self._warning:
            self._warning = warning
            log.warning("groupId: %s The stream reads on.", warning)

    def _tell_recovery(self) -> None:
        if self._warning:
            self._warning = ""
            log.warning("groupId: the stream's progress is committed to consumer group %r again", self._group_id)
