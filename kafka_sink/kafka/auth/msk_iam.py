"""AWS_MSK_IAM: OAUTHBEARER tokens that this process signs with the AWS credentials of its host.

    signer = MskIamSigner(login, hosts, os.environ, wall_clock_s=time.time, user_agent=..., chain=installed)
    token, lifetime_s = signer.fetch()       # raises TokenUnavailable

Keys of the environment and of AWS's files are found here; `botocore_chain.py` asks botocore for all others. A token is
a presigned URL, with the bytes of botocore's SigV4QueryAuth.

Source: aws-msk-iam-sasl-signer-python and aws-msk-iam-auth, AWS's own libraries for Python and Java;
docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import hmac
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlencode

from kafka_sink.errors import TokenUnavailable
from kafka_sink.errors.quoting import quoted

MECHANISM = "AWS_MSK_IAM"
# The longest that brokers accept.
MAX_LIFETIME_S = 900
IF_REFUSED = (
    "check that the policy of these credentials allows kafka-cluster:Connect, that the region is the cluster's, and "
    "that the clock of this host is right (the time of signing is UTC); on too many connects, start fewer tasks at once"
)
INSTALL = "install botocore where the connection is made (pip install 'pyspark-pykafka[aws]')"


class Missing(Exception):
    """`reason`: what is missing. `advice`: what to do. Neither shows a credential."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Keys:
    """AWS credentials. `session_token`: None for the keys of an IAM user."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


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


@dataclass(eq=False, repr=False)
class MskIamSigner:
    """`hosts`: those of the bootstrap servers. `environment`: os.environ, read again for each token. `described`: the
    words by which messages name the client. They show no credential, but what a refusal may be due to."""

    login: IamLogin
    hosts: tuple[str, ...]
    environment: Mapping[str, str]
    _: KW_ONLY
    wall_clock_s: Callable[[], float]
    user_agent: str
    chain: Callable[[], Chain | None]
    described: str = field(default="", init=False)
    _found_chain: Chain | None = field(default=None, init=False)

    def fetch(self) -> tuple[str, float]:
        """Return a token and its lifetime in seconds: 900, or less if the credentials expire earlier. Raises
        TokenUnavailable."""
        try:
            return self._signed()
        except Missing as missing:
            reason, advice = missing.reason, missing.advice
        raise TokenUnavailable(source="AWS credentials", reason=reason, mechanism=MECHANISM, advice=advice)

    def _signed(self) -> tuple[str, float]:
        region = region_of(self.hosts, self.login.profile, self.environment)
        found = find(self.login, region, self.environment, self.wall_clock_s(), self._kept_chain)
        now_s = self.wall_clock_s()
        # The URL's time has whole seconds.
        signed_at_s = math.floor(now_s)
        expires_s = math.floor(min(MAX_LIFETIME_S, MAX_LIFETIME_S if found.remaining_s is None else found.remaining_s))
        if expires_s - (now_s - signed_at_s) <= 0:
            raise Missing(
                f"those of {found.source} have expired", "renew them, and check that this host's clock is right (UTC)"
            )
        token = signed_token(
            found.keys, region, signed_at_s=signed_at_s, expires_s=expires_s, user_agent=self.user_agent
        )
        self.described = f"{found.source}, signed for {region} at {moment(signed_at_s)}"
        return token, signed_at_s + expires_s - now_s

    def _kept_chain(self) -> Chain | None:
        if self._found_chain is None:
            self._found_chain = self.chain()
        return self._found_chain


# --- the credentials of this host -------------------------------------------------------------------------------------

# Settings by which a profile has credentials that somebody must be asked for.
_ASKED_FOR = (
    "role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file", "login_session",
)  # fmt: skip


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


# --- AWS's two files (docs.aws.amazon.com/sdkref/latest/guide/file-format.html; botocore.configloader) ----------------


def profile_name(environment: Mapping[str, str]) -> str:
    """Return the profile that applies if the options name none."""
    return environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"


def profile(name: str, environment: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the settings of a profile, or None if neither file has it. Raises Missing for a file that is unusable.

    The profile `demo` is `[demo]` in the file of credentials and `[profile demo]` in the file of config. `default` is
    `[default]` in both. A setting in the file of credentials wins.
    """
    config = _sections("AWS_CONFIG_FILE", "~/.aws/config", environment)
    credentials = _sections("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", environment)
    found = [settings for section, settings in config.items() if _profile_of(section) == name]
    found += [credentials[name]] if name in credentials else []
    return {key: value for settings in found for key, value in settings.items()} if found else None


