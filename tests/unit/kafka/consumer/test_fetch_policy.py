"""What each error code of an answer asks for. The codes are those that brokers answer to readers with."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.consumer.fetch_policy import Action, on_read_error
from kafka_sink.kafka.protocol.error_codes import ErrorCode

EXPECTED = {
    Action.TAKE: (ErrorCode.NONE,),
    Action.LOOK_FOR_BOUNDS: (ErrorCode.OFFSET_OUT_OF_RANGE,),
    Action.DENIED: (ErrorCode.TOPIC_AUTHORIZATION_FAILED,),
    Action.REFRESH_AND_RETRY: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ),
    Action.RETRY: (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ),
    Action.FAIL: (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize(("action", "code"), [(action, code) for action, codes in EXPECTED.items() for code in codes])
def test_a_code_of_readers(action: Action, code: ErrorCode) -> None:
    assert on_read_error(code) is action


@pytest.mark.parametrize("code", list(ErrorCode))
def test_only_success_is_taken(code: ErrorCode) -> None:
    assert (on_read_error(code) is Action.TAKE) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("code", [136, 500, -2])
def test_an_unknown_code_is_not_retried(code: int) -> None:
    assert on_read_error(code) is Action.FAIL
