"""Every error this package raises, as one tree.

    KafkaSinkError
    ├── ConfigError                  an option is wrong; nothing was sent
    │   ├── UnknownOption
    │   ├── RefusedOption
    │   ├── MissingOption
    │   ├── InvalidOption
    │   ├── InvalidArgument          ... of kafka_sink.export or to_kafka
    │   ├── NotPlanned
    │   ├── ReceiptsPathUnusable
    │   └── CheckpointUnusable
    ├── SchemaError                  a column is wrong; nothing was sent
    │   ├── MissingColumn
    │   ├── UnexpectedColumn
    │   ├── DuplicateColumn
    │   ├── ColumnTypeMismatch
    │   ├── TypeNotMapped            ... for a schema registry: a type that the form does not have
    │   ├── NameNotAllowed
    │   └── ColumnNotInSchema        ... a given schema does not fit
    ├── WriteWouldFail               a look at the cluster before an export found why; nothing was sent
    ├── BadRow                       one row cannot be a Kafka record
    │   ├── RecordTooLarge
    │   ├── PartitionOutOfRange
    │   ├── TopicNull
    │   ├── TopicNameInvalid
    │   ├── HeaderKeyNull
    │   ├── HeaderKeyNotUtf8
    │   ├── TimestampOutOfRange
    │   └── ValueNotInSchema         ... found where it is encoded, before the sink has it
    ├── TooManyBadRows               more of them than maxBadRows or maxBadRowFraction allow
    ├── DeadLetterTopicNamed         a row names the topic that bad rows go to
    ├── RegistryError                the schema registry could not be asked, or said no; nothing was sent
    │   ├── RegistryExtraMissing     ... an executor may find that late, when others have written
    │   ├── RegistryUnreachable
    │   ├── RegistryAnswerUnusable
    │   ├── RegistryRefused
    │   ├── SchemaIncompatible
    │   ├── SchemaNotRegistered
    │   └── SchemaUnreadable
    ├── ClusterError                 the cluster could not be asked, or said no, before rows went out
    │   ├── BrokersUnreachable
    │   ├── ClusterChanged
    │   ├── TlsFailed
    │   ├── AuthenticationFailed
    │   ├── TokenUnavailable
    │   ├── TopicNotFound
    │   ├── TopicNotCreated
    │   ├── TopicAuthorizationFailed
    │   ├── ProducerIdRefused
    │   ├── CoordinatorUnavailable
    │   ├── CoordinatorRefused
    │   ├── LeaderUnavailable
    │   ├── BrokerUnavailable
    │   ├── RecordsUnreadable        ... to compare them with a receipt
    │   ├── CommitTopicMissing
    │   └── CommitTopicTooSmall
    ├── DeliveryError                rows were accepted by the sink and not acknowledged by the broker
    │   ├── DeliveryTimeout
    │   ├── ProduceRejected
    │   ├── TopicRecreated
    │   ├── BufferExhausted
    │   ├── ReceiptMismatch
    │   └── ProducerClosed
    ├── ProtocolError                a peer sent bytes that are not the Kafka protocol (handled inside:
    │   │                            the connection is closed, its requests are retried)
    │   ├── TlsExpected              ... but TLS: becomes TlsFailed
    │   └── SaslRefused              ... or broke off the authentication: becomes AuthenticationFailed
    ├── ExactlyOnceError             the two-phase commit stopped; what is visible is whole, or named
    │   ├── TornBatch
    │   ├── CommitOutcomeUnknown
    │   ├── NonDeterministicReplay
    │   ├── DriverFenced
    │   ├── AttemptFenced
    │   ├── CommittedDataMissing
    │   ├── WrittenOtherwise
    │   ├── AnotherCheckpoint
    │   ├── CheckpointBehind
    │   ├── TransactionTimedOut
    │   ├── RateOutlastsTransaction
    │   ├── QuotaOutlastsTransaction
    │   ├── StateExpired
    │   ├── MarkersLost
    │   ├── FingerprintsLost
    │   ├── LeaderDisagrees          ... about which rows are in a slot's transaction
    │   │   ├── AbortedRowsOpen
    │   │   └── PreparedRowsGone
    │   ├── HangingTransaction
    │   ├── VerificationRefused
    │   ├── DecisionPending
    │   ├── TransactionRefused
    │   ├── UnreadableState
    │   └── ReceiptNotWritten
    ├── WorkerExhausted              a worker has no more memory, threads or open files
    ├── CommitRefused                Spark asked to commit a write some task of which has no receipt
    ├── WriteModeUnsupported         overwrite, complete
    ├── ReadUnsupported              there is no source
    ├── TableUnsupported             saveAsTable, CREATE TABLE ... AS SELECT
    ├── ContinuousTriggerUnsupported
    ├── InterceptorFailed            an interceptor raised, or returned what is not its rows
    └── LocalKafkaError              the broker for development and tests
        ├── JavaNotFound
        ├── JavaVersionUnsupported
        ├── IvyNotFound
        ├── DownloadFailed
        ├── DiskFull
        ├── DirectoryUnusable
        ├── HostExhausted            ... no more memory, threads or open files
        ├── BrokerStartFailed
        ├── BrokerDied
        └── ToolFailed

An error carries its facts as fields (topic, partition, broker, sizes; never a payload, never a secret; printable and
cut, whoever said them), and its message says what happened, what it means for the data, and what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self

from kafka_sink.quoting import escaped, quoted, quoted_tail
from kafka_sink.redaction import redacted
from kafka_sink.topic_name import LONGEST

NOTHING_SENT = "No row of this write was sent."
REPLAY = (
    "The write fails, so Spark does not record it as done: when the task or the micro-batch runs again, all its rows "
    "are sent again. Nothing is lost; rows that had already been acknowledged will then be in the topic twice."
)
UNDECIDED = (
    "Whether the last request was carried out is unknown. Nothing is lost: transactions that are open stay invisible "
    "to read_committed readers until the next run of the write ends them."
)
NOT_RECORDED = "No row is lost; Spark does not record the micro-batch, and its replay writes nothing again."
COMMITS_THE_REST = (
    "Spark does not record the micro-batch; a restart commits what still can be, and writes the missing slots again if "
    "their rows are the same. Nothing is lost."
)
# Of one fact: beyond what any text of this package's own takes.
MAX_FACT_CHARACTERS = 4_000
NOT_BEGUN = "No row is lost, and none of this run was written: once that is fixed, run it again."
STOPPED = "No row of this run becomes visible, and the query's offsets do not advance."
WRITE_STOPPED = "No row of this run becomes visible."
LASTS_TOO_LONG = "If micro-batches take that long, make them smaller, or raise"
TWO_NAMES = "Stop one of the two; two writers need two names."
# In messages about ACLs, until `of_principal` says who that is.
PRINCIPAL = "this principal"
NOTHING_VISIBLE = (
    "Nothing is lost: no row of this attempt is visible to read_committed readers, nor will one be, and the "
    "micro-batch runs again and is written once."
)


class WriteKind(Enum):
    """As what a write that failed is run again, on which exactly-once depends: what has its old name is known."""

    STREAM = "the same micro-batch, when the query restarts"
    VERSION = "the same txnAppId and txnVersion, when its user runs the batch write again"
    BATCH = "another write, with another name"


_IN_A_JOB = (
    "Nothing is lost: no row of this attempt is visible to read_committed readers, nor will one be. Spark runs a "
    "failed task again; if the job fails, run the write again"
)
_JOB_TAKES_LONG = "A write's transactions are open from its tasks' first row to the end of its job: split it, or raise"
# Messages are a stream's until `in_transaction` says whose they are.
_SAID_OF_A_BATCH = {
    NOTHING_VISIBLE: {
        WriteKind.VERSION: f"{_IN_A_JOB} with the same txnAppId and txnVersion: it is written once.",
        WriteKind.BATCH: f"{_IN_A_JOB}: nothing of this one will be in the topic twice.",
    },
    UNDECIDED: {
        WriteKind.VERSION: f"{UNDECIDED} Run it with the same txnAppId and txnVersion: it is written once.",
        WriteKind.BATCH: "Whether the last request was carried out is unknown. Nothing is lost: the write is visible "
        "to read_committed readers, or can be made so, or nothing of it is. Do not run it again before you know, that "
        "would be another write. This finishes it if it was decided, and says so if it was not: {repair}.",
    },
    NOT_RECORDED: {
        WriteKind.VERSION: "No row is lost; for Spark the write has failed: once that is fixed, run it again with the "
        "same txnAppId and txnVersion, which writes nothing again.",
        WriteKind.BATCH: "No row is lost, though for Spark the write has failed: do not run it again, that would be "
        "another write and double every row. This ends what hides them: {repair}.",
    },
    NOT_BEGUN: {
        WriteKind.VERSION: "No row is lost, and none of this version was written: once that is fixed, run it again "
        "with the same txnAppId and txnVersion.",
    },
    COMMITS_THE_REST: {
        WriteKind.BATCH: "For Spark the write has failed; running it again would be another write, and double what is "
        "visible. Nothing is lost that this can still commit: {repair}. Rows of slots that stay missing have to be "
        "written by a write of their own.",
    },
    STOPPED: {WriteKind.VERSION: WRITE_STOPPED, WriteKind.BATCH: WRITE_STOPPED},
    LASTS_TOO_LONG: {WriteKind.VERSION: _JOB_TAKES_LONG, WriteKind.BATCH: _JOB_TAKES_LONG},
    TWO_NAMES: {
        WriteKind.BATCH: "No other write has this one's name: somebody aborted it with kafka_sink.transactions, or its "
        "tasks were planned twice.",
    },
}


class _Quoting(type):
    """Whoever says a fact, a message gets it printable and cut: no error has to think of it."""

    def __call__(cls, *facts: Any, **named: Any) -> Any:
        shown = {name: _fact(name, fact) for name, fact in named.items()}
        return super().__call__(*(_fact("", fact) for fact in facts), **shown)

    @property
    def __signature__(cls) -> inspect.Signature:
        """For `help`: the error's own facts, where `__call__` would say "anything"."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=[each for each in own.parameters.values() if each.name != "self"])


