"""Signed URLs, byte for byte as botocore signs them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import botocore.auth
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.aws.sigv4 import Keys, token

NOW_S = 1_769_903_999  # 2026-01-31T23:59:59Z
USER_AGENT = "pyspark-pykafka/0.1.0+local build"
REGIONS = ("eu-west-1", "us-east-1", "ap-southeast-2", "us-gov-west-1", "cn-north-1", "us-iso-east-1", "mx-central-1")


def by_botocore(keys: Keys, region: str, expires_s: int, now_s: int, user_agent: str) -> str:
    """The token as AWS's own signer for Python makes it, line by line."""
    credentials = Credentials(keys.access_key, keys.secret_key, keys.session_token)
    signer = SigV4QueryAuth(credentials, "kafka-cluster", region, expires=expires_s)
    request = AWSRequest(
        method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(now_s, UTC))
        signer.add_auth(request)
    request.params = {"User-Agent": user_agent}
    return base64.urlsafe_b64encode(request.prepare().url.encode()).decode().rstrip("=")


def ours(keys: Keys, region: str, expires_s: int = 900, now_s: int = NOW_S, user_agent: str = USER_AGENT) -> str:
    return token(keys, region, signed_at_s=now_s, expires_s=expires_s, user_agent=user_agent)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("session_token", [None, "IQoJb3JpZ2luX2Vj//+8=" * 60])
def test_as_botocore_in_every_region(region: str, session_token: str | None) -> None:
    keys = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session_token)
    assert ours(keys, region) == by_botocore(keys, region, 900, NOW_S, USER_AGENT)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)


@given(TEXT, TEXT, st.none() | TEXT, st.integers(1, 900), st.integers(0, 4_102_444_800), TEXT)
def test_as_botocore_whatever_is_in_the_keys(
    access_key: str, secret_key: str, session_token: str | None, expires_s: int, now_s: int, user_agent: str
) -> None:
    keys = Keys(access_key, secret_key, session_token)
    assert ours(keys, "eu-west-1", expires_s, now_s, user_agent) == by_botocore(
        keys, "eu-west-1", expires_s, now_s, user_agent
    )


def test_a_token_is_one_of_sasl() -> None:
    """RFC 6750: no padding, and none of the characters that end a pair of OAUTHBEARER."""
    for length in range(1, 9):
        assert ours(Keys("A" * length, "s"), "eu-west-1").replace("-", "a").replace("_", "a").isalnum()
    assert "canary" not in repr(Keys("canary-a", "canary-s", "canary-t"))
