"""Reads `sasl.jaas.config`, the text in which JVM clients keep their credentials.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";

The class name is looked up in a table and never run. Vendors ship the modules with a prefix
(`kafkashaded.org.apache...`), which is ignored. Errors show nothing of the text, because it has a password in it.

Source: org.apache.kafka.common.security.JaasConfig, java.io.StreamTokenizer (quotes, escapes and comments);
OAuthBearerClientInitialResponse.validateExtensions; software.amazon.msk.auth.iam.internals.MSKCredentialProvider;
com.sun.security.auth.module.Krb5LoginModule; org.apache.kafka.common.security.kerberos.KerberosLogin (serviceName).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_PACKAGE = "org.apache.kafka.common.security."
KRB5_LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
# Module, without a vendor's prefix -> its mechanisms.
MODULES: Mapping[str, tuple[str, ...]] = {
    f"{_PACKAGE}plain.PlainLoginModule": ("PLAIN",),
    f"{_PACKAGE}scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    KRB5_LOGIN_MODULE: ("GSSAPI",),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM",),
}

KEYTAB, PRINCIPAL, TICKET_CACHE, SERVICE_NAME = "keyTab", "principal", "ticketCache", "serviceName"
_USE_KEYTAB, _USE_TICKET_CACHE, _RENEW, _IS_INITIATOR = "useKeyTab", "useTicketCache", "renewTGT", "isInitiator"
_KERBEROS_FLAGS = frozenset({
    _USE_KEYTAB, _USE_TICKET_CACHE, _RENEW, _IS_INITIATOR,
    # Without effect here: the sink never prompts, and shares no state with other login modules.
    "storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "tryFirstPass", "useFirstPass", "storePass", "clearPass",
})  # fmt: skip
_KERBEROS_ADVICE = (
    'set useKeyTab=true keyTab="/path/of/app.keytab" principal="app@EXAMPLE.COM", or useTicketCache=true for the '
    "ticket of kinit"
)

# The options that the sink supports. OAUTHBEARER also has extension_<name> (KIP-342).
_OPTIONS: Mapping[str, frozenset[str]] = {
    "PLAIN": frozenset({"username", "password"}),
    "SCRAM-SHA-256": frozenset({"username", "password"}),
    "OAUTHBEARER": frozenset({"clientId", "clientSecret", "scope"}),
    "GSSAPI": _KERBEROS_FLAGS | {KEYTAB, PRINCIPAL, TICKET_CACHE, SERVICE_NAME},
    "AWS_MSK_IAM": frozenset({
        "awsProfileName", "awsRoleArn", "awsRoleExternalId", "awsRoleSessionName", "awsStsRegion",
        # Accepted without effect: they change what Java's library logs, and how often it tries.
        "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs",
    }),
}  # fmt: skip
_NO_KEYS = "the options hold no AWS keys; set them in the environment or in a profile where the connection is made"
# What else Java's MSKCredentialProvider takes -> what to do instead.
_MSK_IAM_INSTEAD: Mapping[str, str] = {
    "awsRoleAccessKeyId": _NO_KEYS,
    "awsRoleSecretAccessKey": _NO_KEYS,
    "awsRoleSessionToken": _NO_KEYS,
    "awsShouldUseFips": "remove it, and set AWS_USE_FIPS_ENDPOINT=true where the connection is made",
    "awsMskRegionProvider": "remove it, and set AWS_REGION where the connection is made",
}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
EXTENSION = "extension_"
MAX_CHARACTERS = 64 * 1024
# RFC 7628, section 3.1. The broker ends the exchange at any other character. \x01 in a value would start another pair.
_RESERVED = f"{EXTENSION}auth"
_EXTENSION_NAME = re.compile(f"{EXTENSION}[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_MAX_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """`mechanisms`: those of the module. `options`: sorted by name."""

    mechanisms: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = field(repr=False)

    def get(self, name: str) -> str | None:
        return dict(self.options).get(name)


class JaasProblem(ValueError):
    """The problem with a text, without any part of the text."""


def parse_jaas(text: str) -> JaasLogin:
    """Return the parsed `text`. Raises JaasProblem."""
    if len(text) > MAX_CHARACTERS:
        raise JaasProblem(f"it has {len(text)} characters")
    tokens = _tokens(text)
    (_, module), (_, flag) = next(tokens, _END), next(tokens, _END)
    mechanisms = _mechanisms_of(module)
    if flag.lower() not in _FLAGS:
        raise JaasProblem("after the module comes a flag: required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while (name := next(tokens, _END)) != _SEMICOLON:
        if name == _END:
            raise JaasProblem("it does not end with a semicolon")
        equals, value = next(tokens, _END), next(tokens, _END)
        if name.is_mark or equals != _EQUALS or value.is_mark:
            raise JaasProblem(f'option number {len(options) + 1} is not name="value"')
        options[name.text] = value.text
    if next(tokens, _END) != _END:
        raise JaasProblem("it has more than one login module")
    _check_options(mechanisms[0], options)
    if mechanisms == ("GSSAPI",):
        options = _kerberos_options(options)
    if "awsProfileName" in options and "awsRoleArn" in options:
        raise JaasProblem("it has awsProfileName and awsRoleArn; use one of them, a profile may have a role_arn")
    return JaasLogin(mechanisms, tuple(sorted(options.items())))


def _mechanisms_of(module: str) -> tuple[str, ...]:
    for name, mechanisms in MODULES.items():
        if module == name or module.endswith(f".{name}"):
            return mechanisms
    if module.endswith(".Krb5LoginModule"):
        raise JaasProblem(f"its Krb5LoginModule is another vendor's; use {KRB5_LOGIN_MODULE} and its options")
    raise JaasProblem(
        "its login module is none of Kafka's PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, and not "
        "Java's Krb5LoginModule, and not MSK's IAMLoginModule"
    )


def _check_options(mechanism: str, options: Mapping[str, str]) -> None:
    known = _OPTIONS[mechanism]
    for number, (name, value) in enumerate(options.items(), start=1):
        if name in known:
            if mechanism == "GSSAPI" and name in _KERBEROS_FLAGS and value.lower() not in ("true", "false"):
                raise JaasProblem(f"{name} is neither true nor false")
            continue
        if mechanism == "OAUTHBEARER" and name.startswith(EXTENSION):
            _check_extension(name, value)
            continue
        if mechanism == "AWS_MSK_IAM" and _is_known_of_msk_iam(name, value):
            continue
        # The name is not shown: after a forgotten quote it may be part of a password.
        raise JaasProblem(f"option number {number} is none of {', '.join(sorted(known))}; remove it")


def _is_known_of_msk_iam(name: str, value: str) -> bool:
    """Return True for an option that asks for what the sink does. Raises JaasProblem for one that cannot work."""
    if name == "awsAddDefaultProviders":
        if value != "false":
            raise JaasProblem(f"{name} is not false; the sink writes with the profile or role that is named, or fails")
        return True
    if name in _MSK_IAM_INSTEAD:
        raise JaasProblem(f"{name}: {_MSK_IAM_INSTEAD[name]}")
    return False


def _check_extension(name: str, value: str) -> None:
    shown = name[:_MAX_SHOWN_CHARACTERS]
    if name == _RESERVED:
        raise JaasProblem(f"{shown} is the token's own place and cannot be an extension; remove it")
    if not _EXTENSION_NAME.fullmatch(name):
        raise JaasProblem(f"the name of the extension {shown!r} is not letters (A-Z, a-z) behind {EXTENSION!r}")
    if not _EXTENSION_VALUE.fullmatch(value):
        raise JaasProblem(f"the value of {shown} is empty, or not printable ASCII and white space alone")


def _kerberos_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have an effect here: those of the keytab or of the ticket cache, and serviceName.

    With useKeyTab and useTicketCache, Java looks into the cache first. The sink uses the keytab, which does not expire.
    """
    is_set = {name: given.get(name, "false").lower() == "true" for name in (_USE_KEYTAB, _USE_TICKET_CACHE, _RENEW)}
    if not is_set[_USE_KEYTAB] and KEYTAB in given:
        raise JaasProblem("keyTab has an effect only with useKeyTab=true; add that, or remove keyTab")
    if not is_set[_USE_TICKET_CACHE] and TICKET_CACHE in given:
        raise JaasProblem("ticketCache has an effect only with useTicketCache=true; add that, or remove it")
    if given.get(_IS_INITIATOR, "true").lower() == "false":
        raise JaasProblem("isInitiator=false is for servers; remove it")
    if is_set[_USE_KEYTAB]:
        for name in (KEYTAB, PRINCIPAL):
            if not given.get(name):
                raise JaasProblem(f"{name} is missing, which useKeyTab=true needs for Kerberos; {_KERBEROS_ADVICE}")
        if given[PRINCIPAL] == "*":
            raise JaasProblem("principal=* is for servers; name the client's principal in the keytab")
    elif not is_set[_USE_TICKET_CACHE]:
        raise JaasProblem(f"it names no Kerberos credentials; {_KERBEROS_ADVICE}")
    elif is_set[_RENEW]:
        raise JaasProblem(
            "renewTGT=true: the sink does not renew the ticket of a cache; remove it, and run `kinit -R` or kinit "
            "before the ticket expires, or use a keytab"
        )
    used = (KEYTAB if is_set[_USE_KEYTAB] else TICKET_CACHE, PRINCIPAL, SERVICE_NAME)
    return {name: given[name] for name in used if given.get(name)}


# --- the words of the text --------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?(?:\*/|\Z)|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[=;])|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class _Token(NamedTuple):
    is_mark: bool
    text: str


_END, _SEMICOLON, _EQUALS = _Token(True, ""), _Token(True, ";"), _Token(True, "=")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasProblem("a quote is not closed")
        position = match.end()
        if match["quoted"] is not None:
            yield _Token(False, _ESCAPE.sub(_unescaped, match["quoted"][1:-1]))
        elif match["mark"] or match["word"]:
            yield _Token(match["mark"] is not None, match[0])


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _ESCAPES.get(what, what)
