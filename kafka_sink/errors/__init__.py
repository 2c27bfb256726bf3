"""All errors of this package, as one tree.

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
    │   ├── ColumnNotInSchema        ... a given schema does not fit
    │   └── ColumnNotRead            ... of a read
    ├── WriteWouldFail               the check before an export found a problem; nothing was sent
    ├── BadRow                       one row cannot be a Kafka record
    │   ├── RecordTooLarge
    │   ├── PartitionOutOfRange
    │   ├── TopicNull
    │   ├── TopicNameInvalid
    │   ├── HeaderKeyNull
    │   ├── HeaderKeyNotUtf8
    │   ├── TimestampOutOfRange
    │   └── ValueNotInSchema         ... found by the encoder, before the sink has the row
    ├── TooManyBadRows               more bad rows than maxBadRows or maxBadRowFraction allow
    ├── DeadLetterTopicNamed         a row names the topic that bad rows go to
    ├── RegistryError                the schema registry did not answer or refused; nothing was sent
    │   ├── RegistryExtraMissing     ... an executor may raise it after other tasks have written
    │   ├── RegistryUnreachable
    │   ├── RegistryAnswerUnusable
    │   ├── RegistryRefused
    │   ├── SchemaIncompatible
    │   ├── SchemaNotRegistered
    │   └── SchemaUnreadable
    ├── ClusterError                 the cluster did not answer or refused, before rows were sent
    │   ├── BrokersUnreachable
    │   ├── BrokerUnsupported
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
    │   ├── AcknowledgedRowsGone
    │   ├── TopicRecreated
    │   ├── BufferExhausted
    │   ├── ReceiptMismatch
    │   └── ProducerClosed
    ├── ProtocolError                a peer sent bytes that are not the Kafka protocol (handled inside:
    │   │                            the connection is closed, its requests are retried)
    │   ├── ApisMissing              ... or only a part of it: becomes BrokerUnsupported
    │   ├── TlsExpected              ... but TLS: becomes TlsFailed
    │   └── SaslRefused              ... or broke off the authentication: becomes AuthenticationFailed
    ├── ExactlyOnceError             the two-phase commit stopped; a partly visible batch is named
    │   ├── TornBatch
    │   ├── CommitOutcomeUnknown
    │   ├── NonDeterministicReplay
    │   ├── DriverFenced
    │   ├── AttemptFenced
    │   ├── AttemptReplaced
    │   ├── CommittedDataMissing
    │   ├── WrittenOtherwise
    │   ├── AnotherCheckpoint
    │   ├── CheckpointBehind
    │   ├── TransactionTimedOut
    │   ├── RateOutlastsTransaction
    │   ├── QuotaOutlastsTransaction
    │   ├── StateExpired
    │   ├── StateWentBack
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
    ├── ReadError                    the records that a read asks for, and its progress
    │   ├── OffsetsLost
    │   ├── LogBroken                ... a stream's log does not go on
    │   ├── ReadStalled
    │   ├── FetchRefused
    │   ├── PlanReused               ... a later action on a batch read
    │   ├── PlanNotNoted             ... no room for the note that tells actions apart
    │   ├── RecordsCorrupt
    │   ├── BatchOverLimit
    │   ├── TimestampNotReadable
    │   ├── MessageFormatTooOld
    │   ├── GroupCommitFailed        ... is a warning: the stream reads on
    │   ├── TopicToReadMissing       ... when it is planned
    │   ├── PartitionToReadMissing
    │   ├── OffsetNotWritten
    │   └── NoRecordSince
    ├── FormatNotReplaced            Spark 4.0 keeps the format that it found; nothing was sent
    ├── WorkerExhausted              a worker has no more memory, threads or open files
    ├── CommitRefused                Spark asked to commit a write, and a task's receipt is missing
    ├── WriteModeUnsupported         overwrite, complete
    ├── ReadUnsupported              a stream, which cannot be read yet
    ├── TableUnsupported             saveAsTable, CREATE TABLE
    ├── ContinuousTriggerUnsupported
    └── InterceptorFailed            an interceptor raised, or returned something other than its rows

`LocalKafkaError` and its subclasses are part of the local broker, in `kafka_sink.broker.errors`.

An error has facts as fields: topic, partition, broker, sizes, but never a payload or a secret. All facts are escaped
and cut. Callers that know more about the write add fields with `in_transaction` and `of_principal`. `base.py` makes the
message from the fields, in three parts: what happened, what it means for the data, and what to do. The second part
comes from a table in `wording.py`.
"""