def _fact(name: str, fact: Any) -> Any:
    match fact:
        case str() if name == "command":
            # Of `shell_command`; half of it would be another one.
            return escaped(fact)
        case str() if name.endswith("_tail"):
            return quoted_tail(fact)
        case str():
            return quoted(fact, MAX_FACT_CHARACTERS)
        case tuple() | list():
            return tuple(_fact(name, each) for each in fact)
        case Mapping():
            return {_fact(name, key): each for key, each in fact.items()}
    return fact


class KafkaSinkError(Exception, metaclass=_Quoting):
    """Base of every error of this package. Survives pickling, fields included."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def in_transaction(
        self, *, committing: bool = False, write_kind: WriteKind = WriteKind.STREAM, repair: str = ""
    ) -> Self:
        """The same error, its message true of rows that nobody sees unless they are committed, and of the kind of
        write, which becomes a field. `committing`: they may have been, in part. `repair`: the command that finishes a
        decided write."""
        self.write_kind = write_kind
        self._replace(REPLAY, UNDECIDED if committing else NOTHING_VISIBLE)
        if not committing:
            # A run that looks for what hangs of the one before.
            self._replace(NOT_RECORDED, NOT_BEGUN)
        for of_a_stream, of_a_batch in _SAID_OF_A_BATCH.items():
            if write_kind in of_a_batch:
                self._replace(of_a_stream, of_a_batch[write_kind].replace("{repair}", repair))
        return self

    def _replace(self, old: str, new: str) -> None:
        self.args = tuple(str(text).replace(old, new) for text in self.args)

    def of_principal(self, principal: str | None) -> Self:
        """The same error, where it asks for an ACL for whom. None: the options do not tell."""
        if principal is not None:
            self._replace(PRINCIPAL, f"principal {principal}")
        return self


def _rebuild(cls: type[KafkaSinkError], args: tuple[Any, ...], fields: dict[str, Any]) -> KafkaSinkError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


# --- options ----------------------------------------------------------------------------------------------------------


class ConfigError(KafkaSinkError):
    """An option is wrong. Raised while Spark plans the write, before any row moves."""


class UnknownOption(ConfigError):
    """`spelling`: how names are spelled where this one was given."""

    def __init__(
        self,
        *,
        option: str,
        nearest: Sequence[str] = (),
        spelling: str = "Options of the Kafka client start with 'kafka.'",
    ) -> None:
        self.option = option = redacted(option)
        self.nearest = tuple(nearest)
        hint = f" Did you mean {' or '.join(repr(name) for name in self.nearest)}?" if self.nearest else ""
        super().__init__(
            f"unknown option {option!r}.{hint} {spelling}; the command `pykafka explain` lists all options. "
            f"{NOTHING_SENT}"
        )


class RefusedOption(ConfigError):
    def __init__(self, *, option: str, instead: str) -> None:
        self.option = option = redacted(option)
        super().__init__(f"option {option!r} cannot be used with this sink: {instead} {NOTHING_SENT}")


class MissingOption(ConfigError):
    def __init__(self, *, option: str, hint: str) -> None:
        self.option = option
        super().__init__(
            f"option {option!r} is required: {hint} Set it, or spark.pykafka.{option} in Spark's conf. {NOTHING_SENT}"
        )


class InvalidOption(ConfigError):
    """`value` is None for an option whose value is not to be shown; of others what looks like a secret is hidden."""

    def __init__(self, *, option: str, value: str | None, expected: str) -> None:
        self.option = option
        self.value = value = None if value is None else redacted(value)
        found = "is not usable (its value is not shown)" if value is None else f"is {value!r}"
        super().__init__(f"option {option!r} {found}; expected {expected}. {NOTHING_SENT}")


class InvalidArgument(ConfigError):
    """Of `kafka_sink.export` or `to_kafka`, beside what Spark calls options."""

    def __init__(self, *, argument: str, reason: str) -> None:
        self.argument = argument
        super().__init__(f"argument {argument!r}: {reason} {NOTHING_SENT}")


class NotPlanned(ConfigError):
    """Exactly-once was asked for where only tasks can see it."""

    def __init__(self, *, option: str) -> None:
        self.option = option
        super().__init__(
            f"{option} is set in Spark's conf, which is not known where a micro-batch is planned and committed: set it "
            f"as an option of the write. {NOTHING_SENT}"
        )


class ReceiptsPathUnusable(ConfigError):
    def __init__(self, *, path: str, reason: str) -> None:
        self.path = path = redacted(path)
        super().__init__(
            f"option 'receiptsPath' is {path!r}, which cannot be made a folder by the driver: {reason}. {NOTHING_SENT}"
        )


class CheckpointUnusable(ConfigError):
    """`file`: of a stream's checkpoint, which the name of its sink is read from or written to."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(
            f"{file!r} cannot be used: {reason}. It is part of the stream's checkpoint, and tells under which name an "
            f"exactly-once stream commits. {NOTHING_SENT} Make the folder readable and writable for the user that the "
            "driver runs as, or restore the file from a copy of the checkpoint."
        )


# --- columns ----------------------------------------------------------------------------------------------------------


class SchemaError(KafkaSinkError):
    """A column is missing, unknown, or of a type no Kafka record can take."""

    column: str


class MissingColumn(SchemaError):
    def __init__(self, *, column: str, found: Sequence[str], hint: str) -> None:
        self.column = column
        self.found = tuple(found)
        super().__init__(
            f"the DataFrame has no column {column!r} (it has: {', '.join(found) or 'none'}). {hint} {NOTHING_SENT}"
        )


class UnexpectedColumn(SchemaError):
    def __init__(self, *, column: str, allowed: Sequence[str]) -> None:
        self.column = column
        super().__init__(
            f"column {column!r} has no place in a Kafka record (columns are: {', '.join(allowed)}). Fold it into the "
            f"value, e.g. to_json(struct('{column}', ...)).alias('value'), or drop it. {NOTHING_SENT}"
        )


class DuplicateColumn(SchemaError):
    def __init__(self, *, column: str) -> None:
        self.column = column
        super().__init__(
            f"the DataFrame has more than one column {column!r}, and a Kafka record has room for one. Drop or rename "
            f"the others. {NOTHING_SENT}"
        )


class ColumnTypeMismatch(SchemaError):
    def __init__(self, *, column: str, found: str, expected: str, hint: str) -> None:
        self.column = column
        self.found = found
        self.expected = expected
        self.hint = hint
        super().__init__(f"column {column!r} is {found}; expected {expected}. {hint} {NOTHING_SENT}")


class TypeNotMapped(SchemaError):
    """`column` is a path, `form` the schema's language."""

    def __init__(self, *, column: str, found: str, form: str, hint: str) -> None:
        self.column = column
        self.found = found
        self.form = form
        super().__init__(f"column {column!r} is {found}, which {form} has no type for. {hint} {NOTHING_SENT}")


class NameNotAllowed(SchemaError):
    def __init__(self, *, column: str, form: str, rule: str) -> None:
        self.column = column
        self.form = form
        super().__init__(
            f"column {column!r} has a name that {form} does not allow: {rule}. Rename it (withColumnRenamed, or "
            f"cast('struct<...>') for a field of a struct). {NOTHING_SENT}"
        )


class ColumnNotInSchema(SchemaError):
    """`found` of the DataFrame, `expected` by the schema that was given or is the registry's latest."""

    def __init__(self, *, column: str, found: str, expected: str, form: str) -> None:
        self.column = column
        self.found = found
        self.expected = expected
        self.form = form
        super().__init__(
            f"the {form} schema does not fit the DataFrame: column {column!r} is {found}, and the schema has "
            f"{expected}. Change the column (select, cast), or the schema; without one it is derived from the columns. "
            f"{NOTHING_SENT}"
        )


# --- a look before a write --------------------------------------------------------------------------------------------


