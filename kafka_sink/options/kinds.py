"""Options: their kinds, an option, and a table of options that says what a name is.

A kind has a reader that parses an option's text, and a description of the valid texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from kafka_sink.errors import InvalidOption, RefusedOption, UnknownOption
from kafka_sink.errors.quoting import is_topic_name
from kafka_sink.errors.redaction import Secret, redacted
from kafka_sink.kafka.auth.jaas import JaasProblem
from kafka_sink.kafka.net.java_store import as_pkcs12
from kafka_sink.kafka.new_topic import NewTopic, NewTopicProblem, parse_new_topic

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
KIB = 1024
MIB = 1024 * KIB
# Outlasts a rolling restart of a small cluster, five minutes, with a minute for elections and new connections.
OUTAGE_MS = 360_000


class Problem(ValueError):
    """A reader's message that users may see. Messages of other ValueErrors are hidden: they may quote the value."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`values` describes the valid texts. `read` parses a text, or raises ValueError.

    `read` raises a `Problem` where `values` is not enough to explain the error. `keeps_spaces`: the spaces around a
    text are part of the value.
    """

    values: str
    read: Callable[[str], Any]
    keeps_spaces: bool = False


def integer(low: int, high: int = INT32_MAX) -> Kind:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Kind(f"a whole number from {low} to {high}", read)


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}


def duration_ms(text: str) -> int:
    """Source: org.apache.spark.network.util.JavaUtils.timeStringAs; a microsecond would be no delay."""
    found = re.fullmatch("([0-9]{1,12})([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError
    return int(found[1]) * _UNITS_MS[found[2]]


_UNITS_BYTES = {"b": 1, "": 1} | {
    unit + byte: 1 << 10 * power for power, unit in enumerate("kmgtp", start=1) for byte in ("", "b")
}


def byte_count(text: str) -> int:
    """Source: org.apache.spark.network.util.JavaUtils.byteStringAs."""
    found = re.fullmatch("([0-9]{1,19})([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS_BYTES:
        raise ValueError
    count = int(found[1]) * _UNITS_BYTES[found[2]]
    if not 1 <= count <= INT64_MAX:
        raise ValueError
    return count


def gzip_level(text: str) -> int:
    # Kafka uses -1 for zlib's default. It does not allow zlib's level 0, which stores without compression.
    if not re.fullmatch("-1|[1-9]", text):
        raise ValueError
    return int(text)


def words(values: str, meanings: Mapping[str, Any]) -> Kind:
    """Return the kind of the words in `meanings`, which are lower case there and may be in any case in a text."""

    def read(text: str) -> Any:
        if text.lower() not in meanings:
            raise ValueError
        return meanings[text.lower()]

    return Kind(values, read)


def one_of(*allowed: str) -> Kind:
    return words(f"one of: {', '.join(allowed)}", {word.lower(): word for word in allowed})


def checked(is_valid: Callable[[str], object]) -> Callable[[str], str]:
    """Return a reader that takes a valid text as it is."""

    def read(text: str) -> str:
        if not is_valid(text):
            raise ValueError
        return text

    return read


def fraction(text: str) -> float:
    if not re.fullmatch(r"([0-9]+|[0-9]*\.[0-9]+)([eE]-[0-9]{1,3})?", text) or float(text) > 1:
        raise ValueError
    return float(text)


# Source: org.apache.kafka.common.utils.Utils.HOST_PORT_PATTERN: an optional scheme, a name or an IPv6 address in
# brackets, a port. A scheme may also be a security protocol, `SASL_SSL://`: tools of Confluent Cloud print it so.
_HOST_PORT = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+._-]*://)?\[?([0-9a-zA-Z\-._%:]+)\]?:([0-9]+)")


def _is_host(text: str) -> bool:
    """Return True if `text` is a host name or an IP address.

    Kafka's pattern also matches `user:password`, and the client would then send the password to name servers.
    """
    try:
        return ":" not in text or bool(ip_address(text))
    except ValueError:
        return False


def bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    servers = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _HOST_PORT.fullmatch(entry)
        if match is None or not _is_host(match[1]) or not 0 < int(match[2]) < 65536:
            raise Problem(f"{redacted(entry)!r} is not host:port")
        servers.append((match[1], int(match[2])))
    if not servers:
        raise ValueError
    return tuple(servers)


def create_topics(text: str) -> NewTopic | Literal[False]:
    if text.lower() in ("true", "false"):
        return NewTopic() if text.lower() == "true" else False
    try:
        return parse_new_topic(text)
    except NewTopicProblem as problem:
        raise Problem(str(problem)) from None


# The characters of a topic name. Shorter than a topic name, because a group's name adds the slot's number.
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,200}")


def is_prefix(text: str) -> bool:
    """Return True if `text` is valid for transactionalIdPrefix, txnAppId and receiptName."""
    return _PREFIX.fullmatch(text) is not None


BOOLEAN = words("true or false", {"true": True, "false": False})
TEXT = Kind("any text", str)
# As Kafka's type PASSWORD, which does not trim (org.apache.kafka.common.config.ConfigDef.parseType).
PASSWORD = Kind("any text", str, keeps_spaces=True)
MILLISECONDS = integer(1)
MILLISECONDS_OR_NONE = integer(0)
DURATION = Kind("a time with a unit, like 30s, 15m or 1h; without a unit, milliseconds", duration_ms)
BYTES = Kind("a number of bytes, at least 1, with or without a unit: 500m, 10g", byte_count)
SOCKET_BUFFER = integer(-1)
TOPIC = Kind("a topic name: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'", checked(is_topic_name))
PREFIX = Kind("1 to 200 letters, digits, '.', '_' or '-'", checked(is_prefix))
# Only executors can read the file, and recognise its format.
STORE_LOCATION = Kind("a PEM, JKS or PKCS12 file", checked(bool))

_STORE_TYPES = ("PEM", "JKS", "PKCS12")
_FOREIGN_STORE_TYPES = ("JCEKS", "BCFKS", "BKS", "UBER")


def store_type(option: str) -> Kind:
    """Return the kind of the type of the store that `option` names."""

    def read(text: str) -> str:
        folded = text.upper()
        if folded in _FOREIGN_STORE_TYPES:
            raise Problem(f"convert it: {as_pkcs12(option, f'store.{folded.lower()}', folded)}")
        if folded not in _STORE_TYPES:
            raise ValueError
        return folded

    return Kind(", ".join(_STORE_TYPES), read)


_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
SSL_PROTOCOL = Kind("TLS, TLSv1.2 or TLSv1.3", checked(("TLS", *_TLS_VERSIONS).__contains__))


def tls_versions(text: str) -> str:
    versions = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [version for version in versions if version not in _TLS_VERSIONS]
    if wrong:
        raise Problem(f"{redacted(wrong[0])!r} is not one of them; older versions of TLS are not secure")
    if not versions:
        raise ValueError
    return ",".join(versions)


SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")


def service_name(text: str) -> str:
    """Return the first part of the brokers' Kerberos principals."""
    if "/" in text or "@" in text:
        raise Problem("only the part before the '/', without host and realm")
    if not re.fullmatch(r"[\w.-]{1,100}", text):
        raise ValueError
    return text


