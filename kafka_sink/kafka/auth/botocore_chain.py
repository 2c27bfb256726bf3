"""AWS credentials by botocore: its whole chain of providers (containers, IMDSv2, roles, SSO, web identity, processes).

Non-obvious:

* Credentials that botocore renews are kept for the life of the process. A role that botocore assumes has a random
  session name. New credentials for each token would have another one, and brokers refuse to authenticate a connection
  again as another principal (KIP-368).
* botocore logs answers with credentials at DEBUG. Records of calls from here are dropped.
* botocore's errors may quote the output of a process or an answer. Only their type and AWS's error code are shown.
"""

from __future__ import annotations

import contextvars
import importlib
import logging
import pkgutil
import re
from bisect import bisect_left
from functools import partial
from types import SimpleNamespace
from typing import Any

from kafka_sink.errors.exhaustion import is_exhaustion
from kafka_sink.errors.quoting import quoted
from kafka_sink.kafka.auth.msk_iam import MAX_LIFETIME_S, Credentials, IamLogin, Keys, Missing
from kafka_sink.kafka.clock import within

# As long as a token endpoint may take.
TIMEOUT_S = 8.0
# That of Java's library, so that policies which name it match.
ROLE_SESSION_NAME = "aws-msk-iam-auth"
# Bytes of an answer of a metadata service. Credentials and their token take about 2 KB.
MOST_BYTES = 64 * 1024
_ERROR_CODE = re.compile(r"[A-Za-z.]{1,60}")
_is_ours = contextvars.ContextVar("kafka_sink_calls_botocore", default=False)


def installed() -> BotocoreChain | None:
    """Return the chain, or None if botocore is not installed."""
    try:
        importlib.import_module("botocore.session")
    except ImportError:
        return None
    return BotocoreChain()


class BotocoreChain:
    """One thread at a time."""

    def __init__(self) -> None:
        self._renewed: dict[tuple[IamLogin, str], Any] = {}

    def credentials(self, login: IamLogin, region: str) -> Credentials:
        """Return credentials within TIMEOUT_S. Raises Missing."""
        _hush()
        try:
            return within(TIMEOUT_S, partial(self._asked, login, region))
        except TimeoutError:
            why = f"botocore found none within {TIMEOUT_S:g} s"
        except Missing as missing:
            raise Missing(missing.reason, missing.advice) from None
        except Exception as error:
            if isinstance(error, OSError) and is_exhaustion(error.errno):
                raise
            why = f"botocore raised {type(error).__name__}{_code_in(error)}"
        # Raised outside the except block: botocore's error must not become the context.
        raise Missing(f"{_wanted(login)}: {why}", "try `aws sts get-caller-identity` on this host, as this user")

    def _asked(self, login: IamLogin, region: str) -> Credentials:
        _is_ours.set(True)
        found = self._renewed.get((login, region)) or _found(login, region)
        if found is None:
            raise Missing(
                f"{_wanted(login)}: botocore found no credentials on this host",
                "give the host, container or service account a role, or set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, where the connection is made",
            )
        found.get_frozen_credentials()
        refresh_needed = getattr(found, "refresh_needed", None)
        remaining_s = None
        if refresh_needed is not None:
            self._renewed[login, region] = found
            # The whole seconds for which no renewal is due, and only those of the public interface.
            remaining_s = float(
                bisect_left(range(1, MAX_LIFETIME_S + 1), True, key=lambda seconds: refresh_needed(refresh_in=seconds))
            )
        # After the time: if they were renewed in between, they live longer than that.
        frozen = found.get_frozen_credentials()
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        return Credentials(keys, f"{_wanted(login)} ({quoted(found.method)})", remaining_s)


def _found(login: IamLogin, region: str) -> Any:
    # Optional packages, without annotations.
    session = importlib.import_module("botocore.session").Session(profile=login.profile)
    limit_answers(session)
    found = session.get_credentials()
    if login.role_arn is None or found is None:
        return found
    credentials = importlib.import_module("botocore.credentials")
    arguments = {"RoleSessionName": login.role_session_name or ROLE_SESSION_NAME}
    if login.role_external_id is not None:
        arguments["ExternalId"] = login.role_external_id
    fetcher = credentials.AssumeRoleCredentialFetcher(
        partial(session.create_client, region_name=login.sts_region or region), found, login.role_arn, arguments
    )
    return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _wanted(login: IamLogin) -> str:
    if login.role_arn is not None:
        return "the role awsRoleArn"
    return "the default credentials" if login.profile is None else f"profile {quoted(login.profile)!r}"


def _code_in(error: Exception) -> str:
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or not _is_ours.get()


def _hush() -> None:
    """Filter the records of botocore's loggers. A parent's filter does not see the records of its children. botocore
    imports most of its modules later, and they then find the loggers that are made here."""
    modules = pkgutil.iter_modules(importlib.import_module("botocore").__path__)
    for name in (*(f"botocore.{module.name}" for module in modules), *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "botocore":
            # Adds it once.
            logging.getLogger(name).addFilter(_is_shown)


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
