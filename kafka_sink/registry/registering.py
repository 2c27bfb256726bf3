"""Asks the registry by the official client, on the driver, and explains its refusals. Names subjects as that client.

The client does retries, TLS and authentication. Its timeouts apply within `ASK_TIMEOUT_S`. Messages show the registry's
answer without the conf's secrets. The client's exceptions are not chained, because those of the HTTP library may quote
a URL with a password.

Source: confluent_kafka.schema_registry.SchemaRegistryClient; Confluent's API reference for the codes, of which 409 is
"incompatible".
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from kafka_sink.errors import (
    InvalidOption,
    RegistryAnswerUnusable,
    RegistryRefused,
    RegistryUnreachable,
    SchemaIncompatible,
    SchemaNotRegistered,
)
from kafka_sink.errors.quoting import quoted
from kafka_sink.kafka.clock import within
from kafka_sink.registry.forms import extra

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


NOT_FOUND, CONFLICT = 404, 409
# The codes for no such subject, version or schema. A 404 without one is of another server, e.g. if the url is wrong.
NO_SUCH = range(40_400, 40_500)
# The client's own code and words, for an answer that has none.
MALFORMED = -1
NO_WORDS = ("None", "Unknown Schema Registry Error: b''")
INT32_MAX = 2**31 - 1
# A registry keeps a schema in one record of its topic: by default 1 MiB at most.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
# A nested record adds three brackets. Parsers of schemas recurse for each.
MAX_DEPTH = 200
MAX_SHOWN_CHARACTERS = 60
# A string, with `end` None if it is not closed, or a bracket. Each character is looked at once.
BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:(?P<end>")|\\?\Z)|[\[\]{}]', re.DOTALL)
ONLY_BRACKETS = re.compile(r"[\[\]{}]")
# Limit of one request with the client's own retries. The client's option `timeout` limits one `recv` only, and is
# unlimited by default.
ASK_TIMEOUT_S = 120.0
# Keys of a conf for the official client's serializers, and their defaults there.
SERIALIZER_KEYS = {"auto.register.schemas": True, "use.latest.version": False, "normalize.schemas": False}
# The client needs numbers for these keys, but a conf may have strings.
NUMBERS = {"timeout": float, "max.retries": int, "retries.wait.ms": int, "retries.max.wait.ms": int,
           "cache.capacity": int, "cache.latest.ttl.sec": int}  # fmt: skip
SECRET = re.compile("password|secret|user.info|token|provider.config")
# Tokens that the client fetches are not in its conf: JWTs, and any other in a header.
FETCHED = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*|(?<=Bearer )\S+")
# Keys of a conf for urls, which may have a user and a password.
URLS = ("url", "proxy", "bearer.auth.issuer.endpoint.url")
IN_QUOTES = re.compile(r"(['\"]).*\1")
# Text in the place of a url's port that is not a number. The end of an IPv6 address does not match.
NO_PORT = re.compile(r":(?!\d*$)[^:\]]*$")


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered schema. The text of a Protobuf schema is a FileDescriptorProto in base64."""

    schema_id: int
    schema: Schema

    @property
    def text(self) -> str:
        return str(self.schema.schema_str)


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry. No message shows `secrets`, the secrets of the conf."""

    client: SchemaRegistryClient = field(repr=False)
    url: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    registers: bool = True
    uses_latest: bool = False
    normalizes: bool = False

    @classmethod
    def of(cls, registry: Mapping[str, Any] | SchemaRegistryClient) -> Registry:
        """Make a Registry from a conf or a client. Raises InvalidOption if the client refuses the conf."""
        official = extra("confluent_kafka.schema_registry").SchemaRegistryClient
        if isinstance(registry, official):
            its: Any = registry.config
            return cls(registry, "that of the given client", _secrets(its()))
        if not isinstance(registry, Mapping):
            raise TypeError("registry is a mapping with a url, or a SchemaRegistryClient")
        conf = dict(registry)
        asked = {key: _boolean(key, conf.pop(key, default)) for key, default in SERIALIZER_KEYS.items()}
        try:
            conf |= {key: number(conf[key]) for key, number in NUMBERS.items() if key in conf}
            client = _bounded(official.new_client(conf))
        except (ValueError, TypeError, OSError) as error:
            # Only these texts name keys alone. Others quote values.
            words = f". {error}" if str(error).startswith(("Missing ", "Unrecognized properties: ")) else ""
            expected = (
                "url and what else confluent_kafka.schema_registry.SchemaRegistryClient takes, as it takes it (found: "
                f"{', '.join(sorted(map(str, registry)))}){words}"
            )
            raise InvalidOption(option="registry", value=None, expected=expected) from None
        url = str(conf.get("url", ""))
        return cls(
            client,
            ",".join(_without_user(one) for one in url.split(",")),
            _secrets(conf),
            registers=asked["auto.register.schemas"] and not asked["use.latest.version"],
            uses_latest=asked["use.latest.version"],
            normalizes=asked["normalize.schemas"],
        )

    def schema_id(self, subject: str, schema: Schema) -> int:
        """Register the schema, or look it up if the conf forbids registering. Return its id.

        Raises SchemaIncompatible, SchemaNotRegistered, RegistryRefused or RegistryUnreachable.
        """
        if self.registers:
            schema_id = self._ask(subject, "register_schema", subject, schema, normalize_schemas=self.normalizes)
        else:
            schema_id = self._lookup(subject, schema).schema_id
        return self._number(subject, "id", schema_id, least=0)

    def version(self, subject: str, schema: Schema) -> int:
        """Register or look up a schema that others reference. Return its version. Raises as `schema_id` does."""
        self.schema_id(subject, schema)
        return self._number(subject, "version", self._lookup(subject, schema).version, least=1)

    def _lookup(self, subject: str, schema: Schema) -> Any:
        return self._ask(subject, "lookup_schema", subject, schema, normalize_schemas=self.normalizes)

    def latest(self, subject: str, fmt: str | None = None) -> Registered:
        """Return the subject's latest schema.

        Raises SchemaNotRegistered if there is none, RegistryRefused, RegistryUnreachable, RegistryAnswerUnusable.
        """
        found = self._ask(subject, "get_latest_version", subject, **_format(fmt))
        return Registered(self._number(subject, "id", found.schema_id, least=0), self.readable(subject, found.schema))

    def version_of(self, subject: str, version: int, fmt: str | None, *, timeout_s: float) -> Schema:
        """Return one version of a subject, also a version that was deleted softly. Raises as `latest` does."""
        named = {"deleted": True, **_format(fmt)}
        found = self._ask(subject, "get_version", subject, version, timeout_s=timeout_s, **named)
        return self.readable(subject, found.schema)

    def by_id(self, of_schema: int | str, subject: str, fmt: str | None) -> Schema | None:
        """Return the schema with an id (int) or a GUID, or None if the registry has none.

        `subject`: a registry with several contexts looks for the id in the subject's. Raises as `latest` does.
        """
        about = f"{subject} (schema {of_schema})"
        try:
            if isinstance(of_schema, int):
                schema = self._ask(about, "get_schema", of_schema, subject, **_format(fmt))
            else:
                schema = self._ask(about, "get_schema_by_guid", of_schema, **_format(fmt))
        except SchemaNotRegistered:
            return None
        except RegistryRefused as error:
            if isinstance(of_schema, int) or error.status != NOT_FOUND:
                raise
            # A registry without GUIDs, e.g. Apicurio 2, answers as a server that is none. But it knows of ids.
            self.by_id(1, subject, fmt)
            return None
        return self.readable(about, schema)

    def forget(self) -> None:
        """Empty the client's cache."""
        clear: Any = self.client.clear_caches
        clear()

    def readable(self, subject: str, schema: Any) -> Schema:
        """Return a schema of an answer. Raises RegistryAnswerUnusable if it has no text, or is nested too deep."""
        if not isinstance(schema.schema_str, str):
            raise RegistryAnswerUnusable(url=self.url, subject=subject, reason="it has no schema")
        if depth_of(schema.schema_str) > MAX_DEPTH:
            reason = f"its schema is nested more than {MAX_DEPTH} levels deep"
            raise RegistryAnswerUnusable(url=self.url, subject=subject, reason=reason)
        found: Schema = schema
        return found

    def latest_or_none(self, subject: str, fmt: str | None = None) -> Registered | None:
        try:
            return self.latest(subject, fmt)
        except SchemaNotRegistered:
            return None

    def _ask(self, subject: str, method: str, *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
        limit_s = ASK_TIMEOUT_S if timeout_s is None else min(timeout_s, ASK_TIMEOUT_S)
        refusal = extra("confluent_kafka.schema_registry.error").SchemaRegistryError
        try:
            return within(limit_s, lambda: getattr(self.client, method)(*arguments, **named))
        except refusal as error:
            # An answer of JSON that is no registry's may have neither.
            message = str(error.error_message)
            message = "" if message in NO_WORDS else self._quoted(message)
            code = error.error_code if isinstance(error.error_code, int) else MALFORMED
            if error.http_status_code == CONFLICT:
                raise SchemaIncompatible(
                    subject=subject, version=self._version(subject, message), reason=message
                ) from None
            if error.http_status_code == NOT_FOUND and code in NO_SUCH:
                raise SchemaNotRegistered(subject=subject, reason=message) from None
            raise RegistryRefused(
                subject=subject, status=error.http_status_code, error_code=code, reason=message
            ) from None
        except _transport_errors() as error:
            raise RegistryUnreachable(url=self.url, reason=self._quoted(_told(error))) from None
        except _url_errors() as error:
            # These exceptions quote a part of the url, e.g. as a port, which may be a part of a password.
            message = IN_QUOTES.sub("***", _told(error))
            raise RegistryUnreachable(url=self.url, reason=self._quoted(message)) from None
        except _Unusable as error:
            raise RegistryAnswerUnusable(url=self.url, subject=subject, reason=str(error)) from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            # The client failed to parse the answer. The exception's text may quote the answer, so it is not shown.
            reason = f"it is not what a schema registry answers ({type(error).__name__})"
            raise RegistryAnswerUnusable(url=self.url, subject=subject, reason=reason) from None

    def _number(self, subject: str, what: str, value: object, *, least: int) -> int:
        """Return an id or a version if it is in the range of Java's int. Raises RegistryAnswerUnusable."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= INT32_MAX:
            return value
        reason = f"its {what} is {quoted(repr(value), MAX_SHOWN_CHARACTERS)}, and not from {least} to {INT32_MAX}"
        raise RegistryAnswerUnusable(url=self.url, subject=subject, reason=reason)

    def _version(self, subject: str, message: str) -> str:
        """Return the version that the schema was compared with: from the registry's answer, else the latest."""
        found = re.search(r"oldSchemaVersion: *(\d+)", message)
        if found:
            return found[1]
        try:
            return str(within(ASK_TIMEOUT_S, lambda: self.client.get_latest_version(subject)).version)
        except Exception:
            # The refusal is more important than any error here.
            return "unknown"

    def _quoted(self, message: str) -> str:
        for secret in self.secrets:
            message = message.replace(secret, "***")
        return " ".join(FETCHED.sub("***", message).split())


def _told(error: Exception) -> str:
    """Return the error's type and text, which may be empty."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _format(fmt: str | None) -> dict[str, Any]:
    return {"fmt": fmt} if fmt else {}


class _Unusable(Exception):
    """The answer is compressed or too large, so it is not read to its end."""


def _bounded(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """Limit the client's answers to MAX_ANSWER_BYTES. The in-memory client has no session."""
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if session is not None:
        # A few compressed bytes may expand to gigabytes.
        session.headers["Accept-Encoding"] = "identity"
        session.event_hooks["response"].append(_bound)
    return client


def _bound(response: Any) -> None:
    """Limit the size of a response, before its body is read."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _Unusable("it is compressed, which was not asked for")
    (stream_type,) = (library.SyncByteStream for library in _http_libraries()[:1])
    inner = response.stream

    class Bounded(stream_type):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[bytes]:
            size_bytes = 0
            for chunk in inner:
                size_bytes += len(chunk)
                if size_bytes > MAX_ANSWER_BYTES:
                    raise _Unusable(f"it is larger than {MAX_ANSWER_BYTES} bytes")
                yield chunk

        def close(self) -> None:
            inner.close()

    response.stream = Bounded()


def depth_of(text: str) -> int:
    """Return the depth of nested brackets outside strings; 0 for a text without brackets."""
    depth = deepest = 0
    for bracket in _brackets(text):
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def _brackets(text: str) -> Iterator[str]:
    """Yield the brackets outside strings. A quote that is not closed begins no string, nor does any later one."""
    for mark in BRACKETS.finditer(text):
        if mark[0] in "[]{}":
            yield mark[0]
        elif mark["end"] is None:
            yield from (bracket[0] for bracket in ONLY_BRACKETS.finditer(text, mark.start()))
            return


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return the transport exceptions that the client does not translate."""
    http = (library.HTTPError for library in _http_libraries())
    return (extra("confluent_kafka.schema_registry.error").OAuthTokenError, OSError, *http)


def _url_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions for an invalid port or host in the url."""
    return (UnicodeError, *(library.InvalidURL for library in _http_libraries()))


def _http_libraries() -> list[Any]:
    """Return the imported HTTP libraries. Their name depends on the client's version."""
    return [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]


def _boolean(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise InvalidOption(option=f"registry[{key!r}]", value=str(value), expected="true or false")
    return str(value).lower() == "true"


def _secrets(conf: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets, longest first: a user with password is replaced before the password alone. A proxy may answer
    with the request, which has both in base64."""
    given = [value for key, value in conf.items() if SECRET.search(key) and value]
    secrets = {str(one) for value in given for one in (value.values() if isinstance(value, Mapping) else [value])}
    secrets |= {_user_and_rest(url)[0] for key in URLS for url in str(conf.get(key, "")).split(",")}
    secrets |= {f"{conf.get('bearer.auth.client.id')}:{one}" for one in [conf.get("bearer.auth.client.secret")] if one}
    secrets |= {unquote(value) for value in secrets}
    in_base64 = {base64.b64encode(value.encode()).decode() for value in secrets if ":" in value}
    secrets |= {part for value in secrets for part in value.split(":", 1)[1:]} | in_base64
    return tuple(sorted(filter(None, secrets), key=len, reverse=True))


def _without_user(url: str) -> str:
    """Return the url without its user. An invalid port is hidden too: without a host it may be a password."""
    parts = urlsplit(url.strip())
    rest = urlsplit(f"//{_user_and_rest(url)[1]}")
    return urlunsplit((parts.scheme, NO_PORT.sub(":***", rest.netloc), rest.path, "", ""))


def _user_and_rest(url: str) -> tuple[str, str]:
    """Split the part after `//` at the last @, because a password may contain an unescaped /."""
    user, _, rest = url.strip().partition("//")[2].rpartition("@")
    return user, rest


# --- subjects ---------------------------------------------------------------------------------------------------------

# The official client's strategies: one schema for each topic, for each record type in all topics, or for each record
# type and topic.
STRATEGIES = {
    "topic": "topic_subject_name_strategy",
    "record": "record_subject_name_strategy",
    "topic-record": "topic_record_subject_name_strategy",
}


def subject_name(strategy: str, topic: str, record_name: str, is_key: bool) -> str:
    """Return the name of a schema in the registry. Raises ValueError if it takes the record's name, and there is none.

    >>> subject_name("topic", "orders", "orders_value", is_key=False)
    'orders-value'
    """
    if strategy != "topic" and not record_name:
        raise ValueError(f"subject={strategy!r} takes the name of the record, and the schema has no name")
    serialization = extra("confluent_kafka.serialization")
    field = serialization.MessageField.KEY if is_key else serialization.MessageField.VALUE
    name_of = getattr(extra("confluent_kafka.schema_registry"), STRATEGIES[strategy])
    subject: str = name_of(serialization.SerializationContext(topic, field), record_name)
    return subject


def record_name(topic: str, is_key: bool) -> str:
    """Return the name of a derived record. Avro and Protobuf allow letters, digits and underscores.

    >>> record_name("shop.orders-eu", is_key=False)
    'shop_orders_eu_value'
    """
    letters = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"{'_' if letters[:1].isdigit() else ''}{letters}_{'key' if is_key else 'value'}"
