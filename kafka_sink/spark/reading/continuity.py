"""Whether the logs that a stream goes on with are those that it has read so far. Pure.

Between two micro-batches a topic may be deleted or created again, and an unclean election may truncate a log. A stream
that compared only offsets would go on at its offset in another log, and neither read nor miss what is below. So the
planner keeps for each partition under which topic id and leader epoch its log was seen to reach an offset:

| The log now | The stream |
|---|---|
| is in no answer | has lost what it did not read |
| is of a topic with another id | reads the new topic from its start |
| has an older leader epoch, and no topic id | reads the new topic from its start: epochs only grow |
| parts from the earlier log before the position (KIP-320) | reads on from there: other records follow |
| ends before the position | reads on from its end |
| has another record before the position (`stream_logs.py`) | reads on at the position |

A planner that has just started knows only the positions, as they are in Spark's checkpoint: it sees the first and the
last case.

Source: KIP-320, KIP-516; org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kafka_sink.errors import LogBroken, OffsetsLost, ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import parts_at
from kafka_sink.kafka.metadata import NO_EPOCH
from kafka_sink.kafka.protocol.apis.offsets import OffsetForLeaderEpochResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition, ids_differ
from kafka_sink.spark.reading.positions import Offsets, Positions

log = logging.getLogger("kafka_sink")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The log was seen to reach `offset` under `leader_epoch`.

    `topic_id`: None if the brokers have no ids. `record_epoch`: of the leader that wrote the last record before
    `offset`, which is an earlier one if the leader has written nothing yet; NO_EPOCH if unknown. `record_start`: where
    the records of that leader begin. `epoch_start`: where those of `leader_epoch` begin, None if unknown.
    """

    topic_id: uuid.UUID | None
    offset: int
    leader_epoch: int
    record_epoch: int = NO_EPOCH
    record_start: int = 0
    epoch_start: int | None = None

    @property
    def proof_epoch(self) -> int:
        """The leader epoch by which another leader's log is compared with this one."""
        return self.leader_epoch if self.record_epoch == NO_EPOCH else self.record_epoch

    def after(self, before: LogEnd | None) -> LogEnd:
        """Return this end with what is known from an earlier look at the same leader's log."""
        if (
            before is None
            or before.epoch_start is None
            or before.leader_epoch != self.leader_epoch
            or ids_differ(before.topic_id, self.topic_id)
        ):
            return self
        if self.offset > before.epoch_start:
            return self.with_start(self.leader_epoch, before.epoch_start)
        if self.offset > before.offset:
            # Records of other earlier leaders, which could not be read then.
            return self
        return replace(
            self, record_epoch=before.record_epoch, record_start=before.record_start, epoch_start=before.epoch_start
        )

    def with_start(self, epoch: int, start: int) -> LogEnd:
        """Return this end, of which is known now that the records of `epoch` begin at `start`, and none before the end
        is of a later epoch."""
        found = self if epoch != self.leader_epoch else replace(self, epoch_start=start)
        return replace(found, record_epoch=epoch, record_start=start) if self.offset > start else found

    def parts_at(self, answer: OffsetForLeaderEpochResponse) -> int:
        """Return up to where the log of the leader that answers, about `proof_epoch`, has the same records."""
        return parts_at(self.record_epoch, self.record_start, epoch=answer.leader_epoch, end=answer.end_offset)


LogEnds: TypeAlias = Mapping[TopicPartition, LogEnd]


@dataclass(frozen=True, slots=True)
class Break:
    """The log that a stream has read up to `position` does not go on there. `goes_on_at`: where the stream reads on,
    None if nowhere."""

    position: int
    cause: LossCause
    goes_on_at: int | None


def with_newer_leaders(positions: Positions, known: LogEnds, now: LogEnds) -> Iterator[TopicPartition]:
    """Return the partitions whose log must be compared with that of an earlier leader."""
    for each in positions:
        before, log = known.get(each), now.get(each)
        if before is None or log is None or ids_differ(before.topic_id, log.topic_id):
            continue
        if NO_EPOCH < before.leader_epoch < log.leader_epoch:
            yield each


def of_earlier_leaders(known: LogEnds, now: LogEnds) -> set[TopicPartition]:
    """Return the partitions whose answer is of a leader that was replaced before: leader epochs of a topic only grow.
    Without ids it may be another topic."""
    return {
        each
        for each, before in known.items()
        if each in now
        and before.topic_id is not None
        and now[each].topic_id == before.topic_id
        and _is_older(before, now[each])
    }


def _is_older(before: LogEnd, log: LogEnd) -> bool:
    return NO_EPOCH < log.leader_epoch < before.leader_epoch


def breaks(
    positions: Positions, known: LogEnds, now: LogEnds, parting: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, Break]:
    """Return the partitions whose log does not go on at the stream's position.

    `known`, `now`: what was seen of the logs before and is seen now. `parting`: up to where the log of a new leader has
    the records of the known one, -1 if it has no such epoch, None if the broker cannot tell.
    """
    found = {}
    for each, position in positions.items():
        broken = _break(position, known.get(each), now.get(each), parting.get(each))
        if broken is not None:
            found[each] = broken
    return found


def _break(position: int, before: LogEnd | None, log: LogEnd | None, parts_at: int | None) -> Break | None:
    if log is None:
        return Break(position, LossCause.TOPIC_DELETED, None)
    if before is not None and (ids_differ(before.topic_id, log.topic_id) or _is_older(before, log)):
        return Break(position, LossCause.TOPIC_RECREATED, 0)
    if parts_at is not None and parts_at < position:
        return Break(position, LossCause.TRUNCATED, min(position, log.offset) if parts_at < 0 else parts_at)
    if log.offset < position:
        return Break(position, LossCause.TRUNCATED, log.offset)
    return None


def earlier_of(cut: Break, found: Break | None) -> Break:
    """Return the break of a log that ended at `cut`, and in which `found` was found since."""
    if found is None:
        return cut
    if found.cause is not LossCause.TRUNCATED or cut.goes_on_at is None or found.goes_on_at is None:
        return found
    return found if found.goes_on_at < cut.goes_on_at else cut


def warn(error: ReadError) -> None:
    log.warning("%s The stream goes on (failOnDataLoss is false).", error.parts().happened)


class Losses:
    """The losses that the planner of a stream finds, each an error with its facts. failOnDataLoss decides whether a
    loss ends the query. `tell`: takes each loss that does not."""

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
