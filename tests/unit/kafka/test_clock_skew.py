"""A process's clock is an hour off an identity provider's, or AWS's: it still has a token for each connection."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from kafka_sink.kafka.aws.credentials import IamLogin
from kafka_sink.kafka.aws.msk_iam import MAX_LIFETIME_S, MskIamSigner
from kafka_sink.kafka.aws.sigv4 import moment
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


@pytest.mark.parametrize("skew_s", [HOUR_S, 0, -HOUR_S])
def test_a_signature_for_aws_has_our_time(skew_s: int) -> None:
    """AWS compares it with its own, and the client waits for no other clock."""
    signer = MskIamSigner(
        IamLogin(), ("b-1.demo.x.c2.kafka.eu-west-1.amazonaws.com",),
        {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
        wall_clock_s=lambda: NOW_S + skew_s, user_agent="test",
    )  # fmt: skip
    token, lifetime_s = signer.fetch()
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert parse_qs(urlsplit(url).query)["X-Amz-Date"] == [moment(NOW_S + skew_s)]
    assert lifetime_s == MAX_LIFETIME_S
