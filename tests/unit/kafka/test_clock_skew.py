"""A process's clock is an hour off an identity provider's: it still has a token for each connection."""

from __future__ import annotations

import base64
import json

import pytest

from kafka_sink.kafka.oauth import Tokens, lifetime_of

HOUR_S = 3_600
NOW_S = 1_760_000_000


def jwt(expires_s: int) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s}).encode()).rstrip(b"=").decode()
    return f"head.{claims}.signature"


@pytest.mark.parametrize(("skew_s", "fetches"), [(HOUR_S, 3), (2 * HOUR_S, 3), (0, 1), (-HOUR_S, 1)])
def test_a_token_is_there_whatever_our_clock_says(skew_s: int, fetches: int) -> None:
    """With a clock that is ahead the token seems to have expired: it is used, and fetched for each connection."""
    token, fetched = jwt(NOW_S + HOUR_S), []

    def fetch() -> tuple[str, float]:
        fetched.append(token)
        return token, lifetime_of(token, NOW_S + skew_s)

    tokens = Tokens(fetch, clock_s=lambda: 5.0)
    assert [tokens.current() for _ in range(3)] == [token] * 3
    assert len(fetched) == fetches
