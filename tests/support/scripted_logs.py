"""Logs of partitions that answer ListOffsets and OffsetForLeaderEpoch, for scripted brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    AskedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest as EpochRequest
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse as EpochResponse
from scripted_kafka import ScriptedKafka


@dataclass
class ScriptedLog:
    """`stable`: where an open transaction begins, None without one. `times`: offsets and timestamps of records.
    `starts`: where the records of each leader epoch begin, all of them at 0 if not said."""

    earliest: int
    latest: int
    stable: int | None = None
    times: Mapping[int, int] = field(default_factory=dict)
    leader_epoch: int = 0
    starts: Mapping[int, int] = field(default_factory=dict)

    def offset(self, timestamp_ms: int, isolation_level: IsolationLevel) -> int:
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        end = self.latest if self.stable is None or not is_committed else self.stable
        if timestamp_ms in (EARLIEST, LATEST):
            return self.earliest if timestamp_ms == EARLIEST else end
        of = (offset for offset, time_ms in sorted(self.times.items()) if time_ms >= timestamp_ms and offset < end)
        return next(of, NO_OFFSET)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        starts = self.starts or {0: 0, self.leader_epoch: 0}
        found = max(epoch for epoch in starts if epoch <= leader_epoch)
        return found, min((start for epoch, start in starts.items() if epoch > found), default=self.latest)


Logs = Mapping[tuple[str, int], ScriptedLog]


def serve(kafka: ScriptedKafka, logs: Logs) -> None:
    """Let the first broker lead the partitions of these logs, and answer for them."""
    kafka.leaders |= dict.fromkeys(logs, min(kafka.brokers))

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(0, tuple(_listed(logs, request.asked, request.isolation_level)))

    def answer_epoch(request: EpochRequest) -> EpochResponse:
        log = logs[request.topic, request.partition]
        assert request.current_leader_epoch == log.leader_epoch
        return EpochResponse(0, 0, *log.epoch_end(request.leader_epoch))

    kafka.always(ListOffsetsRequest, answer)
    kafka.always(EpochRequest, answer_epoch)


def _listed(logs: Logs, asked: Iterable[AskedOffset], isolation_level: IsolationLevel) -> Iterable[ListedOffset]:
    for each in asked:
        log = logs[each.topic, each.partition]
        offset = log.offset(each.timestamp_ms, isolation_level)
        time_ms = -1 if each.timestamp_ms < 0 else log.times.get(offset, -1)
        yield ListedOffset(each.topic, each.partition, 0, time_ms, offset, log.leader_epoch)