class WriteWouldFail(KafkaSinkError):
    """The first failure of an examination, and how many there are."""

    def __init__(self, *, step: str, where: str, found: str, remedy: str, failures: int) -> None:
        self.step = step
        self.where = where
        self.found = found
        self.remedy = remedy
        self.failures = failures
        more = f" It is the first of {failures} failures." if failures > 1 else ""
        super().__init__(
            f"the write would fail: step {step!r} of {where}: {found}. To fix it: {remedy}.{more} "
            f"kafka_sink.validate shows all steps. {NOTHING_SENT}"
        )


# --- rows -------------------------------------------------------------------------------------------------------------


_LEAVE_OUT = "Or set badRows=drop or deadLetter, which leave such rows out and write the others."
_LEAVE_OUT_LARGE = (
    f"{_LEAVE_OUT[:-1]}; they know the topic's own limit with the ACL TOPIC DESCRIBE_CONFIGS for {PRINCIPAL}."
)


class BadRow(KafkaSinkError):
    """One row cannot become a Kafka record. It was not sent; rows before it may have been.

    `row`: its number among the rows that its task was given, from 0; `spark_partition`: the task's; `key_bytes`: the
    length of its key. Each is None where nobody knows, the last one also where the row has no key.
    """

    topic: str | None = None
    row: int | None = None
    spark_partition: int | None = None
    key_bytes: int | None = None

    def located(self, *, row: int, topic: str | None, key_bytes: int | None) -> None:
        """Takes in which row it is. The key itself is not told: what is in rows is in no message."""
        self.row = row
        self.key_bytes = key_bytes
        of = ""
        if self.topic is None and topic is not None:
            self.topic = topic
            of = f" for topic {topic!r}"
        self.args = (f"row {row} (from 0) of {_ITS_TASK}{of}, {_key_of(key_bytes)}: {self}",)

    def in_spark_partition(self, number: int) -> None:
        self.spark_partition = number
        self._replace(_ITS_TASK, f"Spark partition {number}")


_ITS_TASK = "its task's input"


def _key_of(key_bytes: int | None) -> str:
    return "without a key" if key_bytes is None else f"with a key of {key_bytes} bytes"


class RecordTooLarge(BadRow):
    """`limit`: the setting that is in the way. `max_bytes` is None for one of the brokers', as a refusal does not tell
    it; `size_bytes` is then with compression, as it was sent. `partition`, `timestamp_ms`: of a row that was sent,
    whose number is not known any more."""

    def __init__(
        self,
        *,
        topic: str,
        size_bytes: int,
        max_bytes: int | None,
        limit: str,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        key_bytes: int | None = None,
    ) -> None:
        self.topic = topic
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.key_bytes = key_bytes
        which = f"a row for topic {topic!r}"
        if partition is not None:
            which += f" partition {partition}, {_key_of(key_bytes)} and of timestamp {timestamp_ms} ms from 1970,"
        what = f"{which} takes {size_bytes} bytes as a record batch of its own"
        if max_bytes is None:
            happened = f"{what}, and the partition's leader refused it: {limit} allows less. Raise that setting"
        else:
            happened = f"{what}; {limit} allows {max_bytes}. Raise {limit} (and the topic's max.message.bytes)"
        super().__init__(f"{happened}, or make the row smaller. {_LEAVE_OUT_LARGE} {REPLAY}")


class PartitionOutOfRange(BadRow):
    def __init__(self, *, topic: str, partition: int, partition_count: int) -> None:
        self.topic = topic
        self.partition = partition
        self.partition_count = partition_count
        super().__init__(
            f"a row names partition {partition} of topic {topic!r}, which has partitions 0 to {partition_count - 1}. "
            f"Correct the 'partition' column, or leave it null to let the partitioner decide. "
            f"{_LEAVE_OUT} {REPLAY}"
        )


class TopicNull(BadRow):
    def __init__(self) -> None:
        super().__init__(
            "a row has no topic: its 'topic' column is null or empty and the 'topic' option is not set. Set the "
            f"option, or filter such rows out. {_LEAVE_OUT} {REPLAY}"
        )


class TopicNameInvalid(BadRow):
    """`topic`: as much of it as a name can have, with escapes for what is not UTF-8."""

    def __init__(self, *, topic: str) -> None:
        self.topic = topic[:LONGEST]
        super().__init__(
            f"{self.topic!r} is not a name a Kafka topic can have: 1 to {LONGEST} letters, digits, '.', '_' or '-', "
            f"and not '.' or '..'. Correct the 'topic' column, or filter such rows out. {_LEAVE_OUT} "
            f"{REPLAY}"
        )


class HeaderKeyNull(BadRow):
    def __init__(self) -> None:
        super().__init__(
            "a row has a header with a null key (or a null entry in 'headers'), which Kafka does not allow; null "
            f"header values are fine. Give the header a key, or filter such rows out. {_LEAVE_OUT} {REPLAY}"
        )


class HeaderKeyNotUtf8(BadRow):
    def __init__(self) -> None:
        super().__init__(
            "a row has a header whose key is not UTF-8. Kafka's header keys are text, and some consumers cannot read "
            "past a record whose keys are not; header values may be any bytes. Make the key of text, or filter such "
            f"rows out. {_LEAVE_OUT} {REPLAY}"
        )


class TimestampOutOfRange(BadRow):
    def __init__(self, *, timestamp: int, unit: str) -> None:
        self.timestamp = timestamp
        self.unit = unit
        super().__init__(
            f"a row's timestamp is {timestamp} {unit} from 1970. Kafka's timestamps are milliseconds since 1970 in 64 "
            f"bits and not negative: brokers cannot compact or recompress such records, and -1 means that there is "
            f"none. Put the time into the value and leave the 'timestamp' column null, for the time of the write. "
            f"{_LEAVE_OUT} {REPLAY}"
        )


class ValueNotInSchema(BadRow):
    """Of a column that is encoded for a schema registry. `column` is a path; the value is not told."""

    def __init__(self, *, column: str, problem: str) -> None:
        self.column = column
        self.problem = problem
        super().__init__(
            f"a row does not fit its schema: column {column!r} {problem}. Correct or filter such rows, or change the "
            f"schema; the option badRows does not see them, as they never reach the sink. {REPLAY}"
        )


class TooManyBadRows(KafkaSinkError):
    """`counts`: of each reason, by the error's name. `first_rows`: (Spark partition, row of its task) of some.
    `rows_are_written`: all tasks have ended, and the other rows are in Kafka for everybody to read."""

    def __init__(
        self,
        *,
        counts: Mapping[str, int],
        rows: int,
        limit: str,
        allowed: float,
        first_rows: Sequence[tuple[int, int]],
        rows_are_written: bool = False,
    ) -> None:
        self.counts = dict(counts)
        self.rows = rows
        self.limit = limit
        self.allowed = allowed
        self.first_rows = tuple(first_rows)
        reasons = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))
        first = ", ".join(map(str, self.first_rows))
        # Of those that leaders refused it is not known.
        which = f" The first of them, as (Spark partition, row of its task from 0): {first}." if first else ""
        after = (
            "Nothing is lost: all other rows of the write are in Kafka, and its dead letters. But for Spark it has "
            "failed, and when it runs again they will be there twice."
            if rows_are_written
            else REPLAY
        )
        super().__init__(
            f"{sum(self.counts.values())} of {rows} rows cannot be written to Kafka ({reasons}); {limit} allows "
            f"{allowed}.{which} Correct the rows, or raise {limit}. {after}"
        )


class DeadLetterTopicNamed(KafkaSinkError):
    """What is in that topic could not be told from dead letters."""

    def __init__(self, *, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"a row names topic {topic!r}, which is deadLetterTopic: bad rows need a topic of their own. Choose "
            f"another, or filter such rows out. {REPLAY}"
        )


# --- the schema registry ----------------------------------------------------------------------------------------------


class RegistryError(KafkaSinkError):
    """The schema registry could not be asked, or said no. Raised on the driver, before any row moves, but for
    RegistryExtraMissing."""


class RegistryExtraMissing(RegistryError):
    """The one that executors raise as well: they need what encodes. `on_executor`: this is one, and others may have
    written by now."""

    def __init__(self, *, module: str, reason: str, on_executor: bool = False) -> None:
        self.module = module
        self.reason = reason
        super().__init__(
            f"Python module {module} cannot be imported ({reason}): pip install 'pyspark-pykafka[registry]', on the "
            f"driver and on executors. {REPLAY if on_executor else NOTHING_SENT}"
        )


class RegistryUnreachable(RegistryError):
    def __init__(self, *, url: str, reason: str) -> None:
        self.url = url
        self.reason = quoted(reason)
        super().__init__(
            f"the schema registry ({url}) could not be asked from the driver: {self.reason}. Check the url, that the "
            f"driver can reach it, and its certificates. {NOTHING_SENT}"
        )


class RegistryAnswerUnusable(RegistryError):
    """`reason`: what is wrong with the answer, without the answer itself."""

    def __init__(self, *, url: str, subject: str, reason: str) -> None:
        self.url = url
        self.subject = subject
        self.reason = reason
        super().__init__(
            f"an answer of the schema registry ({url}) about subject {subject!r} cannot be used: {reason}. Check that "
            f"the url is that of a schema registry, and what stands between. {NOTHING_SENT}"
        )


