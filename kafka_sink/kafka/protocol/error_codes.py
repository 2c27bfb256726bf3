"""Kafka's error codes by name, and the meaning of each.

A broker may be newer than this table. So the code in a response stays an int and is compared with these names.
`meaning` and `error_name` accept any int; an unknown code has the meaning NOTHING.

The meaning belongs to the code. Where an API differs, that API's module has a small set of exceptions.

Source: org.apache.kafka.common.protocol.Errors; for the meaning, the classes of its exceptions (common.errors).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of an error code, for every API."""

    is_retriable: bool = False
    """RetriableException: the same request may succeed later."""
    needs_new_metadata: bool = False
    """InvalidMetadataException: another broker may lead the partition, or the topic has another id."""
    broker_busy: bool = False
    """Any broker may return it: the request timed out, or a quota delays it."""
    coordinator_not_ready: bool = False
    """The coordinator is loading, or has moved."""
    coordinator_moved: bool = False
    """Send FindCoordinator first, then the same request."""
    fenced: bool = False
    """The sender's producer id, epoch or transaction is no longer valid."""
    denied: bool = False
    """AuthorizationException: an ACL is missing."""


NOTHING = Meaning()
_RETRIABLE = Meaning(is_retriable=True)
_STALE_METADATA = Meaning(is_retriable=True, needs_new_metadata=True)
_BROKER_BUSY = Meaning(is_retriable=True, broker_busy=True)
_COORDINATOR_LOADING = Meaning(is_retriable=True, coordinator_not_ready=True)
_COORDINATOR_MOVED = Meaning(is_retriable=True, coordinator_not_ready=True, coordinator_moved=True)
_FENCED = Meaning(fenced=True)
_DENIED = Meaning(denied=True)


class ErrorCode(enum.IntEnum):
    """Kafka's name of each code. Codes of APIs that this client does not use are included for messages."""

    meaning: Meaning

    def __new__(cls, code: int, meaning: Meaning = NOTHING) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2, _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, _STALE_METADATA
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5, _STALE_METADATA
    NOT_LEADER_OR_FOLLOWER = 6, _STALE_METADATA
    REQUEST_TIMED_OUT = 7, _BROKER_BUSY
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9, _STALE_METADATA
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13, _STALE_METADATA
    COORDINATOR_LOAD_IN_PROGRESS = 14, _COORDINATOR_LOADING
    COORDINATOR_NOT_AVAILABLE = 15, _COORDINATOR_MOVED
    NOT_COORDINATOR = 16, _COORDINATOR_MOVED
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19, _RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRIABLE
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29, _DENIED
    GROUP_AUTHORIZATION_FAILED = 30, _DENIED
    CLUSTER_AUTHORIZATION_FAILED = 31, _DENIED
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41, _RETRIABLE
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47, _FENCED
    INVALID_TXN_STATE = 48, _FENCED
    INVALID_PRODUCER_ID_MAPPING = 49, _FENCED
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51, _RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _DENIED
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56, _STALE_METADATA
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _DENIED
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRIABLE
    LISTENER_NOT_FOUND = 72, _STALE_METADATA
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74, _STALE_METADATA
    UNKNOWN_LEADER_EPOCH = 75, _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78, _RETRIABLE
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _STALE_METADATA
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _STALE_METADATA
    ELECTION_NOT_NEEDED = 84, _STALE_METADATA
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88, _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, _BROKER_BUSY
    PRODUCER_FENCED = 90, _FENCED
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100, _STALE_METADATA
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103, _STALE_METADATA
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRIABLE
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122, _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRIABLE
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRIABLE


_MEANINGS = {code.value: code.meaning for code in ErrorCode}


def meaning(code: int) -> Meaning:
    """Return the meaning of `code`; NOTHING if it is newer than this table."""
    return _MEANINGS.get(code, NOTHING)


def error_name(code: int) -> str:
    """Return Kafka's name of `code`; UNKNOWN_ERROR_CODE_<code> if it is newer than this table."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_ERROR_CODE_{code}"


def error_text(code: int) -> str:
    """Return a code as messages show it."""
    return f"{error_name(code)} (error {code})"
