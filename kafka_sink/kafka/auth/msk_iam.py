"""AWS_MSK_IAM: OAUTHBEARER tokens that botocore signs with the AWS credentials of this host. Needs the extra `aws`.

    signer = MskIamSigner(login, hosts, user_agent=...)
    token, lifetime_s = signer.fetch()       # raises TokenUnavailable

A token is a presigned URL. botocore finds the credentials by its whole chain of providers: the environment, profiles,
containers, IMDSv2, roles, SSO, web identity, processes.

Non-obvious:

* Credentials that botocore renews are kept for the life of the process. A role that botocore assumes has a random
  session name. New credentials for each token would have another one, and brokers refuse to authenticate a connection
  again as another principal (KIP-368).
* botocore logs answers with credentials, and what it signs, at DEBUG. Records of calls from here are dropped.
* botocore's errors may quote the output of a process or an answer. Only their type and AWS's error code are shown.

Source: aws-msk-iam-sasl-signer-python and aws-msk-iam-auth, AWS's own libraries for Python and Java.
"""

from __future__ import annotations

import base64
import contextvars
import importlib
import logging
import os
import pkgutil
import re
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlencode

from kafka_sink.errors import TokenUnavailable
from kafka_sink.errors.exhaustion import is_exhaustion
from kafka_sink.errors.quoting import quoted
from kafka_sink.kafka.clock import within

MECHANISM = "AWS_MSK_IAM"
# The longest that brokers accept.
MAX_LIFETIME_S = 900
# As long as a token endpoint may take.
TIMEOUT_S = 8.0
# That of Java's library, so that policies which name it match.
ROLE_SESSION_NAME = "aws-msk-iam-auth"
# Bytes of an answer of a metadata service. Credentials and their token take about 2 KB.
MOST_BYTES = 64 * 1024
INSTALL = "install it where the connection is made (pip install 'pyspark-pykafka[aws]')"
_ERROR_CODE = re.compile(r"[A-Za-z.]{1,60}")
_SECONDS = "%Y%m%dT%H%M%SZ"
_is_ours = contextvars.ContextVar("kafka_sink_calls_botocore", default=False)