from __future__ import annotations

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError, Parts, WriteKind, named_principal
from kafka_sink.errors.cluster import (
    AuthenticationFailed,
    BrokersUnreachable,
    BrokerUnavailable,
    BrokerUnsupported,
    ClusterChanged,
    ClusterError,
    CommitTopicMissing,
    CommitTopicTooSmall,
    CoordinatorRefused,
    CoordinatorUnavailable,
    LeaderUnavailable,
    ProducerIdRefused,
    RecordsUnreadable,
    TlsFailed,
    TokenUnavailable,
    TopicAuthorizationFailed,
    TopicNotCreated,
    TopicNotFound,
)
from kafka_sink.errors.delivery import (
    AcknowledgedRowsGone,
    ApisMissing,
    BufferExhausted,
    DeliveryError,
    DeliveryTimeout,
    ProducerClosed,
    ProduceRejected,
    ProtocolError,
    ReceiptMismatch,
    SaslRefused,
    TlsExpected,
    TopicRecreated,
)
from kafka_sink.errors.options import (
    CheckpointUnusable,
    ConfigError,
    InvalidArgument,
    InvalidOption,
    MissingOption,
    NotPlanned,
    ReceiptsPathUnusable,
    RefusedOption,
    UnknownOption,
)
from kafka_sink.errors.reading import (
    BatchOverLimit,
    ColumnNotRead,
    FetchRefused,
    GroupCommitFailed,
    LogBroken,
    LossCause,
    MessageFormatTooOld,
    NoRecordSince,
    OffsetNotWritten,
    OffsetsLost,
    PartitionToReadMissing,
    PlanNotNoted,
    PlanReused,
    ReadError,
    ReadStalled,
    RecordsCorrupt,
    TimestampNotReadable,
    TopicToReadMissing,
)
from kafka_sink.errors.registry import (
    RegistryAnswerUnusable,
    RegistryError,
    RegistryExtraMissing,
    RegistryRefused,
    RegistryUnreachable,
    SchemaIncompatible,
    SchemaNotRegistered,
    SchemaUnreadable,
)
from kafka_sink.errors.rows import (
    BadRow,
    ColumnNotInSchema,
    ColumnTypeMismatch,
    DeadLetterTopicNamed,
    DuplicateColumn,
    HeaderKeyNotUtf8,
    HeaderKeyNull,
    MissingColumn,
    NameNotAllowed,
    PartitionOutOfRange,
    RecordTooLarge,
    SchemaError,
    TimestampOutOfRange,
    TooManyBadRows,
    TopicNameInvalid,
    TopicNull,
    TypeNotMapped,
    UnexpectedColumn,
    ValueNotInSchema,
)
from kafka_sink.errors.spark import (
    CommitRefused,
    ContinuousTriggerUnsupported,
    FormatNotReplaced,
    InterceptorFailed,
    ReadUnsupported,
    TableUnsupported,
    WorkerExhausted,
    WriteModeUnsupported,
    WriteWouldFail,
)
from kafka_sink.errors.transactions import (
    REFUSALS,
    AbortedRowsOpen,
    AnotherCheckpoint,
    AttemptFenced,
    AttemptReplaced,
    CheckpointBehind,
    CommitOutcomeUnknown,
    CommittedDataMissing,
    DecisionPending,
    DriverFenced,
    ExactlyOnceError,
    FingerprintsLost,
    HangingTransaction,
    LeaderDisagrees,
    MarkersLost,
    NonDeterministicReplay,
    PreparedRowsGone,
    QuotaOutlastsTransaction,
    RateOutlastsTransaction,
    ReceiptNotWritten,
    StateExpired,
    StateWentBack,
    TornBatch,
    TransactionRefused,
    TransactionTimedOut,
    UnreadableState,
    VerificationRefused,
    WrittenOtherwise,
    advice_on_refusal,
)