# Vendors ship the class with a prefix (`shadedmskiam.software...`).
_MSK_IAM_CLASS = re.compile(r"(?:[\w$]+\.)*software\.amazon\.msk\.auth\.iam\.(\w+)")


def callback_handler(text: str) -> str:
    """Return `text` if it is the class that belongs to AWS_MSK_IAM. It is not run."""
    match = _MSK_IAM_CLASS.fullmatch(text)
    if match is not None and match[1] == "IAMOAuthBearerLoginCallbackHandler":
        raise Problem("remove it, and kafka.sasl.jaas.config, and set kafka.sasl.mechanism=AWS_MSK_IAM")
    if match is None or match[1] != "IAMClientCallbackHandler":
        raise Problem("remove it: pykafka does not run classes that options name")
    return text


_MAX_URL_CHARACTERS = 2048


def url(text: str) -> str:
    parts = urlsplit(text)
    if len(text) > _MAX_URL_CHARACTERS or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError
    if parts.username is not None or parts.password is not None:
        raise Problem("remove the credentials from the URL")
    _ = parts.port  # raises ValueError for an invalid port
    return text


def urls(text: str) -> tuple[str, ...]:
    return tuple(url(part.strip()) for part in text.split(",") if part.strip())


_URI = re.compile(r"[a-z][a-z0-9+.-]*://.+")


