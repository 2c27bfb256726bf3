from __future__ import annotations

import kafka.errors
import pytest

from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name


def test_codes_are_those_of_another_client() -> None:
    """kafka-python names exceptions, not all in Kafka's words: most must agree, a shift by one would agree in none."""
    others = {
        error.errno: error.__name__.removesuffix("Error").lower()
        for error in vars(kafka.errors).values()
        if isinstance(error, type) and isinstance(getattr(error, "errno", None), int)
    }
    agreeing = [code for code in ErrorCode if others.get(code) == code.name.replace("_", "").lower()]
    assert len(agreeing) > 60


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, "NONE"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (133, "SHARE_SESSION_LIMIT_REACHED"),
        (157, "UNKNOWN_ERROR_CODE_157"),
        (-32768, "UNKNOWN_ERROR_CODE_-32768"),
    ],
)
def test_every_code_has_a_name(code: int, name: str) -> None:
    assert error_name(code) == name