__all__ = [
    "REFUSALS", "AbortedRowsOpen", "AcknowledgedRowsGone", "AnotherCheckpoint", "ApisMissing", "AttemptFenced",
    "AttemptReplaced", "AuthenticationFailed",
    "BadRow", "BatchOverLimit", "BrokerUnavailable", "BrokerUnsupported", "BrokersUnreachable", "BufferExhausted",
    "CheckpointBehind", "CheckpointUnusable", "ClusterChanged", "ClusterError", "ColumnNotInSchema",
    "ColumnNotRead", "ColumnTypeMismatch", "CommitOutcomeUnknown", "CommitRefused", "CommitTopicMissing",
    "CommitTopicTooSmall", "CommittedDataMissing", "ConfigError", "ContinuousTriggerUnsupported",
    "CoordinatorRefused", "CoordinatorUnavailable", "DataState", "DeadLetterTopicNamed", "DecisionPending",
    "DeliveryError", "DeliveryTimeout", "DriverFenced", "DuplicateColumn", "ExactlyOnceError", "Explanation",
    "FetchRefused", "FingerprintsLost", "FormatNotReplaced", "GroupCommitFailed", "HangingTransaction",
    "HeaderKeyNotUtf8", "HeaderKeyNull", "InterceptorFailed", "InvalidArgument", "InvalidOption",
    "KafkaSinkError", "LeaderDisagrees", "LeaderUnavailable", "LogBroken", "LossCause", "MarkersLost",
    "MessageFormatTooOld",
    "MissingColumn", "MissingOption", "NameNotAllowed", "NoRecordSince", "NonDeterministicReplay", "NotPlanned",
    "OffsetNotWritten", "OffsetsLost", "PartitionOutOfRange", "PartitionToReadMissing", "Parts",
    "PlanNotNoted", "PlanReused",
    "PreparedRowsGone", "ProduceRejected", "ProducerClosed", "ProducerIdRefused", "ProtocolError",
    "QuotaOutlastsTransaction", "RateOutlastsTransaction", "ReadError", "ReadStalled", "ReadUnsupported",
    "ReceiptMismatch", "ReceiptNotWritten", "ReceiptsPathUnusable", "RecordTooLarge", "RecordsCorrupt",
    "RecordsUnreadable", "RefusedOption", "RegistryAnswerUnusable", "RegistryError", "RegistryExtraMissing",
    "RegistryRefused", "RegistryUnreachable", "SaslRefused", "SchemaError", "SchemaIncompatible",
    "SchemaNotRegistered", "SchemaUnreadable", "StateExpired", "StateWentBack", "TableUnsupported",
    "TimestampNotReadable", "TimestampOutOfRange",
    "TlsExpected", "TlsFailed", "TokenUnavailable", "TooManyBadRows", "TopicAuthorizationFailed",
    "TopicNameInvalid", "TopicNotCreated", "TopicNotFound", "TopicNull", "TopicRecreated", "TopicToReadMissing",
    "TornBatch", "TransactionRefused", "TransactionTimedOut", "TypeNotMapped", "UnexpectedColumn",
    "UnknownOption", "UnreadableState", "ValueNotInSchema", "VerificationRefused", "WorkerExhausted",
    "WriteKind", "WriteModeUnsupported", "WriteWouldFail", "WrittenOtherwise", "advice_on_refusal",
    "named_principal",
]  # fmt: skip