def folder(text: str) -> str:
    if _URI.fullmatch(text):
        if urlsplit(text).password is not None:
            # A ValueError's message would show the credentials.
            raise RefusedOption(
                option="receiptsPath",
                instead="remove the credentials from it; pyarrow reads them from the driver's environment.",
            )
    elif not text.startswith("/"):
        raise ValueError
    return text.rstrip("/") or "/"


# --- options and their table ------------------------------------------------------------------------------------------

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    `default` is the parsed value, `REQUIRED`, or None for "not set". `field` is None for an option that is checked and
    has no effect. With `redact` the value becomes a `Secret`.
    """

    name: str
    field: str | None
    kind: Kind
    default: Any
    doc: str
    redact: bool = False

    def read(self, text: str, *, prefix: str = "") -> Any:
        """Return the value of `text`. Messages put `prefix` before the option's name. Raises InvalidOption."""
        try:
            value = self.kind.read(text if self.kind.keeps_spaces else text.strip())
        except ValueError as failure:
            is_safe = isinstance(failure, JaasProblem if self.redact else JaasProblem | Problem)
            detail = str(failure) if is_safe else ""
        else:
            return Secret(value) if self.redact else value
        # Raised outside the except block: the ValueError contains the text, and must not become `__context__`.
        raise self.invalid(text, f"{self.kind.values} ({detail})" if detail else self.kind.values, prefix=prefix)

    def invalid(self, text: str, expected: str, *, prefix: str = "") -> InvalidOption:
        # The error redacts too, but it cuts a long text first. A cut text may hide a secret from the redaction.
        value = None if self.redact else redacted(text)
        return InvalidOption(option=prefix + self.name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together, and the text that explains all of them (Markdown)."""

    title: str
    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All names that a write, or a read, may meet.

    `sparks`: names of Spark's own, which are ignored. `refused` and `refused_prefixes`: names, or their starts, that
    cannot work, with what to do instead. `not_yet_prefixes`: this version does not support them yet.
    """

    sections: tuple[Section, ...]
    sparks: tuple[str, ...]
    refused: Mapping[str, str]
    refused_prefixes: Mapping[str, str]
    not_yet_prefixes: tuple[str, ...]
    by_key: dict[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {option.name.lower(): option for option in self.options})

    @property
    def options(self) -> tuple[Option, ...]:
        return tuple(option for section in self.sections for option in section.options)

    def named(self, key: str, *, prefix: str = "") -> Option | None:
        """Return the option named `key` (case-insensitive), or None for a key of Spark. Messages put `prefix` first.

        Raises UnknownOption with the nearest known names, or RefusedOption with the alternative.
        """
        folded = key.lower()
        if folded in self.by_key:
            return self.by_key[folded]
        if not prefix and folded in (name.lower() for name in self.sparks):
            return None
        for name, instead in self.refused.items():
            if folded == name.lower():
                raise RefusedOption(option=prefix + name, instead=instead)
        for start, instead in self.refused_prefixes.items():
            if folded.startswith(start):
                raise RefusedOption(option=prefix + key, instead=instead)
        if folded.startswith(self.not_yet_prefixes):
            raise RefusedOption(option=prefix + key, instead="this version does not support it yet.")
        raise UnknownOption(option=prefix + key, nearest=[prefix + name for name in self._nearest(folded)])

    def _nearest(self, folded: str) -> list[str]:
        """Return up to two known names that are similar to `folded`, else similar to it with or without `kafka.`."""
        import difflib  # for an unknown option only

        for attempt in (folded, f"kafka.{folded}", folded.removeprefix("kafka.")):
            near = difflib.get_close_matches(attempt, self.by_key, n=2, cutoff=0.75)
            if near:
                return [self.by_key[match].name for match in near]
        return []
