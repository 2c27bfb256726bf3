"""Errors about what a read asks for, about its records, and about its progress."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError
from kafka_sink.errors.rows import SchemaError

__all__ = [
    "BatchOverLimit", "ColumnNotRead", "CommittedOffsetGone", "FetchRefused", "GroupCommitFailed", "GroupNotReadable",
    "LogBroken", "LossCause", "MessageFormatTooOld", "NoCommittedOffset", "NoRecordSince", "OffsetNotWritten",
    "OffsetsLost", "PartitionToReadMissing", "PlanNotNoted", "PlanReused", "ReadError", "ReadStalled",
    "RecordUndecodable", "RecordsCorrupt", "SchemaIdsUnknown", "TimestampNotReadable", "TopicToReadMissing",
]  # fmt: skip


class ReadError(KafkaSinkError):
    """The records of a range of offsets could not be read, or the progress of a stream not be committed."""

    _data = DataState.NOT_READ


class LossCause(StrEnum):
    """Why offsets cannot be read."""

    DELETED = auto()
    TRUNCATED = auto()
    TOPIC_RECREATED = auto()
    TOPIC_DELETED = auto()
    RESTORED = auto()


_CAUSES: dict[str, str] = {
    LossCause.DELETED: "retention or DeleteRecords has deleted them",
    LossCause.TRUNCATED: "the log was truncated there, because a replica without these records became the leader",
    LossCause.TOPIC_RECREATED: "the topic was deleted and created again",
    LossCause.TOPIC_DELETED: "the topic or the partition does not exist any more",
}
_REMEDIES: dict[str, str] = {
    LossCause.DELETED: "To lose no more, raise the topic's retention (retention.ms, retention.bytes) or read sooner.",
    LossCause.TRUNCATED: "To lose no more, set unclean.leader.election.enable=false for the topic, and write with "
    "acks=all and min.insync.replicas of 2 or more.",
}


def _anew(start: int | str, where: str = "this partition") -> str:
    """Return how a stream goes on without a record that comes twice or is left out."""
    return (
        f"Start a stream with a new checkpoint, with startingOffsets {start} for {where} and the old checkpoint's "
        "offsets for all others."
    )


def _leaves_out(position: int) -> str:
    """Return what a checkpoint cannot know: it has offsets alone."""
    return (
        f"A restart with this checkpoint goes on at offset {position}, also with failOnDataLoss=false, and leaves out "
        "new records before it."
    )


_OF_A_NEW_TOPIC = _anew(-2, "the new topic")


class OffsetsLost(ReadError):
    """The offsets from `first` to before `end` were asked for and cannot be read. `cause`: a LossCause."""

    topic: str
    partition: int
    first: int
    end: int
    cause: str

    def explanation(self) -> Explanation:
        return self._told(
            f"offsets {self.first} to {self.end - 1} of {self.topic}-{self.partition} cannot be read: "
            f"{_CAUSES.get(self.cause, self.cause)}.",
            self._what_to_do(),
            data=DataState.GONE,
        )

    def _what_to_do(self) -> str:
        match self.cause:
            case LossCause.TRUNCATED:
                return (
                    "With failOnDataLoss=false a batch reads the records that are there. "
                    f"{_leaves_out(self.first)} {_REMEDIES[self.cause]}"
                )
            case LossCause.TOPIC_RECREATED:
                return f"Run a batch again: it reads the new topic. {_OF_A_NEW_TOPIC} {_leaves_out(self.first)}"
            case LossCause.TOPIC_DELETED:
                return (
                    "Leave the topic out of the query: with failOnDataLoss=false it goes on without it. If you create "
                    f"the topic again: {_of_sentence(_OF_A_NEW_TOPIC)} {_leaves_out(self.first)}"
                )
        remedy = _REMEDIES.get(self.cause, "")
        return f"With failOnDataLoss=false the query reads the records that are there. {remedy}".rstrip()


def _of_sentence(text: str) -> str:
    return text[0].lower() + text[1:]


_BREAKS = _CAUSES | {
    LossCause.RESTORED: "another record is before that offset, because the cluster was restored from a snapshot",
    LossCause.TOPIC_DELETED: "the topic or the partition does not exist any more, or the options do not name it",
    LossCause.TRUNCATED: "a replica without the records from there on has become the leader, the topic was deleted and "
    "created again, or the checkpoint is of another cluster",
}


class LogBroken(ReadError):
    """The log that a stream has read up to `position` does not go on there. `cause`: a LossCause. `goes_on_at`: the
    offset at which the stream would read on, -1 if nowhere."""

    topic: str
    partition: int
    position: int
    cause: str
    goes_on_at: int

    def explanation(self) -> Explanation:
        where = f"but at {self.goes_on_at}" if self.goes_on_at >= 0 else "nor anywhere else"
        if self.goes_on_at == self.position:
            where = "with the same records"
        return self._told(
            f"the log of {self.topic}-{self.partition} does not go on at offset {self.position}, up to which the "
            f"stream has read it, {where}: {_BREAKS.get(self.cause, self.cause)}.",
            self._what_to_do(),
            data=DataState.GONE,
        )

    def _what_to_do(self) -> str:
        match self.cause:
            case LossCause.TOPIC_DELETED:
                return (
                    "With failOnDataLoss=false for one run the query goes on without it, for example if you have taken "
                    "the topic out of the options. If it is there again after that run, it is read from its start, and "
                    "records that were only left out for a while come twice. If it is created again before that run: "
                    f"{_of_sentence(_OF_A_NEW_TOPIC)} {_leaves_out(self.position)}"
                )
            case LossCause.TOPIC_RECREATED:
                return (
                    f"{_OF_A_NEW_TOPIC} {_leaves_out(self.position)} Only a query that runs meanwhile with "
                    "failOnDataLoss=false reads the new topic from its start by itself."
                )
            case LossCause.TRUNCATED:
                start = max(self.goes_on_at, 0)
                return (
                    f"{_anew(start)} If the query was restarted after a first such error, take the offset of that one; "
                    "if the topic was created again, take -2, and for another cluster offsets of that one. "
                    f"{_leaves_out(self.position)} If the log is shorter, it goes on at its end. "
                    f"{_REMEDIES[self.cause]}"
                )
            case LossCause.RESTORED:
                return (
                    "Start the query with a new checkpoint, and for each partition with startingOffsets where the "
                    f"snapshot ended. {_leaves_out(self.position)}"
                )
        return _leaves_out(self.position)


class ReadStalled(ReadError):
    """`offset`: the next to read. `end`: where the range ends. `high_watermark` and `last_stable_offset`: as the last
    answer tells, -1 if none does; a reader of uncommitted records reads to the high watermark, which is both then."""

    topic: str
    partition: int
    offset: int
    end: int
    waited_ms: int
    high_watermark: int
    last_stable_offset: int
    last_error: str
    throttled_ms: int = 0

    def explanation(self) -> Explanation:
        happened = (
            f"no record of {self.topic}-{self.partition} came from offset {self.offset} on within {self.waited_ms} ms "
            f"(kafkaConsumer.pollTimeoutMs); the range ends at {self.end}."
        )
        advice = "Check the brokers, and that the partition has a leader."
        if self.throttled_ms > self.waited_ms:
            happened += f" Meanwhile brokers throttled the task for {self.throttled_ms} ms, by a quota."
            advice = (
                "Raise the quota of its user or client id (consumer_byte_rate). A record batch that is larger than "
            )
            advice += "what the quota lets through in its window (10 s by default) never comes."
            return self._told(happened, advice)
        if self.last_error:
            happened += f" Last: {self.last_error}."
        elif 0 <= self.last_stable_offset <= self.offset < self.high_watermark:
            happened += f" An open transaction begins at offset {self.last_stable_offset}."
            advice = (
                "Wait until it ends. If its producer is gone: a query of this package ends it when it starts again, "
                "and kafka-transactions.sh abort ends it without its rows, which are lost then."
            )
        elif 0 <= self.high_watermark <= self.offset:
            happened += f" The partition ends at offset {self.high_watermark}."
            advice = "Correct endingOffsets, or wait until the replicas have the records."
        elif self.high_watermark >= 0:
            happened += f" Last: the broker hands out none, although the log goes to offset {self.high_watermark}."
            advice = (
                "If the topic has tiered storage, look there: the broker may wait for it, or be over its quota. If "
                "not, kafka-dump-log.sh shows if the leader's file is damaged there: then let another in-sync replica "
                "lead."
            )
        return self._told(happened, advice)


class FetchRefused(ReadError):
    """The leader refused to hand out records. `offset`: -1 if it refused to tell the partition's offsets."""

    topic: str
    partition: int
    offset: int
    code: int
    name: str

    def explanation(self) -> Explanation:
        what = "to tell its offsets" if self.offset < 0 else f"to read at offset {self.offset}"
        advice = "The broker's log says more."
        if self.name == "CORRUPT_MESSAGE":
            advice = "The leader's copy of the log is damaged: let another in-sync replica lead. " + advice
        return self._told(
            f"the leader of {self.topic}-{self.partition} refused {what}: {self.name} (error {self.code}).", advice
        )


