"""Errors about what a read asks for, found when it is planned."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.errors.base import Explanation
from kafka_sink.errors.columns import SchemaError
from kafka_sink.errors.reading import ReadError
from kafka_sink.errors.wording import DataState


class ColumnNotRead(SchemaError):
    """The user's schema has a column that a read does not have."""

    allowed: Sequence[str]

    def explanation(self) -> Explanation:
        return Explanation(
            f"the schema has column {self.column!r}; a read has the columns {', '.join(self.allowed)}.",
            DataState.NOT_READ,
            "Leave it out of the schema. Take it from the value in the DataFrame, for example with from_json.",
        )


class TopicToReadMissing(ReadError):
    topic: str

    def explanation(self) -> Explanation:
        return Explanation(
            f"topic {self.topic!r} does not exist on the cluster, or is hidden from its readers.",
            DataState.NOT_READ,
            f"Correct subscribe or assign. Or add the ACL TOPIC {self.topic} READ (it implies DESCRIBE) for "
            f"{self._whom}.",
        )


class PartitionToReadMissing(ReadError):
    topic: str
    partition: int
    partition_count: int

    def explanation(self) -> Explanation:
        return Explanation(
            f"topic {self.topic!r} has no partition {self.partition}: it has {self.partition_count}, numbered from 0.",
            DataState.NOT_READ,
            "Correct assign.",
        )


class OffsetNotWritten(ReadError):
    """`option`: the option that names `offset`. `latest`: where the partition ends for this reader."""

    option: str
    topic: str
    partition: int
    offset: int
    latest: int

    def explanation(self) -> Explanation:
        return Explanation(
            f"{self.option} names offset {self.offset} of {self.topic}-{self.partition}, which ends at {self.latest}.",
            DataState.NOT_READ,
            "Correct it, or wait until the records are there. With kafka.isolation.level=read_committed a partition "
            "ends before its first open transaction. With failOnDataLoss=false the read ends where the partition ends.",
        )


class NoRecordSince(ReadError):
    """`timestamp_ms`: the time that `option` names."""

    option: str
    topic: str
    partition: int
    timestamp_ms: int

    def explanation(self) -> Explanation:
        return Explanation(
            f"{self.topic}-{self.partition} has no record from time {self.timestamp_ms} ({self.option}) on.",
            DataState.NOT_READ,
            "Correct the time, or set startingOffsetsByTimestampStrategy=latest, which leaves out all that such a "
            "partition has now.",
        )
