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
    └── InterceptorFailed            an interceptor raised, or returned what is not its rows

`LocalKafkaError` and those below it live with the local broker, in `kafka_sink.broker.errors`.

An error is facts as fields (topic, partition, broker, sizes; never a payload, never a secret; printable and cut,
whoever said them). Whoever knows more of the write on the way up, sets more fields: `in_transaction`, `of_principal`.
`base.py` makes the message of them, in three parts: what happened, what it means for the data, and what to do; the
second is a table in `wording.py`.
"""

from __future__ import annotations

from kafka_sink.errors.base import (
    Explanation,
    KafkaSinkError,
    Parts,
    named_principal,
)
from kafka_sink.errors.cluster import (
    AuthenticationFailed,
    BrokersUnreachable,
    BrokerUnavailable,
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
from kafka_sink.errors.columns import (
    ColumnNotInSchema,
    ColumnTypeMismatch,
    DuplicateColumn,
    MissingColumn,
    NameNotAllowed,
    SchemaError,
    TypeNotMapped,
    UnexpectedColumn,
)
from kafka_sink.errors.delivery import (
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
    DeadLetterTopicNamed,
    HeaderKeyNotUtf8,
    HeaderKeyNull,
    PartitionOutOfRange,
    RecordTooLarge,
    TimestampOutOfRange,
    TooManyBadRows,
    TopicNameInvalid,
    TopicNull,
    ValueNotInSchema,
)
from kafka_sink.errors.spark import (
    CommitRefused,
    ContinuousTriggerUnsupported,
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
    TornBatch,
    TransactionRefused,
    TransactionTimedOut,
    UnreadableState,
    VerificationRefused,
    WrittenOtherwise,
    advice_on_refusal,
)
from kafka_sink.errors.wording import (
    DataState,
    WriteKind,
)

__all__ = [
    "REFUSALS", "AbortedRowsOpen", "AnotherCheckpoint", "AttemptFenced", "AuthenticationFailed", "BadRow",
    "BrokerUnavailable", "BrokersUnreachable", "BufferExhausted", "CheckpointBehind", "CheckpointUnusable",
    "ClusterChanged", "ClusterError", "ColumnNotInSchema", "ColumnTypeMismatch", "CommitOutcomeUnknown",
    "CommitRefused", "CommitTopicMissing", "CommitTopicTooSmall", "CommittedDataMissing", "ConfigError",
    "ContinuousTriggerUnsupported", "CoordinatorRefused", "CoordinatorUnavailable", "DataState",
    "DeadLetterTopicNamed", "DecisionPending", "DeliveryError", "DeliveryTimeout", "DriverFenced",
    "DuplicateColumn", "ExactlyOnceError", "Explanation", "FingerprintsLost", "HangingTransaction",
    "HeaderKeyNotUtf8", "HeaderKeyNull", "InterceptorFailed", "InvalidArgument", "InvalidOption", "KafkaSinkError",
    "LeaderDisagrees", "LeaderUnavailable", "MarkersLost", "MissingColumn", "MissingOption", "NameNotAllowed",
    "NonDeterministicReplay", "NotPlanned", "PartitionOutOfRange", "Parts", "PreparedRowsGone", "ProduceRejected",
    "ProducerClosed", "ProducerIdRefused", "ProtocolError", "QuotaOutlastsTransaction", "RateOutlastsTransaction",
    "ReadUnsupported", "ReceiptMismatch", "ReceiptNotWritten", "ReceiptsPathUnusable", "RecordTooLarge",
    "RecordsUnreadable", "RefusedOption", "RegistryAnswerUnusable", "RegistryError", "RegistryExtraMissing",
    "RegistryRefused", "RegistryUnreachable", "SaslRefused", "SchemaError", "SchemaIncompatible",
    "SchemaNotRegistered", "SchemaUnreadable", "StateExpired", "TableUnsupported", "TimestampOutOfRange",
    "TlsExpected", "TlsFailed", "TokenUnavailable", "TooManyBadRows", "TopicAuthorizationFailed",
    "TopicNameInvalid", "TopicNotCreated", "TopicNotFound", "TopicNull", "TopicRecreated", "TornBatch",
    "TransactionRefused", "TransactionTimedOut", "TypeNotMapped", "UnexpectedColumn", "UnknownOption",
    "UnreadableState", "ValueNotInSchema", "VerificationRefused", "WorkerExhausted", "WriteKind",
    "WriteModeUnsupported", "WriteWouldFail", "WrittenOtherwise", "advice_on_refusal", "named_principal",
]  # fmt: skip