class RegistryRefused(RegistryError):
    def __init__(self, *, subject: str, status: int, error_code: int, reason: str) -> None:
        self.subject = subject
        self.status = status
        self.error_code = error_code
        self.reason = quoted(reason)
        hint = _REGISTRY_HINTS.get(status, "Ask whoever runs the registry.")
        super().__init__(
            f"the schema registry refused what was asked of subject {subject!r}, with status {status}, code "
            f"{error_code}: {self.reason}. {hint} {NOTHING_SENT}"
        )


_REGISTRY_HINTS = {
    401: "Check basic.auth.user.info, or whatever else the registry's conf has to show who you are.",
    403: "Have this user be allowed to read and write the subject; with auto.register.schemas=false to read it.",
    422: "The registry cannot read the schema: correct it.",
}


class SchemaIncompatible(RegistryError):
    """`version`: of the subject, with which the schema was compared."""

    def __init__(self, *, subject: str, version: str, reason: str) -> None:
        self.subject = subject
        self.version = version
        self.reason = quoted(reason)
        super().__init__(
            f"the schema is not compatible with version {version} of subject {subject!r}, and was not registered. The "
            f"registry says: {self.reason}. Make new columns nullable and keep the old ones' names and types; or give "
            f"a schema that fits both; or use another topic or subject strategy; or, when its readers are ready, "
            f"change the subject's compatibility level. {NOTHING_SENT}"
        )


class SchemaNotRegistered(RegistryError):
    def __init__(self, *, subject: str, reason: str) -> None:
        self.subject = subject
        self.reason = quoted(reason)
        super().__init__(
            f"the schema registry has no such schema under subject {subject!r}: {self.reason}. Register it, or let it "
            "be registered: leave out auto.register.schemas=false and use.latest.version=true. Check the subject "
            f"strategy as well. {NOTHING_SENT}"
        )


class SchemaUnreadable(RegistryError):
    def __init__(self, *, form: str, reason: str) -> None:
        self.form = form
        self.reason = quoted(reason)
        super().__init__(f"the {form} schema cannot be used: {self.reason}. {NOTHING_SENT}")


# --- the cluster, before rows go out ----------------------------------------------------------------------------------


class ClusterError(KafkaSinkError):
    """The cluster could not be asked for what a write needs to begin, or refused it."""


_REACH = "Check kafka.bootstrap.servers, and that the executors can reach the addresses which the brokers advertise."


