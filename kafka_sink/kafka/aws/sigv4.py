"""Signature version 4 of a presigned URL, for the one URL that MSK's brokers accept as a token.

Pure. The bytes are those of botocore's SigV4QueryAuth.

Source: docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html;
aws_msk_iam_sasl_signer.MSKAuthTokenProvider.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "kafka-cluster"
ACTION = "kafka-cluster:Connect"
_NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    """AWS credentials. `session_token`: None for the keys of an IAM user."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def moment(at_s: int) -> str:
    """Return seconds since 1970 as 20260131T235959Z."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))


def token(keys: Keys, region: str, *, signed_at_s: int, expires_s: int, user_agent: str) -> str:
    """Return the token: the presigned URL in base64url without padding. `signed_at_s`: seconds since 1970."""
    url = f"{_presigned(keys, region, signed_at_s, expires_s)}&{urlencode({'User-Agent': user_agent})}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _presigned(keys: Keys, region: str, signed_at_s: int, expires_s: int) -> str:
    # AWS's signers use this host in every partition.
    host = f"kafka.{region}.amazonaws.com"
    date = moment(signed_at_s)
    scope = (date[:8], region, SERVICE, "aws4_request")
    parameters = {
        "Action": ACTION,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": "/".join((keys.access_key, *scope)),
        "X-Amz-Date": date,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session_token:
        parameters["X-Amz-Security-Token"] = keys.session_token
    pairs = [f"{_encoded(name)}={_encoded(value)}" for name, value in parameters.items()]
    canonical = "\n".join(("GET", "/", "&".join(sorted(pairs)), f"host:{host}", "", "host", _NO_BODY))
    to_sign = "\n".join((ALGORITHM, date, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return f"https://{host}/?{'&'.join(pairs)}&X-Amz-Signature={signature}"


def _encoded(text: str) -> str:
    return quote(text, safe="-._~")
