"""What to do with an error code, as a pure function of the API and the code.

Source: kafka-facts of this project's experiments, Kafka's Errors.java (which codes are retriable, which mean that the
metadata is stale) and Sender.completeBatch. A code nobody knows is never retried: what it asks for is unknown.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.kafka.protocol.error_codes import ErrorCode


class Action(Enum):
    ACKNOWLEDGE = auto()
    """The leader has the batch."""
    ACKNOWLEDGE_WITHOUT_OFFSET = auto()
    """The leader had the batch before and no longer knows where."""
    RETRY = auto()
    """Send the same bytes again, after the backoff."""
    REFRESH_AND_RETRY = auto()
    """The same, and ask for metadata: the leader may be another one."""
    CHECK_SEQUENCE = auto()
    """RETRY while a batch before this one is unanswered (then the gap is its doing), else FAIL."""
    SPLIT = auto()
    """Send the records in smaller batches; FAIL for a record alone."""
    LEAVE_OUT = auto()
    """Send the batch without the records that the leader names, where they are to be left out; else FAIL."""
    FAIL = auto()
    """Retrying cannot help."""


_E = ErrorCode

PRODUCE: dict[int, Action] = {
    _E.NONE: Action.ACKNOWLEDGE,
    _E.DUPLICATE_SEQUENCE_NUMBER: Action.ACKNOWLEDGE_WITHOUT_OFFSET,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.CHECK_SEQUENCE,
    _E.MESSAGE_TOO_LARGE: Action.SPLIT,
    _E.INVALID_TIMESTAMP: Action.LEAVE_OUT,
    _E.INVALID_RECORD: Action.LEAVE_OUT,
    _E.CORRUPT_MESSAGE: Action.RETRY,
    _E.REQUEST_TIMED_OUT: Action.RETRY,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Action.RETRY,
    _E.NOT_COORDINATOR: Action.RETRY,
    _E.NOT_ENOUGH_REPLICAS: Action.RETRY,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Action.RETRY,
    _E.CONCURRENT_TRANSACTIONS: Action.RETRY,
    _E.THROTTLING_QUOTA_EXCEEDED: Action.RETRY,
    _E.UNKNOWN_TOPIC_OR_PARTITION: Action.REFRESH_AND_RETRY,
    _E.LEADER_NOT_AVAILABLE: Action.REFRESH_AND_RETRY,
    _E.NOT_LEADER_OR_FOLLOWER: Action.REFRESH_AND_RETRY,
    _E.NETWORK_EXCEPTION: Action.REFRESH_AND_RETRY,
    _E.KAFKA_STORAGE_ERROR: Action.REFRESH_AND_RETRY,
    _E.FENCED_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
    _E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
    _E.UNKNOWN_TOPIC_ID: Action.REFRESH_AND_RETRY,
    _E.INCONSISTENT_TOPIC_ID: Action.REFRESH_AND_RETRY,
}

# A leader answers so before it appends, and never after: NOT_LEADER_OR_FOLLOWER, for one, it also says when it stops
# leading while replicas fetch a batch (DelayedProduce).
NOT_WRITTEN = frozenset({
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.NOT_ENOUGH_REPLICAS, _E.CONCURRENT_TRANSACTIONS, _E.MESSAGE_TOO_LARGE,
    _E.INVALID_TIMESTAMP, _E.INVALID_RECORD,
})  # fmt: skip

INIT_PRODUCER_ID: dict[int, Action] = {
    _E.NONE: Action.ACKNOWLEDGE,
    _E.REQUEST_TIMED_OUT: Action.RETRY,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Action.RETRY,
    _E.NOT_COORDINATOR: Action.RETRY,
    _E.CONCURRENT_TRANSACTIONS: Action.RETRY,
    _E.THROTTLING_QUOTA_EXCEEDED: Action.RETRY,
}

_BAD_ROWS = (
    "Or set badRows=drop or deadLetter: such rows are then left out, with the ACL TOPIC DESCRIBE_CONFIGS before they "
    "are sent."
)

ACLS: dict[int, str] = {
    _E.TOPIC_AUTHORIZATION_FAILED: "TOPIC WRITE on this topic",
    _E.CLUSTER_AUTHORIZATION_FAILED: "CLUSTER IDEMPOTENT_WRITE",
}
ADVICE: dict[int, str] = {
    _E.RECORD_LIST_TOO_LARGE: "The topic's segment.bytes is below kafka.batch.size: lower the option.",
    _E.TOPIC_AUTHORIZATION_FAILED: "It implies DESCRIBE.",
    _E.CLUSTER_AUTHORIZATION_FAILED: "Only brokers before 2.8 ask for it.",
    _E.INVALID_TIMESTAMP: "Correct the 'timestamp' column, or change the topic's message.timestamp.before.max.ms and "
    f"message.timestamp.after.max.ms (message.timestamp.difference.max.ms before Kafka 3.6). {_BAD_ROWS}",
    _E.INVALID_RECORD: "Change the rows, or the topic's settings; a topic whose cleanup.policy has compact, for one, "
    f"needs a key in every row. {_BAD_ROWS}",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "Set kafka.compression.type to a codec that these brokers know.",
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: "The leader lost this producer's last batches: look for an unclean election.",
    _E.UNKNOWN_PRODUCER_ID: "The leader forgot this producer: its log was truncated, or its retention is very short.",
    _E.INVALID_PRODUCER_EPOCH: "Another producer took over this producer id.",
    _E.POLICY_VIOLATION: "A policy of the cluster refuses the records; ask whoever runs it.",
}  # fmt: skip


def on_produce_error(code: int) -> Action:
    """For the error code of one partition in a Produce response."""
    return PRODUCE.get(code, Action.FAIL)


def on_init_producer_id_error(code: int) -> Action:
    """For the error code of an InitProducerId response."""
    return INIT_PRODUCER_ID.get(code, Action.FAIL)


def missing_acl(code: int) -> str:
    """For which a batch was refused with `code`; empty where no ACL is missing."""
    return ACLS.get(code, "")


def advice(code: int) -> str:
    """What a user can do about a batch that was refused with `code`."""
    return ADVICE.get(code, "The broker's log says more.")
