"""What a status of Kerberos means, and what to do: one table.

A status has two parts. `major` is GSS-API's (RFC 2744). `minor` is Kerberos' own code (krb5.h; RFC 4120, 7.5.9).
The words of the library are added, because they name the realm, the principal or the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_sink.errors.quoting import MAX_HOST_CHARACTERS, quoted

CREDENTIALS_EXPIRED = 11 << 16
# Protocol errors of RFC 4120 follow this code; the library's own are behind them.
_KRB5 = -1765328384
_MAX_WORDS = 300
# 5, then the version of the format (MIT Kerberos, doc/formats/keytab_file_format.rst).
_KEYTAB_STARTS = (b"\x05\x01", b"\x05\x02")

INSTALL = "apt-get install libgssapi-krb5-2 (Debian, Ubuntu), or yum install krb5-libs (RHEL, Amazon Linux)"


@dataclass(frozen=True, slots=True)
class Place:
    """What an exchange is about: the broker and the files."""

    service_name: str
    host: str
    keytab: str | None
    ticket_cache: str | None

    @property
    def service(self) -> str:
        """The broker's principal without its realm."""
        return f"{self.service_name}/{quoted(self.host, MAX_HOST_CHARACTERS)}"

    @property
    def cache(self) -> str:
        return "the default ticket cache (KRB5CCNAME)" if self.ticket_cache is None else f"{self.ticket_cache!r}"


@dataclass(frozen=True, slots=True)
class Failure:
    """What happened and what to do, as templates over a Place. `is_final`: no retry helps."""

    reason: str
    remedy: str
    is_final: bool = True

    def at(self, place: Place) -> Failure:
        facts = {"service": place.service, "host": place.host, "keytab": place.keytab, "cache": place.cache}
        return replace(self, reason=self.reason.format(**facts), remedy=self.remedy.format(**facts))


NO_LIBRARY = Failure("this machine has no libgssapi_krb5", f"install it on the driver and on all executors: {INSTALL}")
BUSY = Failure("the KDC did not answer in time", "check the KDCs in krb5.conf from this host", is_final=False)
_KINIT = "run kinit as this process's user on this machine, or use a keytab (useKeyTab, keyTab and principal)"
_CLOCK = "compare the clocks of this machine, the broker and the KDC, and run NTP on all"
_NO_CACHE = Failure("there is no ticket in {cache}", _KINIT)
_NO_TICKET_CACHE = Failure("{cache} is no ticket cache", "correct ticketCache in kafka.sasl.jaas.config")
_NOT_IN_KEYTAB = Failure(
    "the keytab {keytab!r} has no key of this principal",
    "list its principals with `klist -k`, and correct principal in kafka.sasl.jaas.config, or the keytab",
)
_NO_KDC = Failure(
    "the KDC cannot be reached",
    "check that a KDC of the realm runs, that krb5.conf (KRB5_CONFIG) names it, and that this host can reach its port",
    is_final=False,
)
_NO_REALM = Failure(
    "krb5.conf does not say which realm or KDC to use",
    "correct /etc/krb5.conf on the driver and on all executors, or set KRB5_CONFIG there to another file",
)
_EXPIRED = Failure("the ticket in {cache} has expired", _KINIT)
# With a keytab the library replaces a ticket in time.
_EXPIRED_AT_ONCE = Failure("the ticket that the KDC gave for the keytab {keytab!r} has expired", _CLOCK)
_SKEW = Failure("the clocks differ too much", _CLOCK)
_OLD_KEY = Failure(
    "the KDC does not accept the key in the keytab {keytab!r}",
    "export the keytab again: the principal's key or password was changed after the keytab was made",
)
_LOCKED = Failure(
    "the KDC does not let this principal log in", "ask the realm's administrator to look at the principal"
)