class Missing(Exception):
    """`reason`: what is missing. `advice`: what to do. Neither shows a credential."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


@dataclass(frozen=True, slots=True, kw_only=True)
class IamLogin:
    """The options of IAMLoginModule that select credentials. None: the default."""

    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_region: str | None = None

    @property
    def wanted(self) -> str:
        """The credentials, in words."""
        if self.role_arn is not None:
            return "the role awsRoleArn"
        return "the default credentials" if self.profile is None else f"profile {quoted(self.profile)!r}"


@dataclass(eq=False, repr=False)
class MskIamSigner:
    """One thread at a time. `hosts`: those of the bootstrap servers. `described`: the words by which messages name the
    client. They show no credential, but what a refusal may be due to."""

    if_refused: ClassVar[str] = (
        "check that the policy of these credentials allows kafka-cluster:Connect, that the region is the cluster's, "
        "and that the clock of this host is right (the time of signing is UTC); on too many connects, start fewer "
        "tasks at once"
    )

    login: IamLogin
    hosts: tuple[str, ...]
    user_agent: str
    described: str = field(default="", init=False)
    _renewed: Any = field(default=None, init=False)

    def fetch(self) -> tuple[str, float]:
        """Return a token and its lifetime in seconds: 900, or less if the credentials expire earlier. Takes TIMEOUT_S
        at most. Raises TokenUnavailable."""
        advice = "try `aws sts get-caller-identity` on this host, as this user"
        try:
            _hush()
            return within(TIMEOUT_S, self._signed)
        except Missing as missing:
            reason, advice = missing.reason, missing.advice
        except TimeoutError:
            reason = f"{self.login.wanted}: botocore found none within {TIMEOUT_S:g} s"
        except Exception as error:
            if isinstance(error, OSError) and is_exhaustion(error.errno):
                raise
            reason = f"{self.login.wanted}: botocore raised {type(error).__name__}{_code_in(error)}"
        # Raised outside the except block: botocore's error must not become the context.
        raise TokenUnavailable(source="AWS credentials", reason=reason, mechanism=MECHANISM, advice=advice)

    def _signed(self) -> tuple[str, float]:
        _is_ours.set(True)
        session = importlib.import_module("botocore.session").Session(profile=self.login.profile)
        region = region_of(self.hosts, session)
        credentials = self._renewed or _found(self.login, session, region)
        source = f"{self.login.wanted} ({quoted(credentials.method)})"
        remaining_s = self._remaining_s(credentials)
        if remaining_s == 0:
            advice = "renew them, and check that this host's clock is right (UTC)"
            raise Missing(f"those of {source} have expired", advice)
        # After the time: if they were renewed in between, they live longer than that.
        url, signed = _presigned(credentials.get_frozen_credentials(), region, remaining_s)
        self.described = f"{source}, signed for {region} at {signed}"
        token = base64.urlsafe_b64encode(f"{url}&{urlencode({'User-Agent': self.user_agent})}".encode())
        # The URL's time has whole seconds.
        expires_s = datetime.strptime(signed, _SECONDS).replace(tzinfo=UTC).timestamp() + remaining_s
        return token.decode().rstrip("="), expires_s - time.time()

    def _remaining_s(self, credentials: Any) -> int:
        """Return the whole seconds for which the credentials surely live, at most MAX_LIFETIME_S. Keep credentials that
        botocore renews."""
        try:
            # Renews them.
            credentials.get_frozen_credentials()
        except RuntimeError:
            # Expired, and renewed ones too.
            return 0
        refresh_needed = getattr(credentials, "refresh_needed", None)
        if refresh_needed is None:
            return MAX_LIFETIME_S
        self._renewed = credentials
        # Those for which no renewal is due: the public interface tells no more.
        return bisect_left(range(1, MAX_LIFETIME_S + 1), True, key=lambda seconds: refresh_needed(refresh_in=seconds))


def _presigned(frozen: Any, region: str, expires_s: int) -> tuple[str, str]:
    """Return the presigned URL, and when it was signed, as 20260131T235959Z."""
    auth, request = (importlib.import_module(f"botocore.{name}") for name in ("auth", "awsrequest"))
    # AWS's signers use this host in every partition.
    url = f"https://kafka.{region}.amazonaws.com/"
    made = request.AWSRequest(method="GET", url=url, params={"Action": "kafka-cluster:Connect"})
    auth.SigV4QueryAuth(frozen, "kafka-cluster", region, expires=expires_s).add_auth(made)
    return made.url, made.context["timestamp"]


# --- the credentials of this host -------------------------------------------------------------------------------------


def _found(login: IamLogin, session: Any, region: str) -> Any:
    """Return botocore's credentials. Raises Missing, and botocore's errors."""
    keys = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if os.environ.get(name)]
    if login.profile is None and len(keys) == 1:
        # botocore would take other credentials instead if only the secret key is set.
        raise Missing(f"the environment has one half of the keys, {keys[0]}", "set the other half too, or neither")
    limit_answers(session)
    found = session.get_credentials()
    if found is None:
        raise Missing(
            f"{login.wanted}: botocore found no credentials on this host",
            "give the host, container or service account a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "where the connection is made",
        )
    if login.role_arn is None:
        return found
    credentials = importlib.import_module("botocore.credentials")
    arguments = {"RoleSessionName": login.role_session_name or ROLE_SESSION_NAME}
    if login.role_external_id is not None:
        arguments["ExternalId"] = login.role_external_id
    fetcher = credentials.AssumeRoleCredentialFetcher(
        partial(session.create_client, region_name=login.sts_region or region), found, login.role_arn, arguments
    )
    return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _code_in(error: Exception) -> str:
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or not _is_ours.get()


def _hush() -> None:
    """Filter the records of botocore's loggers. A parent's filter does not see the records of its children. botocore
    imports most of its modules later, and they then find the loggers that are made here. Raises Missing."""
    try:
        modules = pkgutil.iter_modules(importlib.import_module("botocore").__path__)
    except ImportError:
        raise Missing("botocore is not installed", INSTALL) from None
    for name in (*(f"botocore.{module.name}" for module in modules), *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "botocore":
            # Adds it once.
            logging.getLogger(name).addFilter(_is_shown)


# --- the region of a cluster ------------------------------------------------------------------------------------------

_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")
_REGION = re.compile(r"[a-z]{2,6}(?:-[a-z]{2,12}){1,2}-[0-9]{1,2}")


def region_of(hosts: tuple[str, ...], session: Any) -> str:
    """Return the region of the first of `hosts` that shows one, else that of the environment, else that of the
    profile. Raises Missing."""
    for host in hosts:
        if (region := region_in(host)) is not None:
            return region
    text = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not text:
        raise Missing(
            "kafka.bootstrap.servers does not show the cluster's region, and the environment has no AWS_REGION",
            "use the host names that MSK gives, or set AWS_REGION where the connection is made, on executors with "
            "spark.executorEnv.AWS_REGION",
        )
    if not _REGION.fullmatch(text):
        reason = f"AWS_REGION, AWS_DEFAULT_REGION or the profile's region is {quoted(text)!r}, which is no region"
        raise Missing(reason, "set it to a region such as eu-west-1")
    return str(text)


def region_in(host: str) -> str | None:
    """Return the region in a host name of AWS, such as eu-west-1 of b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com.

    A cluster's name may look like a region, so the last one counts. A name outside of AWS's domains may have anything
    in it, so no region is read from it, where AWS's RegionUtils looks for one in any name.
    """
    name = host.lower().rstrip(".")
    if not name.endswith(_DOMAINS):
        return None
    return next(filter(_REGION.fullmatch, reversed(name.split("."))), None)


# --- limits on what botocore reads of a metadata service --------------------------------------------------------------
# botocore reads answers of any size. Source: botocore.utils.IMDSFetcher and ContainerMetadataFetcher,
# botocore.httpsession.URLLib3Session.send.


def limit_answers(session: Any) -> None:
    """Limit the answers to the credential providers of botocore's `session`."""
    for provider in session.get_component("credential_provider").providers:
        fetcher: Any = getattr(provider, "_role_fetcher", None) or getattr(provider, "_fetcher", None)
        if hasattr(fetcher, "_session"):
            fetcher._session = _Limited(fetcher._session)


class _Limited:
    """Sends requests as botocore's `http` does. Raises its errors, or Missing for an answer that is too large."""

    def __init__(self, http: Any) -> None:
        self._http = http

    def send(self, request: Any) -> Any:
        request.stream_output = True
        answer = self._http.send(request)
        content = _read(answer.raw, request)
        # The class takes what has a method `stream`.
        return type(answer)(answer.url, answer.status_code, answer.headers, SimpleNamespace(stream=lambda: [content]))


def _read(raw: Any, request: Any) -> bytes:
    theirs, botocores = (importlib.import_module(f"{name}.exceptions") for name in ("urllib3", "botocore"))
    content = bytearray()
    try:
        for piece in raw.stream(MOST_BYTES):
            content += piece
            if len(content) > MOST_BYTES:
                raw.close()
                raise Missing(
                    f"the metadata service answered with more than {MOST_BYTES // 1024} KiB",
                    "look what answers there instead of the cloud's own service",
                )
    except theirs.ReadTimeoutError as error:
        raise botocores.ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except theirs.HTTPError as error:
        raise botocores.ConnectionClosedError(endpoint_url=request.url, error=error, request=request) from error
    return bytes(content)
