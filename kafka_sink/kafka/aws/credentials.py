"""AWS credentials that this host has without a question to anybody: those of the environment and of AWS's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from kafka_sink.kafka.aws.files import profile, profile_name
from kafka_sink.kafka.aws.missing import Missing
from kafka_sink.kafka.aws.sigv4 import Keys
from kafka_sink.text.quoting import quoted

INSTALL = "install botocore where the connection is made (pip install 'pyspark-pykafka[aws]')"
# Settings by which a profile has credentials that somebody must be asked for.
_ASKED_FOR = (
    "role_arn",
    "sso_session",
    "sso_start_url",
    "credential_process",
    "web_identity_token_file",
    "login_session",
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """`source`: where they are from, in words. `remaining_s`: seconds until they expire; None: not known to expire."""

    keys: Keys = field(repr=False)
    source: str
    remaining_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IamLogin:
    """The options of IAMLoginModule that select credentials. None: the default."""

    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_region: str | None = None


class Chain(Protocol):
    """botocore's chain of providers."""

    def credentials(self, login: IamLogin, region: str) -> Credentials:
        """Raises Missing."""


def find(
    login: IamLogin, region: str, environment: Mapping[str, str], now_s: float, chain: Callable[[], Chain | None]
) -> Credentials:
    """Return the first credentials, in the order of AWS's SDKs. `chain` returns None without botocore. Raises Missing.

    Keys of the environment need no botocore. It is imported only for others, because that takes a second.
    """
    if login.profile is None and login.role_arn is None and (found := _in_environment(environment, now_s)) is not None:
        return found
    if (botocore := chain()) is not None:
        return botocore.credentials(login, region)
    if login.role_arn is not None:
        raise Missing("awsRoleArn needs botocore, which is not installed", INSTALL)
    return _in_files(login.profile, environment)


def _in_environment(environment: Mapping[str, str], now_s: float) -> Credentials | None:
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        lacking = "AWS_SECRET_ACCESS_KEY" if access_key else "AWS_ACCESS_KEY_ID"
        raise Missing(f"the environment has one half of the keys and no {lacking}", f"set {lacking} too, or neither")
    keys = Keys(access_key, secret_key, environment.get("AWS_SESSION_TOKEN") or None)
    return Credentials(keys, "the environment", _remaining_s(environment.get("AWS_CREDENTIAL_EXPIRATION"), now_s))


def _remaining_s(expiration: str | None, now_s: float) -> float | None:
    if not expiration:
        return None
    try:
        at = datetime.fromisoformat(expiration)
    except ValueError:
        raise Missing("AWS_CREDENTIAL_EXPIRATION is no time", "set it as 2026-01-31T23:59:59Z, or not at all") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() - now_s


def _in_files(named: str | None, environment: Mapping[str, str]) -> Credentials:
    name = named or profile_name(environment)
    source = f"profile {quoted(name)!r}"
    settings = profile(name, environment)
    if settings is None and (named or environment.get("AWS_PROFILE")):
        raise Missing(f"{source} is in neither of AWS's files", f"add it to ~/.aws/credentials, or {INSTALL}")
    settings = settings or {}
    access_key, secret_key = settings.get("aws_access_key_id"), settings.get("aws_secret_access_key")
    if access_key and secret_key:
        return Credentials(Keys(access_key, secret_key, settings.get("aws_session_token") or None), source)
    if asked := next((key for key in _ASKED_FOR if key in settings), None):
        raise Missing(f"{source} has {asked}, which needs botocore, and botocore is not installed", INSTALL)
    raise Missing(
        f"neither the environment nor {source} has keys, and botocore is not installed",
        f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for the role of an instance, a container or a service "
        f"account {INSTALL}",
    )
