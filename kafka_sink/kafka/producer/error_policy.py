"""Decides what to do with an error code, as a pure function of the API and the code.

`error_codes` lists which codes are retriable and which mean stale metadata. This module has the exceptions of Produce
and InitProducerId. An unknown code is never retried, because the client does not know what it requires.

Source: experiments of this project, and Kafka's Sender.completeBatch.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning


class Action(Enum):
    ACKNOWLEDGE = auto()
    """The leader has the batch."""
    ACKNOWLEDGE_WITHOUT_OFFSET = auto()
    """The leader already had the batch and no longer knows its offset."""
    RETRY = auto()
    """Send the same bytes again, after the backoff."""
    REFRESH_AND_RETRY = auto()
    """As RETRY, and request metadata, because the partition may have another leader."""
    CHECK_SEQUENCE = auto()
    """RETRY while an earlier batch is unanswered, which can cause the gap. Otherwise FAIL."""
    SPLIT = auto()
    """Send the records in smaller batches. FAIL if the batch has only one record."""
    LEAVE_OUT = auto()
    """Send the batch without the records that the leader named, if the write leaves such records out. Otherwise
    FAIL."""
    FAIL = auto()
    """A retry cannot help."""


_E = ErrorCode

# Produce: codes whose action differs from the general meaning of the code.
PRODUCE: dict[int, Action] = {
    _E.NONE: Action.ACKNOWLEDGE,
    _E.DUPLICATE_SEQUENCE_NUMBER: Action.ACKNOWLEDGE_WITHOUT_OFFSET,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.CHECK_SEQUENCE,
    _E.MESSAGE_TOO_LARGE: Action.SPLIT,
    _E.INVALID_TIMESTAMP: Action.LEAVE_OUT,
    _E.INVALID_RECORD: Action.LEAVE_OUT,
    # This broker has older metadata than the client, so another broker may lead.
    _E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
}
# Produce: not retried, although retriable in general. Leaders do not answer Produce with these codes.
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

# Leaders return these codes only before they append. NOT_LEADER_OR_FOLLOWER is not among them: a leader also returns it
# when it loses leadership while replicas fetch the batch (DelayedProduce).
NOT_WRITTEN = frozenset({
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.NOT_ENOUGH_REPLICAS, _E.CONCURRENT_TRANSACTIONS, _E.MESSAGE_TOO_LARGE,
    _E.INVALID_TIMESTAMP, _E.INVALID_RECORD,
})  # fmt: skip

_BAD_ROWS = (
    "Or set badRows=drop or deadLetter to leave such rows out. With the ACL TOPIC DESCRIBE_CONFIGS they are found "
    "before they are sent."
)

# The ACL whose absence causes the code.
ACLS: dict[int, str] = {
    _E.TOPIC_AUTHORIZATION_FAILED: "TOPIC WRITE on this topic",
    _E.CLUSTER_AUTHORIZATION_FAILED: "CLUSTER IDEMPOTENT_WRITE",
}
# What a user can do about a batch that was refused with the code.
ADVICE: dict[int, str] = {
    _E.RECORD_LIST_TOO_LARGE: "The topic's segment.bytes is below kafka.batch.size: lower the option.",
    _E.TOPIC_AUTHORIZATION_FAILED: "It implies DESCRIBE.",
    _E.CLUSTER_AUTHORIZATION_FAILED: "Only brokers before 2.8 ask for it.",
    _E.INVALID_TIMESTAMP: "Correct the 'timestamp' column, or change the topic's message.timestamp.before.max.ms and "
    f"message.timestamp.after.max.ms (message.timestamp.difference.max.ms before Kafka 3.6). {_BAD_ROWS}",
    _E.INVALID_RECORD: "Change the rows, or the topic's settings; a topic whose cleanup.policy has compact, for one, "
    f"needs a key in every row. {_BAD_ROWS}",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "Set kafka.compression.type to a codec that these brokers know.",
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "Set kafka.compression.type=none: Azure Event Hubs answers so for codecs that "
    "its tier does not take.",
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: "The leader lost this producer's last batches: look for an unclean election.",
    _E.UNKNOWN_PRODUCER_ID: "The leader does not know this producer: the topic was deleted and created again, or its "
    "log was truncated. Before Kafka 2.4 a leader also forgets a producer when retention removes its last records; "
    "then nothing else has to be done.",
    _E.INVALID_PRODUCER_EPOCH: "Another producer took over this producer id.",
    _E.POLICY_VIOLATION: "A policy of the cluster refuses the records; ask the operators of the cluster.",
}  # fmt: skip


def on_produce_error(code: int) -> Action:
    """Return the action for the error code of one partition in a Produce response."""
    if (action := PRODUCE.get(code)) is not None:
        return action
    means = meaning(code)
    if not means.is_retriable or code in OF_OTHER_APIS:
        return Action.FAIL
    return Action.REFRESH_AND_RETRY if means.needs_new_metadata else Action.RETRY


def on_init_producer_id_error(code: int) -> Action:
    """Return the action for the error code of an InitProducerId response."""
    if code == ErrorCode.NONE:
        return Action.ACKNOWLEDGE
    means = meaning(code)
    # Also retried: CONCURRENT_TRANSACTIONS, while an earlier transaction of the id ends.
    is_retried = means.broker_busy or means.coordinator_not_ready or code == ErrorCode.CONCURRENT_TRANSACTIONS
    return Action.RETRY if is_retried else Action.FAIL