# Minor status -> failure.
STATUSES: Mapping[int, Failure] = {
    _KRB5 + 1: _LOCKED,  # KDC_ERR_NAME_EXP
    _KRB5 + 6: Failure(
        "the realm does not know this principal", "correct principal in kafka.sasl.jaas.config, or create the principal"
    ),
    _KRB5 + 7: Failure(
        "the realm does not know the broker as {service}",
        "correct kafka.sasl.kerberos.service.name (the part before '/'), or let the broker advertise the host name in "
        "its principal (the part after '/'); krb5.conf may rename hosts by dns_canonicalize_hostname, rdns and "
        "domain_realm",
    ),
    _KRB5 + 12: _LOCKED,  # KDC_ERR_POLICY
    _KRB5 + 14: Failure(
        "the KDC has no encryption type in common with this client",
        "export the keytab with aes256-cts-hmac-sha1-96, and look at permitted_enctypes in krb5.conf",
    ),
    _KRB5 + 18: _LOCKED,  # KDC_ERR_CLIENT_REVOKED
    _KRB5 + 23: _LOCKED,  # KDC_ERR_KEY_EXPIRED
    _KRB5 + 24: _OLD_KEY,  # KDC_ERR_PREAUTH_FAILED
    _KRB5 + 31: _OLD_KEY,  # KRB_AP_ERR_BAD_INTEGRITY
    _KRB5 + 32: _EXPIRED,
    # As Kafka's KerberosError, these three are retried.
    _KRB5 + 21: Failure("the principal is not valid yet", _CLOCK, is_final=False),
    _KRB5 + 33: Failure("the ticket is not valid yet", _CLOCK, is_final=False),
    _KRB5 + 34: Failure("the broker takes the request for a replay", _CLOCK, is_final=False),
    _KRB5 + 37: _SKEW,
    _KRB5 + 136: _NO_REALM,  # KRB5_CONFIG_BADFORMAT
    _KRB5 + 141: _NO_CACHE,  # KRB5_CC_NOTFOUND
    _KRB5 + 154: _NO_REALM,  # KRB5_REALM_UNKNOWN
    _KRB5 + 155: _NO_KDC,  # KRB5_REALM_CANT_RESOLVE
    _KRB5 + 156: _NO_KDC,  # KRB5_KDC_UNREACH
    _KRB5 + 181: _NOT_IN_KEYTAB,  # KRB5_KT_NOTFOUND
    _KRB5 + 194: Failure(
        "{cache} cannot be read", "let the user of the Spark process read the file, or run kinit as that user"
    ),
    _KRB5 + 195: _NO_CACHE,  # KRB5_FCC_NOFILE
    _KRB5 + 140: _NO_TICKET_CACHE,  # KRB5_CC_UNKNOWN_TYPE
    _KRB5 + 199: _NO_TICKET_CACHE,  # KRB5_CC_FORMAT
    _KRB5 + 212: _NO_TICKET_CACHE,  # KRB5_CCACHE_BADVNO
    _KRB5 + 224: _NO_REALM,  # KRB5_CONFIG_NODEFREALM
    # KG_CCACHE_NOMATCH, of the table "ggss"
    39756032: Failure(
        "the ticket in {cache} belongs to another principal",
        "remove principal from kafka.sasl.jaas.config, or run kinit for it",
    ),
}
_OTHER = Failure(
    "Kerberos failed",
    "look up the words above in the documentation of MIT Kerberos; KRB5_TRACE=/dev/stderr shows each step",
)

_NOT_KERBEROS = Failure(
    "the peer's answer is not Kerberos' or was changed on the way", "look into the broker's log, and check the port"
)
# For a minor status that is not in the table.
_BY_MAJOR: Mapping[int, Failure] = {
    2 << 16: Failure("a principal is not valid", "correct principal in kafka.sasl.jaas.config"),  # GSS_S_BAD_NAME
    6 << 16: _NOT_KERBEROS,  # GSS_S_BAD_SIG
    9 << 16: _NOT_KERBEROS,  # GSS_S_DEFECTIVE_TOKEN
}


def read_status(major: int, minor: int, words: str, place: Place) -> Failure:
    """Return what a status means. `words`: the library's for both parts."""
    failure = _EXPIRED if major == CREDENTIALS_EXPIRED else STATUSES.get(minor, _OTHER)
    if failure is _EXPIRED and place.keytab is not None:
        failure = _EXPIRED_AT_ONCE
    elif failure is _NO_CACHE and place.keytab is not None:
        # The library looks for a cache when the keytab cannot fill one.
        failure = _NOT_IN_KEYTAB
    elif failure is _OTHER:
        failure = _BY_MAJOR.get(major, _OTHER)
    named = failure.at(place)
    return replace(named, reason=f"{named.reason} ({quoted(_minor_words(words), _MAX_WORDS)})")


def _minor_words(words: str) -> str:
    """Return the library's words for the minor status, which are the last, unless they say nothing."""
    major, _, minor = words.rpartition("; ")
    return minor if minor and minor != "Success" else major or words


def keytab_problem(path: str) -> Failure | None:
    """Return why the file cannot be a keytab, or None. The library would only say that it found no ticket."""
    place = Place("", "", path, None)
    try:
        with Path(path).open("rb") as file:
            start = file.read(2)
    except FileNotFoundError:
        return Failure(
            "there is no keytab {keytab!r} on this host",
            "put it there on the driver and on all executors, or ship it with --files and give its bare name",
        ).at(place)
    except OSError as error:
        remedy = "let the user of the Spark process read the file"
        return Failure(f"the keytab {{keytab!r}} cannot be read: {error.strerror}", remedy).at(place)
    if start not in _KEYTAB_STARTS:
        return Failure("{keytab!r} is no keytab", "make one with ktutil, kadmin or ktpass").at(place)
    return None


def broker_refused(place: Place) -> str:
    """Return what to do if the broker refuses the ticket. It does not say why."""
    return (
        f"look into the broker's log. Check that its keytab has the current key of {place.service}, that the clocks of "
        "broker and client differ by less than 5 minutes, and that sasl.kerberos.principal.to.local.rules has a rule "
        "for this principal"
    )
