"""Verifies tokens as MSK's brokers do: it computes the signature again from the URL in the token, with botocore.

It shares no code with the sink's signer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

LONGEST_S = 900
SKEW_S = 300


class Refused(Exception):
    """A token that a broker refuses, and why."""


@dataclass
class Verifier:
    """`secrets`: access key -> (secret key, session token or None, the name of the principal). `now_s`: UTC."""

    region: str
    secrets: dict[str, tuple[str, str | None, str]]
    now_s: Callable[[], float]
    seen: list[str] = field(default_factory=list)

    def verify(self, token: str) -> tuple[str, float]:
        """Return the principal and when its token expires, in seconds since 1970. Raises Refused."""
        self.seen.append(token)
        url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
        parts, parameters = urlsplit(url), dict(parse_qsl(urlsplit(url).query, strict_parsing=True))
        self._check_what_is_asked(parts.scheme, parts.netloc, parts.path, parameters)
        access_key, _, scope = parameters["X-Amz-Credential"].partition("/")
        if scope != f"{parameters['X-Amz-Date'][:8]}/{self.region}/kafka-cluster/aws4_request":
            raise Refused(f"the scope is {scope}")
        if access_key not in self.secrets:
            raise Refused("nobody has this access key")
        secret, session_token, principal = self.secrets[access_key]
        if parameters.get("X-Amz-Security-Token") != session_token:
            raise Refused("the session token is another one")
        if (
            self._signature(url, parameters, Credentials(access_key, secret, session_token))
            != parameters["X-Amz-Signature"]
        ):
            raise Refused("the signature is wrong")
        return principal, self._expiry(parameters)

    def _check_what_is_asked(self, scheme: str, host: str, path: str, parameters: Mapping[str, str]) -> None:
        if (scheme, host, path) != ("https", f"kafka.{self.region}.amazonaws.com", "/"):
            raise Refused(f"the URL is for {scheme}://{host}{path}")
        wanted = {
            "Action": "kafka-cluster:Connect",
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-SignedHeaders": "host",
        }
        for name, value in wanted.items():
            if parameters.get(name) != value:
                raise Refused(f"{name} is {parameters.get(name)}")
        if "User-Agent" not in parameters:
            raise Refused("no User-Agent")

    def _expiry(self, parameters: Mapping[str, str]) -> float:
        signed_s = datetime.strptime(parameters["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        lifetime_s = int(parameters["X-Amz-Expires"])
        if not 0 < lifetime_s <= LONGEST_S:
            raise Refused(f"it lives for {lifetime_s} s")
        if signed_s > self.now_s() + SKEW_S:
            raise Refused("it was signed in the future")
        if signed_s + lifetime_s <= self.now_s():
            raise Refused("it has expired")
        return signed_s + lifetime_s

    def _signature(self, url: str, parameters: Mapping[str, str], credentials: Credentials) -> str:
        signed = url[: url.index("&X-Amz-Signature=")]
        request = AWSRequest(method="GET", url=signed)
        request.context["timestamp"] = parameters["X-Amz-Date"]
        auth = SigV4QueryAuth(credentials, "kafka-cluster", self.region)
        return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))