class BrokersUnreachable(ClusterError):
    """`step`, `where` and `remedy`: at which step of the doctor's which address fails, and what to do about it; empty
    where nobody looked, or all is well by then."""

    def __init__(self, *, bootstrap_servers: str, waited_ms: int, last_error: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.waited_ms = waited_ms
        self.last_error = last_error
        self.step = self.where = self.remedy = ""
        super().__init__(
            f"no broker of {bootstrap_servers} answered within {waited_ms} ms (kafka.max.block.ms); last: "
            f"{last_error or 'no connection was made'}. {_REACH} Rows waiting for an answer were not sent. {REPLAY}"
        )

    def examined(self, *, step: str, where: str, found: str, remedy: str, command: str) -> None:
        """Takes in what an examination from the same host says; `command` repeats that."""
        self.step, self.where, self.remedy = (quoted(text, MAX_FACT_CHARACTERS) for text in (step, where, remedy))
        self._replace(
            _REACH,
            f"Looked at from this host, step {step!r} of {self.where} fails: {quoted(found)}. To fix it: "
            f"{self.remedy}. {command}",
        )


class ClusterChanged(ClusterError):
    """`broker` belongs to cluster `found`, and the write began with cluster `expected`. `what`: that, for a log."""

    def __init__(self, *, broker: str, expected: str, found: str) -> None:
        self.broker = broker
        self.expected = expected
        self.found = found
        self.what = f"it belongs to cluster {self.found!r}, not to cluster {expected!r} of this write"
        super().__init__(
            f"{broker}: {self.what}. The cluster was replaced, or the address leads to another one. Rows that were "
            f"written before are in cluster {expected!r} only. Check kafka.bootstrap.servers and the addresses which "
            f"the brokers advertise; if the cluster was replaced, write the rows of earlier writes again. {REPLAY}"
        )


class TlsFailed(ClusterError):
    """A connection could not be encrypted, or its peer not be verified, in a way that no further attempt changes."""

    def __init__(self, *, broker: str, step: str, advice: str) -> None:
        self.broker = broker
        self.step = step
        self.advice = advice
        super().__init__(
            f"no secure connection to {broker}: {step}. To fix it: {advice}. Neither credentials nor rows went over "
            f"it. {REPLAY}"
        )


class AuthenticationFailed(ClusterError):
    """`user`: the user name or client id; `reason`: the broker's, or what of its answers was wrong."""

    def __init__(self, *, broker: str, mechanism: str, user: str, reason: str) -> None:
        self.broker = broker
        self.mechanism = mechanism
        self.user = user = redacted(user)
        self.reason = reason
        super().__init__(
            f"{broker} and user {user!r} were not authenticated to each other by {mechanism}: {reason}. Check "
            f"kafka.sasl.mechanism and the credentials (kafka.sasl.jaas.config, or kafka.sasl.username and "
            f"kafka.sasl.password), and that the cluster has this user. {REPLAY}"
        )


class TokenUnavailable(ClusterError):
    """`source`: the token endpoint's URL, or the user's callable."""

    def __init__(self, *, source: str, reason: str) -> None:
        self.source = source = redacted(source)
        self.reason = reason
        super().__init__(
            f"no token for OAUTHBEARER from {source}: {reason}. Check the client id, the client secret and the scope, "
            f"and that the executors can reach it. {REPLAY}"
        )


class TopicNotFound(ClusterError):
    """`waited_ms`: for how long the write waited for it."""

    def __init__(self, *, topic: str, waited_ms: int) -> None:
        self.topic = topic
        self.waited_ms = waited_ms
        super().__init__(
            f"topic {topic!r} does not exist on the cluster, which was asked for {waited_ms} ms. Create it, or set the "
            f"option createTopics=true, which creates the topic of the 'topic' option, or correct the 'topic' option "
            f"or column. No row of this Arrow batch was sent. {REPLAY}"
        )


class TopicNotCreated(ClusterError):
    """With createTopics."""

    def __init__(self, *, topic: str, reason: str, remedy: str) -> None:
        self.topic = topic
        self.reason = reason
        self.remedy = remedy
        super().__init__(
            f"createTopics is set, and topic {topic!r} was not created: {reason}. To fix it: {remedy}. {NOTHING_SENT}"
        )


class TopicAuthorizationFailed(ClusterError):
    """`operation`: what is not allowed, in the words of an ACL."""

    def __init__(self, *, topic: str, operation: str = "WRITE") -> None:
        self.topic = topic
        self.operation = operation
        to = "write to" if operation == "WRITE" else operation.lower()
        super().__init__(
            f"not allowed to {to} topic {topic!r}. Add the ACL: TOPIC {topic} {operation} (it implies DESCRIBE) for "
            f"{PRINCIPAL}. {REPLAY}"
        )


class ProducerIdRefused(ClusterError):
    def __init__(self, *, code: int, name: str) -> None:
        self.code = code
        super().__init__(
            f"the cluster refused to hand out a producer id: {name} (error {code}). Idempotent writes need the "
            f"ACL TOPIC WRITE on the topic for this principal, or CLUSTER IDEMPOTENT_WRITE on brokers before 2.8. No "
            f"row was sent. {REPLAY}"
        )


class CoordinatorUnavailable(ClusterError):
    """`kind`: what `key` is, "transactional id" or "group"."""

    def __init__(self, *, kind: str, key: str, waited_ms: int, last_error: str) -> None:
        self.kind = kind
        self.key = key
        self.waited_ms = waited_ms
        self.last_error = last_error
        advice = "Check the brokers, and that a leader exists for every partition of __transaction_state and "
        advice += "__consumer_offsets; then run again."
        if "UNSTABLE_OFFSET_COMMIT" in last_error:
            advice = "A transaction that writes the group's offset stays open: pykafka transactions "
            advice += "describe --prefix <transactionalIdPrefix> tells which, and what ends it."
        super().__init__(
            f"the coordinator of {kind} {key!r} gave no definite answer within {waited_ms} ms (kafka.max.block.ms); "
            f"last: {last_error}. {advice} {UNDECIDED}"
        )


class CoordinatorRefused(ClusterError):
    """`kind`: what `key` is, "transactional id" or "group"."""

    def __init__(self, *, kind: str, key: str, code: int, name: str) -> None:
        self.kind = kind
        self.key = key
        self.code = code
        acl = "GROUP READ" if kind == "group" else "TRANSACTIONAL_ID WRITE"
        super().__init__(
            f"the cluster refuses to say who coordinates {kind} {key!r}: {name} (error {code}). Exactly-once writes "
            f"need the ACL {acl}, prefixed with the transactionalIdPrefix, for {PRINCIPAL}. "
            f"Nothing is lost: what was not committed before stays invisible to read_committed readers."
        )


class LeaderUnavailable(ClusterError):
    def __init__(self, *, topic: str, partition: int, waited_ms: int, last_error: str) -> None:
        self.topic = topic
        self.partition = partition
        self.waited_ms = waited_ms
        self.last_error = last_error
        super().__init__(
            f"the leader of {topic}-{partition} gave no definite answer within {waited_ms} ms (kafka.max.block.ms); "
            f"last: {last_error}. Check that the partition has a leader, then run again. {UNDECIDED}"
        )


class BrokerUnavailable(ClusterError):
    def __init__(self, *, node_id: int, waited_ms: int, last_error: str) -> None:
        self.node_id = node_id
        self.waited_ms = waited_ms
        self.last_error = last_error
        super().__init__(
            f"broker {node_id} gave no definite answer within {waited_ms} ms (kafka.max.block.ms), and one of every "
            f"broker is needed; last: {last_error}. Check the broker, then run again. {UNDECIDED}"
        )


class RecordsUnreadable(ClusterError):
    """To compare them with what receipts say."""

    def __init__(self, *, what: str, reason: str) -> None:
        self.what = what
        super().__init__(
            f"{what} cannot be read: {reason}. Nothing is lost by that, and what was not read is not proven: once it "
            "is fixed, verify again."
        )


class CommitTopicMissing(ClusterError):
    """`command`: what creates it."""

    def __init__(self, *, topic: str, reason: str, command: str) -> None:
        self.topic = topic
        self.reason = reason
        self.command = command
        super().__init__(
            f"topic {topic!r}, on which the offsets that record each micro-batch are committed, is not there and could "
            f"not be created: {reason}. It holds no records and needs two partitions. Create it with: {command} - or "
            f"add the ACL TOPIC CREATE on it for this principal. {NOTHING_SENT}"
        )


class CommitTopicTooSmall(ClusterError):
    """`command`: what makes it large enough."""

    def __init__(self, *, topic: str, partition_count: int, command: str) -> None:
        self.topic = topic
        self.partition_count = partition_count
        self.command = command
        super().__init__(
            f"topic {topic!r}, on which the offsets that record each micro-batch are committed, has {partition_count} "
            "partition and needs two: offsets of the second prove that a coordinator's answer is not from before it "
            f"stood still. It holds no records, so that another partition harms nothing: {command}. {NOTHING_SENT}"
        )


# --- delivery ---------------------------------------------------------------------------------------------------------


class DeliveryError(KafkaSinkError):
    """Rows were handed to the producer and the broker's acknowledgement did not come."""


class DeliveryTimeout(DeliveryError):
    """`was_sent`: the records were once, if only in a larger batch that was split. `elapsed_ms`: without the time in
    which their leader throttled. `throttled_ms`: for how long brokers throttled in this write."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        records: int,
        elapsed_ms: int,
        attempts: int,
        was_sent: bool,
        last_error: str,
        throttled_ms: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.elapsed_ms = elapsed_ms
        self.attempts = attempts
        self.last_error = last_error
        self.throttled_ms = throttled_ms
        quota = (
            f"Brokers also throttled this write for {throttled_ms} ms, by a quota of its user or client id; that time "
            "does not count. "
            if throttled_ms
            else ""
        )
        written = "Whether the last attempt was written is unknown." if was_sent else "None of them was sent."
        super().__init__(
            f"{records} records for {topic}-{partition} were not acknowledged within {elapsed_ms} ms "
            f"(kafka.delivery.timeout.ms) after {attempts} attempts; last: {last_error or 'no answer'}. "
            f"{quota}{written} "
            f"Check the partition's leader and in-sync replicas, then run again. {REPLAY}"
        )


class ProduceRejected(DeliveryError):
    """`refused`: how many of its records the leader names, where it does; `place` and `timestamp_ms` of the first,
    from 0 in the batch, and its `reason`."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        code: int,
        name: str,
        records: int,
        size_bytes: int,
        detail: str,
        advice: str,
        refused: int = 0,
        place: int | None = None,
        timestamp_ms: int | None = None,
        reason: str = "",
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.code = code
        self.records = records
        self.size_bytes = size_bytes
        self.refused = refused
        self.place = place
        self.timestamp_ms = timestamp_ms
        self.reason = quoted(reason)
        named = (
            f" It names {refused} of them; the first is record {place} of the batch (from 0), whose timestamp is "
            f"{timestamp_ms} ms from 1970: {self.reason}."
            if refused
            else ""
        )
        super().__init__(
            f"the leader of {topic}-{partition} refused a batch of {records} records, {size_bytes} bytes: {name} "
            f"(error {code}{': ' + quoted(detail) if detail else ''}).{named} {advice} {REPLAY}"
        )


class TopicRecreated(DeliveryError):
    def __init__(self, *, topic: str, old_topic_id: str, new_topic_id: str) -> None:
        self.topic = topic
        self.old_topic_id = old_topic_id
        self.new_topic_id = new_topic_id
        super().__init__(
            f"topic {topic!r} was deleted and created again during the write (topic id {old_topic_id} is now "
            f"{new_topic_id}). Rows sent to the old topic are gone with it. {REPLAY}"
        )


class BufferExhausted(DeliveryError):
    def __init__(self, *, needed_bytes: int, buffer_memory: int, waited_ms: int) -> None:
        self.needed_bytes = needed_bytes
        self.buffer_memory = buffer_memory
        self.waited_ms = waited_ms
        super().__init__(
            f"no {needed_bytes} bytes of kafka.buffer.memory ({buffer_memory} bytes) became free within {waited_ms} "
            f"ms "
            f"(kafka.max.block.ms): the brokers acknowledge more slowly than Spark delivers rows, or not at all. "
            f"Check "
            f"the brokers; raise kafka.max.block.ms or kafka.buffer.memory if they are merely slow. {REPLAY}"
        )


class ReceiptMismatch(DeliveryError):
    """`dropped`: rows that were bad, and meant not to be acknowledged."""

    def __init__(self, *, received: int, acknowledged: int, dropped: int = 0) -> None:
        self.received = received
        self.acknowledged = acknowledged
        self.dropped = dropped
        bad = f", {dropped} were dropped as bad" if dropped else ""
        super().__init__(
            f"Spark delivered {received} rows{bad} and the leaders acknowledged {acknowledged}. This is a defect of "
            f"the sink: "
            f"please report it with the task's log. {REPLAY}"
        )


class ProducerClosed(DeliveryError):
    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the producer is closed ({reason}). {REPLAY}")


class ProtocolError(KafkaSinkError):
    """A peer's bytes break the protocol. The connection is closed; whoever waited on it retries elsewhere.

    `detail` may quote the peer.
    """

    def __init__(self, detail: str) -> None:
        self.detail = quoted(detail)
        super().__init__(f"not a Kafka response: {self.detail}")


class TlsExpected(ProtocolError):
    """The peer of a plaintext connection speaks TLS."""


class SaslRefused(ProtocolError):
    """The broker refused to authenticate `user`, or did not authenticate itself. `reason` shows no secret."""

    def __init__(self, *, mechanism: str, user: str, reason: str) -> None:
        self.mechanism = mechanism
        self.user = user = redacted(user)
        self.reason = reason
        super().__init__(f"{mechanism}, user {user!r}: {reason}")


# --- exactly-once -----------------------------------------------------------------------------------------------------


def _run(sink: str, micro_batch_id: int, versioned: bool) -> str:
    """`sink` is a stream's transactionalIdPrefix, or with `versioned` the txnAppId of batch writes."""
    what, of = ("version", "txnAppId") if versioned else ("micro-batch", "sink")
    return f"{what} {micro_batch_id} of {of} {sink!r}"


def _slots(slots: Sequence[int]) -> str:
    """The first of them, as `slots 0, 1, 2 and 5 more`."""
    if not slots:
        return "no slot"
    shown = ", ".join(map(str, slots[:10]))
    more = f" and {len(slots) - 10} more" if len(slots) > 10 else ""
    return f"slot{'s' if len(slots) > 1 else ''} {shown}{more}"


class ExactlyOnceError(KafkaSinkError):
    """The two-phase commit could not go on. A slot is a Spark partition of the micro-batch. With `versioned` that is a
    batch write: `sink` its txnAppId, `micro_batch_id` its txnVersion."""

    def in_transaction(
        self, *, committing: bool = False, write_kind: WriteKind = WriteKind.STREAM, repair: str = ""
    ) -> Self:
        number = getattr(self, "micro_batch_id", None)
        if write_kind is WriteKind.VERSION:
            self._replace(f"micro-batch {number} of sink", f"version {number} of txnAppId")
            self._replace(f"micro-batch {number}", f"version {number}")
        elif write_kind is WriteKind.BATCH:
            # It has one micro-batch, whose number says nothing.
            self._replace(f"micro-batch {number}", "the batch write")
        return super().in_transaction(committing=committing, write_kind=write_kind, repair=repair)


class TornBatch(ExactlyOnceError):
    """Of a decided micro-batch some slots are visible, and the replay's rows are not those that were decided."""

    def __init__(
        self,
        *,
        sink: str,
        micro_batch_id: int,
        visible: Sequence[int],
        missing: Sequence[int],
        versioned: bool = False,
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.visible = tuple(visible)
        self.missing = tuple(missing)
        happened = (
            f"{_run(sink, micro_batch_id, versioned)} is visible in part: {_slots(visible)} can be read, "
            f"{_slots(missing)} not, because a transaction timed out in mid-commit. The replay cannot fill in, as its "
            "rows or its Spark partitions are not the same."
        )
        same = "(the same code, inputs and number of partitions; no rand() or current_timestamp())"
        if versioned:
            advice = (
                f"{WRITE_STOPPED} Run the write again with the rows that it had first {same}. Or write all of its rows "
                "once more, those that are visible too, under a new txnAppId."
            )
        else:
            advice = (
                f"{STOPPED} Make the query give the same rows again {same} and restart it. Or write all of its rows "
                "once more, those that are visible too: allowLostState=true for one start, with a new "
                "transactionalIdPrefix."
            )
        super().__init__(f"{happened} {advice}")


class CommitOutcomeUnknown(ExactlyOnceError):
    def __init__(
        self,
        *,
        sink: str,
        micro_batch_id: int,
        visible: Sequence[int],
        missing: Sequence[int],
        reason: str,
        versioned: bool = False,
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.visible = tuple(visible)
        self.missing = tuple(missing)
        again = (
            "The write is not done: run it again under its txnAppId and txnVersion, which commits what still can be, "
            "and writes the missing slots again if their rows are the same. Nothing is lost."
            if versioned
            else COMMITS_THE_REST
        )
        super().__init__(
            f"the commit of {_run(sink, micro_batch_id, versioned)} was decided, and {_slots(missing)} did not "
            f"become visible ({_slots(visible)} did): {reason}. {again}"
        )


class NonDeterministicReplay(ExactlyOnceError):
    def __init__(self, *, sink: str, micro_batch_id: int, slots: Sequence[int], versioned: bool = False) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.slots = tuple(slots)
        advice = (
            f"{WRITE_STOPPED} New rows need a higher txnVersion, and another writer, or another topic, a txnAppId of "
            "its own. If this is the same write again, look for rand(), current_timestamp(), changed code or inputs."
            if versioned
            else f"{STOPPED} Look for rand(), current_timestamp(), a changed query, or inputs that changed; restart "
            "with the query that wrote it first."
        )
        super().__init__(
            f"{_run(sink, micro_batch_id, versioned)} was written before and its {_slots(slots)} gave other rows "
            f"this time, so that leaving out what is visible would lose rows and writing it would double some. {advice}"
        )


class DriverFenced(ExactlyOnceError):
    def __init__(self, *, sink: str, generation: str, current: str) -> None:
        self.sink = sink
        self.generation = generation
        self.current = current
        super().__init__(
            f"another run took over sink {sink!r} (this one's generation was {generation}, now it is {current}): a "
            "second driver, or another stream or write of this one, runs with the same transactionalIdPrefix or "
            f"txnAppId, or this one was taken for dead and replaced. {NOTHING_VISIBLE} {TWO_NAMES}"
        )


class AttemptFenced(ExactlyOnceError):
    """`name`: the error's, which says by what."""

    def __init__(self, *, transactional_id: str, api: str, name: str) -> None:
        self.transactional_id = transactional_id
        self.api = api
        self.name = name
        super().__init__(
            f"{api} for {transactional_id!r} was refused with {name}: a later attempt of the task has begun, or the "
            f"transaction timed out. {NOTHING_VISIBLE}"
        )


class CommittedDataMissing(ExactlyOnceError):
    def __init__(
        self,
        *,
        sink: str,
        micro_batch_id: int,
        visible: Sequence[int],
        missing: Sequence[int],
        next_micro_batch_id: int,
        versioned: bool = False,
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.visible = tuple(visible)
        self.missing = tuple(missing)
        happened = (
            f"{_run(sink, next_micro_batch_id, versioned)} is not written: of the last one that was decided, "
            f"{micro_batch_id}, {_slots(missing)} cannot be read ({_slots(visible)} can)."
        )
        advice = (
            f"A transaction timed out in mid-commit, or was aborted from outside. {WRITE_STOPPED} Run version "
            f"{micro_batch_id} again with the rows that it had: it writes what is missing. To go on without those rows "
            "set allowLostState=true for one write."
            if versioned
            else f"A transaction was aborted from outside, or the checkpoint is another's. {STOPPED} To write the "
            f"micro-batch again restore the checkpoint to before {micro_batch_id}; to go on without it set "
            "allowLostState=true for one start."
        )
        super().__init__(f"{happened} {advice}")


class WrittenOtherwise(ExactlyOnceError):
    """The last decision, `micro_batch_id`, is whole, and Spark has recorded micro-batches between it and the next."""

    def __init__(self, *, sink: str, micro_batch_id: int, next_micro_batch_id: int) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.next_micro_batch_id = next_micro_batch_id
        super().__init__(
            f"{_run(sink, next_micro_batch_id, False)} is not written: exactly-once decided {micro_batch_id} last, and "
            "the checkpoint says that more were written since. They were written otherwise: at least once, by another "
            f"format, or as another sink; or the brokers' state is an older copy. {STOPPED} Do not go back to an older "
            "checkpoint: what those micro-batches wrote would be in the topics twice. If their rows are there, go on "
            f"from micro-batch {next_micro_batch_id} with allowLostState=true for one start."
        )


class AnotherCheckpoint(ExactlyOnceError):
    """`found_query_id`: the query's whose checkpoint is in the folder of the driver's host that the option
    checkpointLocation names."""

    def __init__(self, *, sink: str, query_id: str, found_query_id: str) -> None:
        self.sink = sink
        self.query_id = query_id
        self.found_query_id = found_query_id
        super().__init__(
            f"query {query_id} was planned as sink {sink!r}, which belongs to query {found_query_id}: that one's "
            "checkpoint is in the folder of the driver's host that checkpointLocation names, and Spark has this one's "
            f"on another file system. {STOPPED} Name checkpointLocation with its scheme (hdfs://..., s3a://...), or "
            "set transactionalIdPrefix."
        )


class CheckpointBehind(ExactlyOnceError):
    def __init__(
        self, *, sink: str, micro_batch_id: int, committed_micro_batch_id: int, versioned: bool = False
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.committed_micro_batch_id = committed_micro_batch_id
        run = _run(sink, micro_batch_id, versioned)
        super().__init__(
            f"{run} is not written: {committed_micro_batch_id} is committed, by another run just now, or before, "
            f"and the record of which versions were decided is gone. {WRITE_STOPPED} Go on with a version above "
            f"{committed_micro_batch_id}; or, to write {micro_batch_id} once more, with a new txnAppId."
            if versioned
            else f"Spark runs {run}, and {committed_micro_batch_id} of the same query was committed before: the "
            f"checkpoint is an older copy. {STOPPED} Use the newest checkpoint; or, to write those micro-batches once "
            "more, a new transactionalIdPrefix."
        )


class TransactionTimedOut(ExactlyOnceError):
    def __init__(self, *, transactional_id: str, expected: str, found: str, age_ms: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.expected = expected
        self.found = found
        self.age_ms = age_ms
        self.timeout_ms = timeout_ms
        super().__init__(
            f"transaction {transactional_id!r} ({expected}) cannot be committed any more: its coordinator says "
            f"{found}, age {age_ms} ms of kafka.transaction.timeout.ms {timeout_ms}. It took too long, or a later "
            f"attempt of its task took over (spark.speculation must be off). {NOTHING_VISIBLE} {LASTS_TOO_LONG} "
            "kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms."
        )


class RateOutlastsTransaction(ExactlyOnceError):
    """`row_count`: of the task's rows that were handed over in time."""

    def __init__(self, *, transactional_id: str, timeout_ms: int, row_count: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.row_count = row_count
        super().__init__(
            f"the rows of transaction {transactional_id!r} take longer than kafka.transaction.timeout.ms {timeout_ms} "
            f"at the rate that maxRowsPerSecond and maxBytesPerSecond leave to one task: {row_count} of them were "
            f"sent, and there are more. {NOTHING_VISIBLE} {LASTS_TOO_LONG} kafka.transaction.timeout.ms and the "
            "brokers' transaction.max.timeout.ms, or the rate."
        )


class QuotaOutlastsTransaction(ExactlyOnceError):
    """`left_ms`: until brokers abort the transaction. `waiting_bytes`: of record batches that were not written yet.
    `rest_ms`: how long the brokers take for them at `bytes_per_s`, 0 where they took none behind a throttle."""

    def __init__(
        self,
        *,
        transactional_id: str,
        timeout_ms: int,
        left_ms: int,
        client_id: str,
        bytes_per_s: int,
        waiting_bytes: int,
        rest_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.left_ms = left_ms
        self.client_id = client_id
        self.bytes_per_s = bytes_per_s
        self.waiting_bytes = waiting_bytes
        self.rest_ms = rest_ms
        rate = f", at {bytes_per_s} bytes/s" if bytes_per_s else ""
        super().__init__(
            f"brokers throttle this write by a quota of its user or of client id {client_id!r} (producer_byte_rate or "
            f"request_percentage): {waiting_bytes} bytes of transaction {transactional_id!r} wait and take another "
            f"{rest_ms} ms{rate}, and of its kafka.transaction.timeout.ms {timeout_ms} are {left_ms} ms left. "
            f"{NOTHING_VISIBLE} {LASTS_TOO_LONG} kafka.transaction.timeout.ms up to the brokers' "
            "transaction.max.timeout.ms, or the quota (kafka-configs.sh --entity-type clients or users)."
        )


class StateExpired(ExactlyOnceError):
    """`decided_query_id`: the query that decided last under this name, where that is known and not `query_id`."""

    def __init__(
        self,
        *,
        sink: str,
        micro_batch_id: int,
        query_id: str,
        decided_query_id: str | None = None,
        versioned: bool = False,
        is_derived: bool = False,
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.query_id = query_id
        self.decided_query_id = decided_query_id
        gone = (
            "its consumer groups are gone (deleted, idle for longer than the brokers' offsets.retention.minutes, or "
            "the commit topic was deleted)"
        )
        if versioned:
            reason = f"it is the first under this name and not 0, or {gone}"
            if decided_query_id is not None:
                reason = f"the name is a stream's transactionalIdPrefix ({decided_query_id}); use another"
            message = (
                f"nothing is known of what txnAppId {sink!r} committed before version {micro_batch_id}: {reason}. "
                f"{WRITE_STOPPED} If version {micro_batch_id} cannot be in the topic already, write it once with "
                "allowLostState=true."
            )
        else:
            reason = f"{gone}, or the transactionalIdPrefix is a new one"
            if decided_query_id is not None:
                named = "transactionalIdPrefix is not set, and the name was derived from the checkpoint; both have it"
                reason = (
                    f"the last that was committed under this name is query {decided_query_id}'s. Two queries need two "
                    f"names ({named if is_derived else 'transactionalIdPrefix; both have this one'}). Stop that query, "
                    "or set a transactionalIdPrefix of its own for one of the two; if it has ended, this one's "
                    "checkpoint is from before it"
                )
            message = (
                f"nothing is known of what query {query_id} committed as sink {sink!r} before micro-batch "
                f"{micro_batch_id}: {reason}. {STOPPED} If micro-batch {micro_batch_id} cannot be in the topics "
                "already, start once with allowLostState=true."
            )
        super().__init__(message)


class MarkersLost(ExactlyOnceError):
    """`slots`: of `decided_micro_batch_id`, which was decided; nothing proves whether they are visible."""

    def __init__(
        self,
        *,
        sink: str,
        micro_batch_id: int,
        decided_micro_batch_id: int,
        slots: Sequence[int],
        versioned: bool = False,
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.decided_micro_batch_id = decided_micro_batch_id
        self.slots = tuple(slots)
        unit = "version" if versioned else "micro-batch"
        happened = (
            f"{_run(sink, micro_batch_id, versioned)} is not written: whether {_slots(slots)} of {unit} "
            f"{decided_micro_batch_id}, the last that was decided, can be read is not known. The consumer groups with "
            "their markers were deleted or have expired (offsets.retention.minutes), and the brokers do not remember "
            "how their transactions ended."
        )
        look = f"Look in the topics, with read_committed, for the rows of {unit} {decided_micro_batch_id}."
        once = "write it once" if versioned else "start once"
        if micro_batch_id == decided_micro_batch_id:
            behind = "write the next version" if versioned else "start behind them, with a new checkpoint"
            advice = f"If they are not there, {once} with allowLostState=true. If they are, {behind}."
        else:
            first = (
                f"write version {decided_micro_batch_id} with them again first"
                if versioned
                else f"restore the checkpoint to before {decided_micro_batch_id}"
            )
            advice = f"If they are there, {once} with allowLostState=true. If they are not, {first}."
        advice = f"{WRITE_STOPPED if versioned else STOPPED} {look} {advice}"
        super().__init__(f"{happened} {advice}")


class FingerprintsLost(ExactlyOnceError):
    """`slots`: visible; whether this run has their rows cannot be told."""

    def __init__(self, *, sink: str, micro_batch_id: int, slots: Sequence[int], versioned: bool = False) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.slots = tuple(slots)
        once = "write it once" if versioned else "start once"
        super().__init__(
            f"{_run(sink, micro_batch_id, versioned)} comes again, and {_slots(slots)} can be read already. Whether "
            "this run has the same rows is not known: the consumer groups with their fingerprints were deleted or have "
            f"expired (offsets.retention.minutes). {WRITE_STOPPED if versioned else STOPPED} If its code, inputs and "
            f"number of partitions are the same, {once} with allowLostState=true: these slots are not written again."
        )


class LeaderDisagrees(ExactlyOnceError):
    """A partition's leader has other rows in a slot's transaction than those its task was told are in the log.
    `first_offset`: the rows of the attempt begin here, None where no answer said; `open_since_offset`: what the leader
    has open of their transaction begins there, None where it has nothing open."""

    def __init__(
        self,
        *,
        micro_batch_id: int,
        topic: str,
        partition: int,
        transactional_id: str,
        open_since_offset: int | None,
        first_offset: int | None,
    ) -> None:
        self.micro_batch_id = micro_batch_id
        self.topic = topic
        self.partition = partition
        self.transactional_id = transactional_id
        self.open_since_offset = open_since_offset
        self.first_offset = first_offset
        super().__init__(f"micro-batch {micro_batch_id} was not committed: {self._disagreement()} {NOTHING_VISIBLE}")

    def _disagreement(self) -> str:
        """What the leader has, how that comes, and what becomes of it."""
        raise AssertionError(f"{type(self).__name__} says nothing")


class AbortedRowsOpen(LeaderDisagrees):
    """More: a commit would make rows of an earlier attempt visible as well."""

    def _disagreement(self) -> str:
        return (
            f"the leader of {self.topic}-{self.partition} has transaction {self.transactional_id!r} open since offset "
            f"{self.open_since_offset}, and the task's rows begin at {self.first_offset}. It did not hear of the end "
            "of an earlier attempt (KAFKA-20734), whose rows a commit would make visible as well. The sink aborts both."
        )


class PreparedRowsGone(LeaderDisagrees):
    """Fewer: a commit would leave acknowledged rows out."""

    def _disagreement(self) -> str:
        since = self.open_since_offset
        has = "nothing" if since is None else f"only what begins at offset {since}"
        return (
            f"acknowledged rows of transaction {self.transactional_id!r}, which begin at offset {self.first_offset} of "
            f"{self.topic}-{self.partition}, are in it no more: its coordinator has it open, and the partition's "
            f"leader {has}. Somebody aborted it on the leader (kafka-transactions.sh abort), or an unclean leader "
            "election lost them. The sink aborts the rest."
        )


class HangingTransaction(ExactlyOnceError):
    """`reason`: why it could not be ended here. `command`: what ends it."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        transactional_id: str,
        producer_id: int,
        start_offset: int,
        reason: str,
        command: str,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.start_offset = start_offset
        self.reason = reason
        self.command = command
        super().__init__(
            f"transaction {transactional_id!r} is committed, and the leader of {topic}-{partition} still has it open "
            f"(KAFKA-20734; producer id {producer_id}): read_committed readers see nothing from offset {start_offset} "
            f"on. The sink could not end it there: {reason}. {NOT_RECORDED} Never abort it: its rows are committed, "
            f"and kafka-transactions.sh abort would take them away for good. Add the ACL CLUSTER ALTER for "
            f"{PRINCIPAL}, or have one that has it run: {command}"
        )


class VerificationRefused(ExactlyOnceError):
    """`committed`: whether that is about a micro-batch that is, or about one that would have been next."""

    def __init__(
        self, *, sink: str, micro_batch_id: int, topic: str, partition: int, code: int, name: str, committed: bool
    ) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.topic = topic
        self.partition = partition
        self.code = code
        is_committed = "is committed, and whether read_committed readers see its rows"
        is_not = "was not committed, as whether rows of an earlier attempt would become visible with it"
        super().__init__(
            f"micro-batch {micro_batch_id} of sink {sink!r} {is_committed if committed else is_not} on "
            f"{topic}-{partition} could not be checked: DescribeProducers was refused: {name} (error {code}). Add the "
            f"ACL TOPIC READ on {topic} for {PRINCIPAL}. {NOT_RECORDED if committed else NOTHING_VISIBLE}"
        )


class DecisionPending(ExactlyOnceError):
    """`command`: what finishes the decision."""

    def __init__(self, *, sink: str, micro_batch_id: int, slots: Sequence[int], command: str) -> None:
        self.sink = sink
        self.micro_batch_id = micro_batch_id
        self.slots = tuple(slots)
        self.command = command
        super().__init__(
            f"nothing of sink {sink!r} was aborted: its micro-batch {micro_batch_id} is decided, and {_slots(slots)} "
            "not committed yet. Aborting them would leave the micro-batch visible in part. Nothing is lost; the "
            f"next start of the query, or of the write under its txnAppId, commits them, and so does: {command}"
        )


class TransactionRefused(ExactlyOnceError):
    def __init__(self, *, transactional_id: str, api: str, code: int, name: str) -> None:
        self.transactional_id = transactional_id
        self.api = api
        self.code = code
        super().__init__(
            f"{api} for {transactional_id!r} was refused: {name} (error {code}). {TRANSACTION_ADVICE.get(name, '')}"
            f"{NOTHING_VISIBLE}"
        )

    def in_transaction(
        self, *, committing: bool = False, write_kind: WriteKind = WriteKind.STREAM, repair: str = ""
    ) -> Self:
        if committing:
            # It may have come after the decision.
            self._replace(NOTHING_VISIBLE, UNDECIDED)
        return super().in_transaction(committing=committing, write_kind=write_kind, repair=repair)


TRANSACTION_ADVICE = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Add the ACL TRANSACTIONAL_ID WRITE and DESCRIBE, prefixed with the "
    "transactionalIdPrefix, for this principal. Without it what is open cannot be ended either, and read_committed "
    "readers see nothing behind it until the next start with it, or kafka.transaction.timeout.ms: pykafka "
    "transactions describe --prefix <transactionalIdPrefix> tells which. ",
    "GROUP_AUTHORIZATION_FAILED": "Add the ACL GROUP READ, prefixed with the transactionalIdPrefix, for this "
    "principal. ",
    "TOPIC_AUTHORIZATION_FAILED": "Add the ACL TOPIC READ on the commit topic for this principal. ",
    "INVALID_TRANSACTION_TIMEOUT": "kafka.transaction.timeout.ms is above the brokers' transaction.max.timeout.ms. ",
    "UNKNOWN_TOPIC_OR_PARTITION": "The commit topic (option commitTopic) does not exist. ",
    "OFFSET_METADATA_TOO_LARGE": "The brokers' offset.metadata.max.bytes is below 4096, the default. ",
}


class UnreadableState(ExactlyOnceError):
    def __init__(self, *, group: str, found: str) -> None:
        self.group = group
        super().__init__(
            f"consumer group {group!r} holds {found[:80]!r}, which this version did not write: another program uses "
            f"the group's name, or a newer version of this sink wrote it. {STOPPED} Use another transactionalIdPrefix "
            "or txnAppId, or the newer version."
        )


# --- Spark ------------------------------------------------------------------------------------------------------------


class ReceiptNotWritten(ExactlyOnceError):
    """Before the decision, so nothing is visible yet."""

    def __init__(self, *, path: str, reason: str) -> None:
        self.path = path = redacted(path)
        self.reason = reason
        super().__init__(
            f"the receipt {path} cannot be written, and nothing becomes visible without one: {reason}. Correct "
            f"that, or remove receiptsPath. {NOTHING_VISIBLE}"
        )


class WorkerExhausted(KafkaSinkError):
    """`what`: "memory", "threads" or "open files"."""

    def __init__(self, *, what: str, reason: str, advice: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(f"this Python worker has no more {what}: {reason}. {advice} {REPLAY}")


class CommitRefused(KafkaSinkError):
    def __init__(self, *, micro_batch_id: int | None, missing: Sequence[int], tasks: int) -> None:
        self.micro_batch_id = micro_batch_id
        self.missing = tuple(missing)
        what = "batch write" if micro_batch_id is None else f"micro-batch {micro_batch_id}"
        super().__init__(
            f"{what} is not committed: {len(self.missing)} of {tasks} tasks (Spark partitions "
            f"{', '.join(map(str, self.missing[:10]))}) ended without a receipt for their rows. A continuous trigger "
            f"never delivers rows to a Python sink: use processingTime or availableNow. {REPLAY}"
        )


class WriteModeUnsupported(KafkaSinkError):
    def __init__(self) -> None:
        super().__init__(
            "a Kafka topic cannot be overwritten: use .mode('append') for a batch write, outputMode('append') for a "
            f"stream (for update mode, kafka_sink.to_kafka). {NOTHING_SENT}"
        )


class ReadUnsupported(KafkaSinkError):
    def __init__(self) -> None:
        super().__init__(
            'format("pykafka") has no source: it writes to Kafka and does not read, so no table can be made of it. '
            "No row was read or sent. Read with Spark's own source: "
            'spark.read.format("kafka"), spark.readStream.format("kafka").'
        )


class TableUnsupported(KafkaSinkError):
    def __init__(self) -> None:
        super().__init__(
            "the write belongs to a larger statement, such as saveAsTable or CREATE TABLE ... AS SELECT, which would "
            f"leave a table that cannot be read. {NOTHING_SENT} "
            'Write with df.write.format("pykafka").mode("append").save().'
        )


class ContinuousTriggerUnsupported(KafkaSinkError):
    def __init__(self) -> None:
        super().__init__(
            "the stream has a continuous trigger, under which Spark hands no rows to a Python sink. Use "
            f"trigger(processingTime=...) or trigger(availableNow=True). {NOTHING_SENT}"
        )


class InterceptorFailed(KafkaSinkError):
    """`problem` has types and counts, not what the interceptor said: that may quote a row. It is the `__cause__`."""

    def __init__(self, *, interceptor: str, problem: str) -> None:
        self.interceptor = interceptor
        self.problem = problem
        super().__init__(
            f"interceptor {interceptor}: {problem}. The Arrow batch that it was given is not sent, not even as it was "
            f"before the interceptor. Correct the interceptor, or register the sink without it. {REPLAY}"
        )


# --- the local broker -------------------------------------------------------------------------------------------------


class LocalKafkaError(KafkaSinkError):
    """The local broker for development and tests could not do what it was asked."""


class JavaNotFound(LocalKafkaError):
    def __init__(self, *, searched: str) -> None:
        self.searched = searched
        super().__init__(
            f"no Java for the local broker: {searched}. Install Java 17 or newer (on Debian or Ubuntu: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME to one."
        )


class JavaVersionUnsupported(LocalKafkaError):
    def __init__(self, *, java: str, major: int, minimum: int) -> None:
        self.java = java
        self.major = major
        self.minimum = minimum
        super().__init__(
            f"{java} is Java {major}; the local broker needs {minimum} or newer. Install one and set JAVA_HOME to it."
        )


class IvyNotFound(LocalKafkaError):
    def __init__(self, *, searched: str) -> None:
        self.searched = searched
        super().__init__(
            f"no Ivy to fetch the local broker's jars with: {searched}. The jar comes with the PyPI package pyspark: "
            "install that in this Python."
        )


class DownloadFailed(LocalKafkaError):
    def __init__(self, *, kafka_version: str, reason: str) -> None:
        self.kafka_version = kafka_version
        self.reason = reason
        super().__init__(
            f"the jars of Kafka {kafka_version} could not be fetched: {reason}. They are needed once and then kept: "
            f"check "
            "the network and try again; what has been fetched is not fetched again. Java takes a proxy from "
            "JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=... -Dhttps.proxyPort=...), not from https_proxy."
        )


class DiskFull(LocalKafkaError):
    def __init__(self, *, directory: str) -> None:
        self.directory = directory
        super().__init__(
            f"no space left (or quota exceeded) in {directory}. The jars of a Kafka version take 100 MB while they "
            f"are "
            "fetched, an idle broker 1 MB. Free some, or name another place: --dir or LocalKafka(dir=...) for data, "
            "TMPDIR for temporary data, XDG_CACHE_HOME for jars."
        )


class DirectoryUnusable(LocalKafkaError):
    def __init__(self, *, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory} cannot be used by the local broker: {reason}. Name another folder.")


class HostExhausted(LocalKafkaError):
    """`what`: "memory", "threads" or "open files"."""

    def __init__(self, *, what: str, reason: str) -> None:
        self.what = what
        super().__init__(
            f"the local broker was not started, as this process has no more {what}: {reason}. Raise that limit, or "
            "stop what uses it up."
        )


class BrokerStartFailed(LocalKafkaError):
    def __init__(self, *, node: int, reason: str, port_taken: bool, log_tail: str) -> None:
        self.node = node
        self.reason = reason
        self.port_taken = port_taken
        self.log_tail = log_tail
        hint = " Another process took its port: try again." if port_taken else ""
        super().__init__(
            f"node {node} of the local cluster did not start: {reason}.{hint} The end of its "
            f"log:\n{log_tail or '(empty)'}"
        )


class BrokerDied(LocalKafkaError):
    def __init__(self, *, node: int, status: int, log_tail: str) -> None:
        self.node = node
        self.status = status
        self.log_tail = log_tail
        super().__init__(
            f"the broker of node {node} of the local cluster ended by itself, with status {status} (137 is kill -9, "
            f"often "
            f"by a system short of memory). Its topics are gone unless the cluster has a --dir of its own. The end of "
            f"its "
            f"log:\n{log_tail or '(empty)'}"
        )


class ToolFailed(LocalKafkaError):
    def __init__(self, *, tool: str, reason: str, output_tail: str) -> None:
        self.tool = tool
        self.reason = reason
        self.output_tail = output_tail
        super().__init__(f"Kafka's {tool} {reason}. The end of its output:\n{output_tail or '(empty)'}")
