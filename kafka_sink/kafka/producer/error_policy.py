"""What to do with an error code, as a pure function of the API and the code.

`error_codes` has which codes are retriable and which mean stale metadata. Here are the exceptions of Produce and
InitProducerId. A code nobody knows is never retried: what it asks for is unknown.

Source: kafka-facts of this project's experiments, and Kafka's Sender.completeBatch.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning


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

# Produce: the codes that ask for something else than their meaning alone would.
PRODUCE: dict[int, Action] = {
    _E.NONE: Action.ACKNOWLEDGE,
    _E.DUPLICATE_SEQUENCE_NUMBER: Action.ACKNOWLEDGE_WITHOUT_OFFSET,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.CHECK_SEQUENCE,
    _E.MESSAGE_TOO_LARGE: Action.SPLIT,
    _E.INVALID_TIMESTAMP: Action.LEAVE_OUT,
    _E.INVALID_RECORD: Action.LEAVE_OUT,
    # This broker has older metadata than we have: another one may lead.
    _E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
}
# Produce: not retried, although retriable. Leaders do not answer Produce so.
OF_OTHER_APIS = frozenset({
    # Metadata.
    _E.REPLICA_NOT_AVAILABLE, _E.LISTENER_NOT_FOUND,
    # The controller and elections.
    _E.NOT_CONTROLLER, _E.PREFERRED_LEADER_NOT_AVAILABLE, _E.ELIGIBLE_LEADERS_NOT_AVAILABLE, _E.ELECTION_NOT_NEEDED,
    # Offsets, and the sessions of consumers.
    _E.OFFSET_NOT_AVAILABLE, _E.UNSTABLE_OFFSET_COMMIT, _E.FETCH_SESSION_ID_NOT_FOUND, _E.INVALID_FETCH_SESSION_EPOCH,
    _E.FETCH_SESSION_TOPIC_ID_ERROR, _E.SHARE_SESSION_NOT_FOUND, _E.INVALID_SHARE_SESSION_EPOCH,
    _E.SHARE_SESSION_LIMIT_REACHED,
})  # fmt: skip

# A leader answers so before it appends, and never after: NOT_LEADER_OR_FOLLOWER, for one, it also says when it stops
# leading while replicas fetch a batch (DelayedProduce).
NOT_WRITTEN = frozenset({
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.NOT_ENOUGH_REPLICAS, _E.CONCURRENT_TRANSACTIONS, _E.MESSAGE_TOO_LARGE,
    _E.INVALID_TIMESTAMP, _E.INVALID_RECORD,
})  # fmt: skip

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
    if (action := PRODUCE.get(code)) is not None:
        return action
    means = meaning(code)
    if not means.is_retriable or code in OF_OTHER_APIS:
        return Action.FAIL
    return Action.REFRESH_AND_RETRY if means.needs_new_metadata else Action.RETRY


def on_init_producer_id_error(code: int) -> Action:
    """For the error code of an InitProducerId response."""
    if code == ErrorCode.NONE:
        return Action.ACKNOWLEDGE
    means = meaning(code)
    # Also retried: CONCURRENT_TRANSACTIONS, while an earlier transaction of the id ends.
    is_retried = means.broker_busy or means.coordinator_not_ready or code == ErrorCode.CONCURRENT_TRANSACTIONS
    return Action.RETRY if is_retried else Action.FAIL


def missing_acl(code: int) -> str:
    """For which a batch was refused with `code`; empty where no ACL is missing."""
    return ACLS.get(code, "")


def advice(code: int) -> str:
    """What a user can do about a batch that was refused with `code`."""
    return ADVICE.get(code, "The broker's log says more.")
