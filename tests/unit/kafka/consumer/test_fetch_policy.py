"""What each error code of an answer asks for. The codes are those that brokers answer to readers with."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.consumer.fetch_policy import Action, on_read_error
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# By number, as brokers send them.
EXPECTED = {
    Action.TAKE: {0},
    Action.LOOK_FOR_BOUNDS: {1},
    Action.DENIED: {29},
    Action.REFRESH_AND_RETRY: {3, 5, 6, 9, 56, 74, 75, 100, 103},
    Action.RETRY: {-1, 7, 70, 71, 78, 89, 106},
    Action.FAIL: {2, 31, 35, 42, 43, 76, 136, 500, -2},
}


@pytest.mark.parametrize(
    ("action", "code"), [(action, code) for action, codes in EXPECTED.items() for code in sorted(codes)]
)
def test_a_code_of_readers(action: Action, code: int) -> None:
    assert on_read_error(code) is action


@pytest.mark.parametrize("code", list(ErrorCode))
def test_only_success_is_taken(code: ErrorCode) -> None:
    assert (on_read_error(code) is Action.TAKE) == (code == ErrorCode.NONE)
