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
    │   ├── RecordUndecodable        ... by kafka_sink.registry.deserialized, on an executor
    │   ├── SchemaIdsUnknown         ... as well
    │   ├── BatchOverLimit
    │   ├── TimestampNotReadable
    │   ├── MessageFormatTooOld
    │   ├── GroupCommitFailed        ... is a warning: the stream reads on
    │   ├── TopicToReadMissing       ... when it is planned
    │   ├── PartitionToReadMissing
    │   ├── OffsetNotWritten
    │   ├── NoRecordSince
    │   ├── GroupNotReadable         ... startingGroup
    │   ├── NoCommittedOffset
    │   └── CommittedOffsetGone
    ├── FormatNotReplaced            Spark 4.0 keeps the format that it found; nothing was sent
    ├── WorkerExhausted              a worker has no more memory, threads or open files
    ├── CommitRefused                Spark asked to commit a write, and a task's receipt is missing
    ├── WriteModeUnsupported         overwrite, complete
    ├── PartitionsNotFixed           on Sail: it may fail the write after its rows are written
    ├── ReadUnsupported              CREATE TABLE: nobody could read that table
    ├── TableUnsupported             saveAsTable, CREATE TABLE ... AS SELECT
    ├── ContinuousTriggerUnsupported
    └── InterceptorFailed            an interceptor raised, or returned something other than its rows

`LocalKafkaError` and its subclasses are part of the local broker, in `kafka_sink.broker.errors`.

An error has facts as fields: topic, partition, broker, sizes, but never a payload or a secret. All facts are escaped
and cut. Callers that know more about the write add fields with `in_transaction` and `of_principal`. `base.py` makes the
message from the fields, in three parts: what happened, what it means for the data, and what to do.

A module of this folder has the errors of one area, and exports them by its `__all__`. `exhaustion.py` names what a
worker lacks, `failures.py` carries errors through Spark's text, and `quoting.py` and `redaction.py` make texts safe.
"""

# ruff: noqa: F403

from kafka_sink.errors import base, cluster, delivery, options, reading, registry, rows, spark, transactions
from kafka_sink.errors.base import *
from kafka_sink.errors.cluster import *
from kafka_sink.errors.delivery import *
from kafka_sink.errors.options import *
from kafka_sink.errors.reading import *
from kafka_sink.errors.registry import *
from kafka_sink.errors.rows import *
from kafka_sink.errors.spark import *
from kafka_sink.errors.transactions import *

# Type checkers read this form. Without it `import *` would replace the `spark` of a notebook by a module.
__all__ = []
__all__ += base.__all__
__all__ += cluster.__all__
__all__ += delivery.__all__
__all__ += options.__all__
__all__ += reading.__all__
__all__ += registry.__all__
__all__ += rows.__all__
__all__ += spark.__all__
__all__ += transactions.__all__