class PlanReused(ReadError):
    """A later action on a DataFrame of a batch read would read only what the first one planned. `planned_end`: where
    the plan ends the partition. `end`: where it ends now."""

    topic: str
    partition: int
    planned_end: int
    end: int

    _happened = (
        "this DataFrame was planned by an earlier action, up to offset {planned_end} of {topic}-{partition}, and there "
        "are records up to offset {end} now. Spark keeps the plan."
    )
    _advice = (
        "To read all records, make the DataFrame anew with load(). For a view or a stream's static side, let Spark "
        "plan each query: set spark.sql.python.filterPushdown.enabled=true, and add a filter that leaves no row "
        'out, where("offset >= 0"). To read the offsets of the first action again, as a cached DataFrame should, '
        "set reuseOffsets=true."
    )


def _around(offset: int, begin: str) -> str:
    """Return how to leave a batch out that cannot be read, and nothing else."""
    return (
        f"To leave its records out, end one batch read at offset {offset} (endingOffsets), and begin another read "
        f"{begin} (startingOffsets). For a stream, that batch read begins at the checkpoint's offsets, and the stream "
        "has a new checkpoint, with the old one's offsets for all other partitions."
    )


class PlanNotNoted(ReadError):
    """A task of a batch read cannot keep, or read, the note by which later actions on the DataFrame are known."""

    folder: str
    reason: str

    _happened = (
        "the executor cannot keep a file in {folder}: {reason}. Without it an action on a DataFrame cannot be told "
        "from an earlier one, whose plan Spark keeps."
    )
    _advice = (
        "Free space in the executors' spark.local.dir. If every action may read the offsets of the first one, set "
        "reuseOffsets=true."
    )