def _profile_of(section: str) -> str | None:
    """Return the profile that a section of the file of config describes, or None for another (`[sso-session x]`)."""
    if section == "default":
        return section
    try:
        # A name with blanks is quoted.
        words = shlex.split(section)
    except ValueError:
        return None
    return words[1] if len(words) == 2 and words[0] == "profile" else None


def _sections(variable: str, otherwise: str, environment: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Return the sections of the file that `variable` names. `otherwise`: its place without that."""
    path = Path(environment.get(variable) or otherwise)
    parser = configparser.RawConfigParser(default_section="")
    try:
        # The home of the environment that is given, as os.path.expanduser finds it in the process's own.
        home = environment.get("HOME")
        text = (Path(home, *path.parts[1:]) if home and path.parts[:1] == ("~",) else path.expanduser()).read_text()
        parser.read_string(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "it has no home directory"
        raise Missing(f"{path} cannot be read: {why}", f"correct {variable} or the file's permissions") from None
    except (configparser.Error, UnicodeDecodeError):
        # The parser's message quotes lines, which have keys in them. `from None` alone would keep it as the context.
        pass
    else:
        return {name: dict(parser[name]) for name in parser.sections()}
    raise Missing(f"{path} is not a file of profiles", "correct it: [name], then lines of name = value")


# --- the region of a cluster ------------------------------------------------------------------------------------------

_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")
_REGION = re.compile(r"[a-z]{2,6}(?:-[a-z]{2,12}){1,2}-[0-9]{1,2}")


def region_of(hosts: Iterable[str], named_profile: str | None, environment: Mapping[str, str]) -> str:
    """Return the region of the first of `hosts` that shows one, else that of the environment, else that of the
    profile. Raises Missing."""
    for host in hosts:
        if (region := region_in(host)) is not None:
            return region
    settings = profile(named_profile or profile_name(environment), environment) or {}
    places = [(variable, environment.get(variable)) for variable in ("AWS_REGION", "AWS_DEFAULT_REGION")]
    for place, text in (*places, ("the profile's region", settings.get("region"))):
        if text and not _REGION.fullmatch(text):
            raise Missing(f"{place} is {quoted(text)!r}, which is no region", "set it to a region such as eu-west-1")
        if text:
            return text
    raise Missing(
        "kafka.bootstrap.servers does not show the cluster's region, and the environment has no AWS_REGION",
        "use the host names that MSK gives, or set AWS_REGION where the connection is made, on executors with "
        "spark.executorEnv.AWS_REGION",
    )


def region_in(host: str) -> str | None:
    """Return the region in a host name of AWS, such as eu-west-1 of b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com.

    A cluster's name may look like a region, so the last one counts. A name outside of AWS's domains may have anything
    in it, so no region is read from it, where AWS's RegionUtils looks for one in any name.
    """
    name = host.lower().rstrip(".")
    if not name.endswith(_DOMAINS):
        return None
    return next(filter(_REGION.fullmatch, reversed(name.split("."))), None)


# --- the signature ----------------------------------------------------------------------------------------------------

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


def moment(at_s: int) -> str:
    """Return seconds since 1970 as 20260131T235959Z."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y%m%dT%H%M%SZ")


def signed_token(keys: Keys, region: str, *, signed_at_s: int, expires_s: int, user_agent: str) -> str:
    """Return the token: the presigned URL in base64url without padding. `signed_at_s`: seconds since 1970."""
    url = f"{_presigned(keys, region, signed_at_s, expires_s)}&{urlencode({'User-Agent': user_agent})}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _presigned(keys: Keys, region: str, signed_at_s: int, expires_s: int) -> str:
    # AWS's signers use this host in every partition.
    host = f"kafka.{region}.amazonaws.com"
    date = moment(signed_at_s)
    scope = (date[:8], region, "kafka-cluster", "aws4_request")
    parameters = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": "/".join((keys.access_key, *scope)),
        "X-Amz-Date": date,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session_token:
        parameters["X-Amz-Security-Token"] = keys.session_token
    query = urlencode(parameters, quote_via=quote, safe="")
    in_order = "&".join(sorted(query.split("&")))
    canonical = "\n".join(("GET", "/", in_order, f"host:{host}", "", "host", _NO_BODY))
    to_sign = "\n".join((_ALGORITHM, date, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return f"https://{host}/?{query}&X-Amz-Signature={signature}"
