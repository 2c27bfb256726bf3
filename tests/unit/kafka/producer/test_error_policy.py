from __future__ import annotations

from effort import each
from kafka_sink.kafka.producer.error_policy import (
    Action,
    advice,
    missing_acl,
    on_init_producer_id_error,
    on_produce_error,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# By number, as the broker sends them: transcribed from kafka-facts, not from the table under test.
RETRIED = {2, 3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 89, 100, 103}
STALE_METADATA = {3, 5, 6, 13, 56, 74, 75, 100, 103}
ADVISED = {
    18: "segment.bytes",
    29: "DESCRIBE",
    31: "before 2.8",
    32: "message.timestamp",
    43: "compression.type=none",
    44: "policy",
    45: "unclean election",
    47: "Another producer",
    59: "truncated",
    76: "compression.type",
    87: "needs a key",
}


@each("code", range(-1, 200))
def test_every_produce_code_has_one_action(code: int) -> None:
    action = on_produce_error(code)
    if code == 0:
        assert action is Action.ACKNOWLEDGE
    elif code == 46:
        assert action is Action.ACKNOWLEDGE_WITHOUT_OFFSET
    elif code == 45:
        assert action is Action.CHECK_SEQUENCE
    elif code == 10:
        assert action is Action.SPLIT
    elif code in (32, 87):
        assert action is Action.LEAVE_OUT
    elif code in STALE_METADATA:
        assert action is Action.REFRESH_AND_RETRY
    elif code in RETRIED:
        assert action is Action.RETRY
    else:
        assert action is Action.FAIL


@each("code", range(-1, 200))
def test_every_init_producer_id_code_has_one_action(code: int) -> None:
    expected = Action.ACKNOWLEDGE if code == 0 else Action.RETRY if code in {7, 14, 15, 16, 51, 89} else Action.FAIL
    assert on_init_producer_id_error(code) is expected


def test_every_action_is_asked_for_by_some_code_that_has_a_name() -> None:
    assert {on_produce_error(code) for code in ErrorCode} == set(Action)
    assert {code.value for code in ErrorCode} >= RETRIED


@each("code", range(-1, 200))
def test_advice_is_a_sentence_for_every_code(code: int) -> None:
    assert advice(code).endswith(".")


def test_what_a_user_can_do_is_said_where_there_is_something_to_do() -> None:
    assert {code: word for code, word in ADVISED.items() if word not in advice(code)} == {}
    assert {code for code in range(-1, 200) if advice(code) != advice(-1)} == ADVISED.keys()


def test_the_acl_that_is_missing_is_named() -> None:
    missing = {code: missing_acl(code) for code in range(-1, 200) if missing_acl(code)}
    assert missing == {29: "TOPIC WRITE on this topic", 31: "CLUSTER IDEMPOTENT_WRITE"}