class RecordsCorrupt(ReadError):
    """`offset`: where the batch begins, or where it should. `goes_on_at`: where the next batch begins, -1 if that is
    unknown."""

    topic: str
    partition: int
    offset: int
    reason: str
    goes_on_at: int = -1

    def explanation(self) -> Explanation:
        begin = f"at offset {self.goes_on_at}" if self.goes_on_at >= 0 else "behind the batch"
        return self._told(
            f"the batch at offset {self.offset} of {self.topic}-{self.partition} is damaged: {self.reason}.",
            "If another in-sync replica has it whole (kafka-dump-log.sh shows that), let that one lead. "
            f"{_around(self.offset, begin)}",
        )


class RecordUndecodable(ReadError):
    """A record that `kafka_sink.registry.deserialized` cannot decode. The place is None if its column is not there."""

    reason: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def explanation(self) -> Explanation:
        facts = {"topic": self.topic, "partition": self.partition, "offset": self.offset}
        known = ", ".join(f"{name} {fact!r}" for name, fact in facts.items() if fact is not None)
        where = known or "its place is unknown: the DataFrame has no columns topic, partition and offset"
        return self._told(
            f"a record ({where}) cannot be decoded: {self.reason}.",
            "With bad_rows='null' such a record becomes null, with the reason beside it. With 'deadLetter' the sink "
            "writes it to deadLetterTopic.",
        )


