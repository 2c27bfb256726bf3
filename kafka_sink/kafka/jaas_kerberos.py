"""Reads the options of Krb5LoginModule, by which JVM clients log in to Kerberos.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/app.keytab" principal="app@R";

The result has at most keyTab, principal, ticketCache and serviceName. Options that tell a JVM how to prompt, store or
log have no effect. An option that asks for what the sink does not do is a problem, in words.

With useKeyTab and useTicketCache, Java looks into the cache first. The sink uses the keytab, which does not expire.

Source: com.sun.security.auth.module.Krb5LoginModule; com.ibm.security.auth.module.Krb5LoginModule (IBM's Java 8);
org.apache.kafka.common.security.kerberos.KerberosLogin (serviceName).
"""

from __future__ import annotations

from collections.abc import Mapping

ORACLE = "com.sun.security.auth.module.Krb5LoginModule"
IBM = "com.ibm.security.auth.module.Krb5LoginModule"

KEYTAB, PRINCIPAL, TICKET_CACHE, SERVICE_NAME = "keyTab", "principal", "ticketCache", "serviceName"
_USE_KEYTAB, _USE_TICKET_CACHE, _RENEW, _IS_INITIATOR = "useKeyTab", "useTicketCache", "renewTGT", "isInitiator"
_TEXTS = frozenset({KEYTAB, PRINCIPAL, TICKET_CACHE, SERVICE_NAME})
_FLAGS = frozenset({
    _USE_KEYTAB, _USE_TICKET_CACHE, _RENEW, _IS_INITIATOR,
    # Without effect here: the sink never prompts, and shares no state with other login modules.
    "storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "tryFirstPass", "useFirstPass", "storePass", "clearPass",
})  # fmt: skip
_IBM_FLAGS = frozenset({
    "useDefaultKeytab", "useDefaultCcache", "debug", "refreshKrb5Config", "doNotPrompt", "tryFirstPass", "useFirstPass",
    "forwardable", "proxiable", "renewable", "noAddress",
})  # fmt: skip
_IBM_TEXTS = {"useKeytab": KEYTAB, "useCcache": TICKET_CACHE, PRINCIPAL: PRINCIPAL, SERVICE_NAME: SERVICE_NAME}
_CREDS_TYPE = "credsType"

HOW = (
    'set useKeyTab=true keyTab="/path/of/app.keytab" principal="app@EXAMPLE.COM", or useTicketCache=true for the '
    "ticket of kinit"
)


class KerberosProblem(ValueError):
    """The problem with the options, without a value of them."""


def kerberos_options(module: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that matter, with the names of Oracle's module. Raises KerberosProblem."""
    found = _of_ibm(options) if module == IBM else dict(options)
    if module == ORACLE:
        _check_names(found, _TEXTS, _FLAGS)
        if not _is_true(found, _USE_KEYTAB) and KEYTAB in found:
            raise KerberosProblem("keyTab has an effect only with useKeyTab=true; add that, or remove keyTab")
        if not _is_true(found, _USE_TICKET_CACHE) and TICKET_CACHE in found:
            raise KerberosProblem("ticketCache has an effect only with useTicketCache=true; add that, or remove it")
    if found.get(_IS_INITIATOR, "true").lower() == "false":
        raise KerberosProblem("isInitiator=false is for servers; remove it")
    if _is_true(found, _USE_KEYTAB):
        return _of_keytab(found)
    if not _is_true(found, _USE_TICKET_CACHE):
        raise KerberosProblem(f"it names no Kerberos credentials; {HOW}")
    if _is_true(found, _RENEW):
        raise KerberosProblem(
            "renewTGT=true: the sink does not renew the ticket of a cache; remove it, and run `kinit -R` or kinit "
            "before the ticket expires, or use a keytab"
        )
    return _only(found, PRINCIPAL, TICKET_CACHE, SERVICE_NAME)


def _of_keytab(found: Mapping[str, str]) -> dict[str, str]:
    for name in (KEYTAB, PRINCIPAL):
        if not found.get(name):
            raise KerberosProblem(f"{name} is missing, which useKeyTab=true needs for Kerberos; {HOW}")
    if found[PRINCIPAL] == "*":
        raise KerberosProblem("principal=* is for servers; name the client's principal in the keytab")
    return _only(found, KEYTAB, PRINCIPAL, SERVICE_NAME)


def _only(found: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: found[name] for name in names if found.get(name)}


def _of_ibm(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of IBM's module with Oracle's names. Its files are URLs."""
    _check_names(options, frozenset(_IBM_TEXTS) | {_CREDS_TYPE}, _IBM_FLAGS)
    if options.get(_CREDS_TYPE, "both").lower() == "acceptor":
        raise KerberosProblem("credsType=acceptor is for servers; use credsType=initiator")
    if _is_true(options, "useDefaultKeytab"):
        raise KerberosProblem('useDefaultKeytab=true: name the file: useKeytab="file:/path/of/app.keytab"')
    found = {ours: options[theirs].removeprefix("file:") for theirs, ours in _IBM_TEXTS.items() if theirs in options}
    if KEYTAB in found:
        found[_USE_KEYTAB] = "true"
    if TICKET_CACHE in found or _is_true(options, "useDefaultCcache"):
        found[_USE_TICKET_CACHE] = "true"
    return found


def _check_names(options: Mapping[str, str], texts: frozenset[str], flags: frozenset[str]) -> None:
    for number, (name, value) in enumerate(options.items(), start=1):
        # The name is not shown: after a forgotten quote it may be part of a path or a password.
        if name not in texts | flags:
            raise KerberosProblem(f"option number {number} is none of {', '.join(sorted(texts | flags))}; remove it")
        if name in flags and value.lower() not in ("true", "false"):
            raise KerberosProblem(f"{name} is neither true nor false")


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"
