"""Errors about columns of the DataFrame, and about rows that cannot become Kafka records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError, Parts
from kafka_sink.errors.quoting import LONGEST

__all__ = [
    "BadRow", "ColumnNotInSchema", "ColumnTypeMismatch", "DeadLetterTopicNamed", "DeadLettersRefused",
    "DuplicateColumn", "HeaderKeyNotUtf8",
    "HeaderKeyNull", "MissingColumn", "NameNotAllowed", "PartitionOutOfRange", "RecordTooLarge", "SchemaError",
    "TimestampOutOfRange", "TooManyBadRows", "TopicNameInvalid", "TopicNull", "TypeNotMapped", "UnexpectedColumn",
    "ValueNotInSchema",
]  # fmt: skip

_LEAVE_OUT = "Or set badRows=drop or deadLetter, which leave such rows out and write the others"


class BadRow(KafkaSinkError):
    """One row cannot become a Kafka record. It is not in Kafka; rows before it may be.

    `row`: its number in the rows of its task, from 0. `spark_partition`: the Spark partition of the task. `key_bytes`:
    the length of its key. Each is None if unknown; `key_bytes` is also None if the row has no key.
    """

    # True if the text of `explanation` names the topic, so that `_place` need not.
    _tells_topic: ClassVar[bool] = False
    _data = DataState.SENT_AGAIN

    topic: str | None = field(default=None, init=False)
    row: int | None = field(default=None, init=False)
    spark_partition: int | None = field(default=None, init=False)
    key_bytes: int | None = field(default=None, init=False)

    def located(self, *, row: int, topic: str | None, key_bytes: int | None) -> None:
        """Store the position of the row. The key itself is left out, because messages never quote rows."""
        self.row = row
        self.key_bytes = key_bytes
        if self.topic is None and topic is not None:
            self.topic = topic

    def in_spark_partition(self, number: int) -> None:
        self.spark_partition = number

    def parts(self) -> Parts:
        happened, data, advice = super().parts()
        return Parts(f"{self._place()}{happened}", data, advice)

    def _place(self) -> str:
        if self.row is None:
            return ""
        task = "its task's input" if self.spark_partition is None else f"Spark partition {self.spark_partition}"
        of = "" if self._tells_topic or self.topic is None else f" for topic {self.topic!r}"
        return f"row {self.row} (from 0) of {task}{of}, {_key_of(self.key_bytes)}: "


def _key_of(key_bytes: int | None) -> str:
    return "without a key" if key_bytes is None else f"with a key of {key_bytes} bytes"


class RecordTooLarge(BadRow):
    """`limit`: the setting that is too low. `max_bytes`: its value, None if a broker refused the row, because a refusal
    has no limit. Then `size_bytes` is the size as sent, with compression. `partition`, `timestamp_ms`: identify a row
    that was sent, because its row number is no longer known."""

    _tells_topic = True

    topic: str = field()
    size_bytes: int
    max_bytes: int | None
    limit: str
    partition: int | None = None
    timestamp_ms: int | None = None
    key_bytes: int | None = None

    def explanation(self) -> Explanation:
        which = f"a row for topic {self.topic!r}"
        if self.partition is not None:
            key = _key_of(self.key_bytes)
            which += f" partition {self.partition}, {key} and of timestamp {self.timestamp_ms} ms from 1970,"
        what = f"{which} takes {self.size_bytes} bytes as a record batch of its own"
        if self.max_bytes is None:
            happened = f"{what}, and the partition's leader refused it: {self.limit} allows less."
            fix = "Raise that setting"
        else:
            happened = f"{what}; {self.limit} allows {self.max_bytes}."
            fix = f"Raise {self.limit} (and the topic's max.message.bytes)"
        advice = (
            f"{fix}, or make the row smaller. {_LEAVE_OUT}; they know the topic's own limit with the ACL TOPIC "
            f"DESCRIBE_CONFIGS for {self._whom}."
        )
        return self._told(happened, advice)


class PartitionOutOfRange(BadRow):
    _tells_topic = True

    topic: str = field()
    partition: int
    partition_count: int

    def explanation(self) -> Explanation:
        return self._told(
            f"a row names partition {self.partition} of topic {self.topic!r}, which has partitions 0 to "
            f"{self.partition_count - 1}.",
            f"Correct the 'partition' column, or leave it null to let the partitioner decide. {_LEAVE_OUT}.",
        )


class TopicNull(BadRow):
    _happened = "a row has no topic: its 'topic' column is null or empty and the 'topic' option is not set."
    _advice = f"Set the option, or filter such rows out. {_LEAVE_OUT}."


class TopicNameInvalid(BadRow):
    """`topic`: cut to the longest possible topic name, with escapes for bytes that are not UTF-8."""

    _tells_topic = True

    topic: str = field()

    def __post_init__(self) -> None:
        self.topic = self.topic[:LONGEST]

    _happened = (
        f"{{topic!r}} is not a name a Kafka topic can have: 1 to {LONGEST} letters, digits, '.', '_' or '-', "
        "and not '.' or '..'."
    )
    _advice = f"Correct the 'topic' column, or filter such rows out. {_LEAVE_OUT}."


class HeaderKeyNull(BadRow):
    _happened = (
        "a row has a header with a null key (or a null entry in 'headers'), which Kafka does not allow; null header "
        "values are fine."
    )
    _advice = f"Give the header a key, or filter such rows out. {_LEAVE_OUT}."


class HeaderKeyNotUtf8(BadRow):
    _happened = (
        "a row has a header whose key is not UTF-8. Kafka's header keys are text, and some consumers cannot read past "
        "a record whose keys are not; header values may be any bytes."
    )
    _advice = f"Make the key of text, or filter such rows out. {_LEAVE_OUT}."


class TimestampOutOfRange(BadRow):
    timestamp: int
    unit: str

    _happened = (
        "a row's timestamp is {timestamp} {unit} from 1970. Kafka's timestamps are milliseconds since 1970 in 64 bits "
        "and not negative: brokers cannot compact or recompress such records, and -1 means that there is none."
    )
    _advice = (
        f"Put the time into the value and leave the 'timestamp' column null, for the time of the write. {_LEAVE_OUT}."
    )


class ValueNotInSchema(BadRow):
    """A value of a column that is encoded for a schema registry does not fit. `column` is a path. The value is left
    out."""

    column: str
    problem: str

    _happened = "a row does not fit its schema: column {column!r} {problem}."
    _advice = (
        "Correct or filter such rows, or change the schema; the option badRows does not see them, as they never reach "
        "the sink."
    )


class TooManyBadRows(KafkaSinkError):
    """`counts`: the number of bad rows for each reason, by the error's name. `first_rows`: (Spark partition, row of its
    task) of some bad rows. `rows_are_written`: all tasks have ended, and all readers can see the other rows."""

    counts: Mapping[str, int]
    rows: int
    limit: str
    allowed: float
    first_rows: Sequence[tuple[int | None, int]]
    rows_are_written: bool = False

    def explanation(self) -> Explanation:
        reasons = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))
        first = ", ".join(map(str, self.first_rows))
        # Row numbers are unknown for rows that leaders refused.
        which = f" The first of them, as (Spark partition, row of its task from 0): {first}." if first else ""
        return self._told(
            f"{sum(self.counts.values())} of {self.rows} rows cannot be written to Kafka ({reasons}); {self.limit} "
            f"allows {self.allowed}.{which}",
            f"Correct the rows, or raise {self.limit}.",
            data=DataState.WRITTEN if self.rows_are_written else DataState.SENT_AGAIN,
        )


class DeadLetterTopicNamed(KafkaSinkError):
    """Rows in that topic would look like dead letters."""

    topic: str

    _data = DataState.SENT_AGAIN
    _happened = "a row names topic {topic!r}, which is deadLetterTopic: bad rows need a topic of their own."
    _advice = "Choose another, or filter such rows out."


# --- columns, before any row is sent ----------------------------------------------------------------------------------


class SchemaError(KafkaSinkError):
    """A column is missing, unknown, or has a type that does not fit a Kafka record."""

    column: str

    _data = DataState.NOTHING_SENT


def in_code(name: str) -> str:
    """Return the name as `F.col` and its like take it: in backticks, unless it is a plain one."""
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"


class MissingColumn(SchemaError):
    found: Sequence[str]
    hint: str

    def explanation(self) -> Explanation:
        return self._told(
            f"the DataFrame has no column {self.column!r} (it has: {', '.join(self.found) or 'none'}).", self.hint
        )


class UnexpectedColumn(SchemaError):
    allowed: Sequence[str]

    def explanation(self) -> Explanation:
        return self._told(
            f"column {self.column!r} has no place in a Kafka record (columns are: {', '.join(self.allowed)}).",
            f"Fold it into the value, e.g. to_json(struct('{in_code(self.column)}', ...)).alias('value'), or drop it.",
        )


class DuplicateColumn(SchemaError):
    _happened = "the DataFrame has more than one column {column!r}, and a Kafka record has room for one."
    _advice = "Drop or rename the others."


class DeadLettersRefused(SchemaError):
    """The rows bring records that could not be decoded."""

    _happened = (
        "the DataFrame has the column {column!r}, with records that kafka_sink.registry.deserialized could not decode. "
        "badRows=fail has no place for them."
    )
    _advice = (
        "Set badRows=deadLetter and deadLetterTopic, or badRows=drop, as options of the write. With bad_rows='fail' "
        "the read fails at such a record."
    )


class ColumnTypeMismatch(SchemaError):
    found: str
    expected: str
    hint: str

    _happened = "column {column!r} is {found}; expected {expected}."
    _advice = "{hint}"


class TypeNotMapped(SchemaError):
    """`column` is a path. `form` is the schema's language."""

    found: str
    form: str
    hint: str

    _happened = "column {column!r} is {found}, which {form} has no type for."
    _advice = "{hint}"


class NameNotAllowed(SchemaError):
    form: str
    rule: str

    _happened = "column {column!r} has a name that {form} does not allow: {rule}."
    _advice = "Rename it (withColumnRenamed, or cast('struct<...>') for a field of a struct)."


class ColumnNotInSchema(SchemaError):
    """`found`: the type in the DataFrame. `expected`: what the given schema has, or the registry's latest schema."""

    found: str
    expected: str
    form: str

    _happened = (
        "the {form} schema does not fit the DataFrame: column {column!r} is {found}, and the schema has {expected}."
    )
    _advice = "Change the column (select, cast), or the schema; without one it is derived from the columns."