class SchemaIdsUnknown(ReadError):
    """Executors raise it. `count`: ids that the registry did not know, asked for by one worker within a minute."""

    subject: str
    count: int

    _happened = "records have {count} ids of schemas that the registry does not know, for subject {subject!r}."
    _advice = "Check that the topic's records are written for this registry, and check the url."


class BatchOverLimit(ReadError):
    """The batch at `offset` is larger than a reader takes. `what`: of which there are more than `limit`. `goes_on_at`:
    where the next batch begins."""

    topic: str
    partition: int
    offset: int
    what: str
    limit: int
    option: str
    goes_on_at: int

    def explanation(self) -> Explanation:
        return self._told(
            f"the batch at offset {self.offset} of {self.topic}-{self.partition} has more than {self.limit} "
            f"{self.what}.",
            f"If its writer is known, and tasks have memory for it, raise {self.option}. "
            f"{_around(self.offset, f'at offset {self.goes_on_at}')}",
        )


class TimestampNotReadable(ReadError):
    """`timestamp_ms`: the record's, which Spark cannot hold. `offset`: the record's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    _happened = (
        "the record at offset {offset} of {topic}-{partition} has the timestamp {timestamp_ms} ms. Spark counts "
        "microseconds in 64 bits and cannot hold it; its writer may have set another unit, such as nanoseconds."
    )
    _advice = (
        "Give the read a schema without the column timestamp, such as .schema('key BINARY, value BINARY, offset "
        "BIGINT'): it reads all records. Filters and select() do not leave the column out."
    )


class MessageFormatTooOld(ReadError):
    """`magic`: 0 or 1, the format of brokers before 0.11."""

    topic: str
    partition: int
    offset: int
    magic: int

    _happened = (
        "the record at offset {offset} of {topic}-{partition} has message format {magic}, of Kafka before 0.11, which "
        "this source does not read."
    )
    _advice = (
        'Read the topic with format("kafka") and write it to another topic, or leave these records out: begin '
        "after them."
    )


class GroupCommitFailed(ReadError):
    """A stream logs it as a warning and reads on: only tools look at the group of the option groupId."""

    group_id: str
    reason: str
    remedy: str

    _data = DataState.NO_DATA
    _happened = "the stream's progress was not committed to consumer group {group_id!r}: {reason}."
    _advice = "To fix it: {remedy}."
    _known = (
        "Nothing is lost: the stream reads on, and the offsets in its checkpoint count. Only the lag that tools show "
        "for the group is too large."
    )


# --- found when a read is planned -------------------------------------------------------------------------------------


class ColumnNotRead(SchemaError):
    """The user's schema has a column that a read does not have."""

    allowed: Sequence[str]

    def explanation(self) -> Explanation:
        return self._told(
            f"the schema has column {self.column!r}; a read has the columns {', '.join(self.allowed)}.",
            "Leave it out of the schema. Take it from the value in the DataFrame, for example with from_json.",
            data=DataState.NOT_READ,
        )


class TopicToReadMissing(ReadError):
    topic: str

    _happened = "topic {topic!r} does not exist on the cluster, or is hidden from its readers."
    _advice = "Correct subscribe or assign. Or add the ACL TOPIC {topic} READ (it implies DESCRIBE) for {_whom}."


