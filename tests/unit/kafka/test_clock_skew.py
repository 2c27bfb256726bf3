"""A process's clock is an hour off AWS's: it still signs tokens, with its own time."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from kafka_sink.kafka.aws.credentials import IamLogin
from kafka_sink.kafka.aws.msk_iam import MAX_LIFETIME_S, MskIamSigner
from kafka_sink.kafka.aws.sigv4 import moment

HOUR_S = 3_600
NOW_S = 1_760_000_000


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