class PartitionToReadMissing(ReadError):
    topic: str
    partition: int
    partition_count: int

    _happened = "topic {topic!r} has no partition {partition}: it has {partition_count}, numbered from 0."
    _advice = "Correct assign."


class OffsetNotWritten(ReadError):
    """`option`: the option that names `offset`. `latest`: where the partition ends for this reader."""

    option: str
    topic: str
    partition: int
    offset: int
    latest: int

    _happened = "{option} names offset {offset} of {topic}-{partition}, which ends at {latest}."
    _advice = (
        "Correct it, or wait until the records are there. With kafka.isolation.level=read_committed a partition ends "
        "before its first open transaction. With failOnDataLoss=false the read ends where the partition ends."
    )


class NoRecordSince(ReadError):
    """`timestamp_ms`: the time that `option` names."""

    option: str
    topic: str
    partition: int
    timestamp_ms: int

    _happened = "{topic}-{partition} has no record from time {timestamp_ms} ({option}) on."
    _advice = (
        "Correct the time, or set startingOffsetsByTimestampStrategy=latest, which leaves out all that such a "
        "partition has now."
    )


class GroupNotReadable(ReadError):
    """The coordinator does not tell what the group of startingGroup has committed."""

    group_id: str
    code: int
    name: str

    def explanation(self) -> Explanation:
        advice = "The log of the group's coordinator says more."
        if self.name == "GROUP_AUTHORIZATION_FAILED":
            advice = f"Add the ACL: GROUP {self.group_id} DESCRIBE (READ implies it) for {self._whom}."
        return self._told(
            f"the coordinator of consumer group {self.group_id!r} did not give its committed offsets: {self.name} "
            f"(error {self.code}).",
            advice,
        )


class NoCommittedOffset(ReadError):
    """The group of startingGroup has committed no offset of `missing_count` of the `partition_count` partitions of the
    read. `topic`, `partition`: the first of them."""

    group_id: str
    topic: str
    partition: int
    missing_count: int
    partition_count: int

    def explanation(self) -> Explanation:
        if self.missing_count == self.partition_count:
            return self._told(
                f"consumer group {self.group_id!r} has committed no offset of any partition of the read, such as "
                f"{self.topic}-{self.partition}. There is no such group, it reads other topics, or its offsets have "
                "expired (offsets.retention.minutes).",
                "Correct startingGroup: kafka-consumer-groups.sh --list shows the names, which are case-sensitive. To "
                "begin without a group, set startingOffsets or startingTimestamp instead.",
            )
        others = self.missing_count - 1
        and_others = f" and {others} other{'s' if others > 1 else ''}" if others else ""
        return self._told(
            f"consumer group {self.group_id!r} has committed no offset of {self.topic}-{self.partition}{and_others}. "
            f"The read has {self.partition_count} partitions.",
            "Set startingGroupStrategy: earliest reads all that is in such a partition, latest leaves out what is "
            "there now.",
        )


class CommittedOffsetGone(ReadError):
    """The log does not go on at the `offset` that the group of startingGroup has committed. `cause`: a LossCause.
    `goes_on_at`: where a read would begin instead."""

    group_id: str
    topic: str
    partition: int
    offset: int
    cause: str
    goes_on_at: int

    _data = DataState.GONE
    _happened = (
        "consumer group {group_id!r} has committed offset {offset} of {topic}-{partition}. The log does not go on "
        "there, but at {goes_on_at}: {_why}."
    )
    _advice = (
        "With failOnDataLoss=false the read begins at offset {goes_on_at}. What the group had not read of the earlier "
        "log is lost. To begin elsewhere, reset the group (kafka-consumer-groups.sh --reset-offsets), or set "
        "startingOffsets instead."
    )

    @property
    def _why(self) -> str:
        if self.cause == LossCause.TRUNCATED:
            return (
                "a replica without the records from there on has become the leader, or the topic was deleted and "
                "created again"
            )
        return _CAUSES.get(self.cause, self.cause)
