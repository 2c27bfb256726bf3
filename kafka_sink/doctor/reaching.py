"""Verdicts about one host and port: how far a connection came, what stopped it, and what to do about it.

    Attempt (what happened, as the shell saw it) ─> host_verdicts ─> one verdict for each of HOST_STEPS

Pure: what goes in are names, addresses and exceptions.

Non-obvious:

* A failure belongs to the step whose setting is wrong, not to the one at which it showed: a TLS listener answers a
  plaintext client's ApiVersions with an alert, and one that asks for SASL hangs up on the first request after it.
* TLS 1.3 brokers refuse a client's certificate after the client's handshake is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_sink.doctor.report import Finding, Status, Verdict, failed, ok, skipped, warning
from kafka_sink.doctor.steps import HOST_STEPS
from kafka_sink.errors import ProtocolError, SaslRefused, TlsExpected
from kafka_sink.kafka.config import SecurityConfig
from kafka_sink.kafka.net.transport import TlsFailure
from kafka_sink.kafka.protocol.sasl import TOO_SLOW
from kafka_sink.options.cautions import Caution, sasl_caution, tls_caution
from kafka_sink.text.quoting import MAX_HOST_CHARACTERS, quoted


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a connection stopped: the step to blame, what was seen, what to do."""

    step: str
    found: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One connection to `host`:`port`. `tls` and `versions`: what was agreed on, as far as it came. `failure` None: it
    answered a request."""

    host: str
    port: int
    addresses: tuple[str, ...] = ()
    connected_to: str = ""
    tls: str = ""
    versions: str = ""
    failure: Failure | None = None


def address_text(host: str, port: int) -> str:
    shown = quoted(host, MAX_HOST_CHARACTERS)
    return f"[{shown}]:{port}" if ":" in host else f"{shown}:{port}"


# --- what stopped it --------------------------------------------------------------------------------------------------

_DISPENSABLE = ("dns", "tcp", "api versions")
_ADVERTISED = (
    "the cluster told this address to clients: set advertised.listeners of the broker's listener to a name and port "
    "that this host reaches, or make this one reachable ({general})"
)


def advertised(failure: Failure) -> Failure:
    """The same of an address that no user wrote: a bootstrap server answers, and the address it gives out does not."""
    if failure.step not in ("dns", "tcp"):
        return failure
    return Failure(failure.step, failure.found, _ADVERTISED.format(general=failure.remedy))


def dns_failure(error: OSError, host: str) -> Failure:
    what = "no name server tells" if isinstance(error, TimeoutError) else "it cannot be resolved"
    return Failure(
        "dns",
        f"{quoted(host, MAX_HOST_CHARACTERS)!r}: {what} ({error.strerror or error})",
        "correct the name, or add it to DNS or /etc/hosts of this host; in a container, look at its resolver and "
        "search domains",
    )


def tcp_failure(error: OSError, tried: Sequence[str]) -> Failure:
    """`tried`: the addresses, none of which took the connection."""
    at = ", ".join(tried)
    if isinstance(error, ConnectionRefusedError):
        return Failure(
            "tcp",
            f"nothing listens there: {at} refused the connection",
            "check the port, and that the broker runs and its listener is bound to this interface",
        )
    if isinstance(error, TimeoutError):
        return Failure(
            "tcp",
            f"{at} does not answer at all ({error})",
            "something drops the packets: a firewall, a security group, a missing route or VPN. Open the port from "
            "this host",
        )
    return Failure(
        "tcp", f"{at} cannot be reached: {error.strerror or error}", "check the route from this host to the broker"
    )


def tls_failure(tls: TlsFailure) -> Failure:
    return Failure("tls", tls.step, tls.advice)


def tls_timed_out(error: TimeoutError) -> Failure:
    return Failure(
        "tls",
        f"the port accepts connections and then says nothing: no TLS handshake ({error})",
        "check that a broker's TLS listener is behind it, and not a load balancer or proxy without one",
    )


_SASL_EXPECTED = (
    "use the credentials of this listener (kafka.security.protocol=SASL_SSL or SASL_PLAINTEXT, kafka.sasl.mechanism, "
    "kafka.sasl.jaas.config), or the port of a listener without SASL"
)


def hung_up(at: str, *, is_authenticated: bool) -> Failure:
    """The peer closed the connection. `at`: the step it was at; "request" is the first one after all of them."""
    match at:
        case "api versions":
            return Failure(
                at,
                "the peer closed the connection instead of an answer to ApiVersions",
                "check that this is the port of a Kafka listener, not of ZooKeeper, a controller, or a proxy; if it "
                "is one with TLS, set kafka.security.protocol=SSL or SASL_SSL",
            )
        case "request" if not is_authenticated:
            return Failure(
                "sasl",
                "the peer answers ApiVersions and hangs up on the first request: this listener asks for authentication",
                _SASL_EXPECTED,
            )
        case _:
            return Failure(
                "sasl",
                "the peer closed the connection during authentication",
                "look into the broker's log: it names the client's address and the reason",
            )


def said_nothing(at: str, error: TimeoutError) -> Failure:
    if at == "api versions":
        return Failure(
            at,
            f"the port accepts connections and then says nothing to ApiVersions ({error})",
            "check that a broker is behind it: a load balancer or proxy accepts connections without one; a listener "
            "with TLS waits for a handshake (kafka.security.protocol=SSL or SASL_SSL); a broker that starts or hangs "
            "is in its own log",
        )
    return Failure("sasl", f"no answer to {at} ({error})", "look into the broker's log")


def too_slow(error: TimeoutError) -> Failure:
    return Failure(
        "sasl",
        f"{TOO_SLOW} ({error})",
        "have the user's SCRAM credentials made again with 4096 to 16384 iterations (kafka-configs.sh), or check on a "
        "host that is less busy",
    )


def not_kafka(error: ProtocolError) -> Failure:
    """Bytes that are no answer, or one that breaks off the authentication."""
    match error:
        case TlsExpected():
            return Failure(
                "tls",
                error.detail,
                "set kafka.security.protocol to SSL, or SASL_SSL, or use the port of a plaintext listener",
            )
        case SaslRefused():
            return Failure("sasl", f"{error.mechanism} as {error.user!r}: {error.reason}", _sasl_remedy(error.reason))
        case _:
            return Failure(
                "api versions",
                f"the peer does not speak Kafka as this client does: {error.detail}",
                "use the port of a Kafka listener (often 9092 to 9094), not that of a REST proxy, schema registry, "
                "console or exporter; brokers must be Kafka 3.3 or newer",
            )


def _sasl_remedy(reason: str) -> str:
    if "does not offer it" in reason:
        return "set kafka.sasl.mechanism to one that it offers, or add this one to the broker's sasl.enabled.mechanisms"
    if "expects no authentication" in reason:
        return "set kafka.security.protocol to SSL or PLAINTEXT, or use the port of the SASL listener"
    return (
        "check user name and password (kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password), that "
        "the cluster has this user, and for SCRAM that it has credentials of this mechanism"
    )


def no_token(reason: str) -> Failure:
    return Failure("sasl", reason, "check the token endpoint's URL, the client id, secret and scope, from this host")


# --- the verdicts -----------------------------------------------------------------------------------------------------


def host_verdicts(attempt: Attempt, where: str, security: SecurityConfig) -> tuple[Verdict, ...]:
    """One for each of HOST_STEPS: those before the failure are well, those behind it skipped."""
    failure = attempt.failure
    stopped_at = len(HOST_STEPS) if failure is None else HOST_STEPS.index(failure.step)
    verdicts = []
    for place, step in enumerate(HOST_STEPS):
        if failure is not None and place == stopped_at:
            finding = failed(failure.found, failure.remedy)
        elif place > stopped_at:
            finding = skipped(f"because of {HOST_STEPS[stopped_at]}")
        else:
            finding = _went_well(step, attempt, security)
        verdicts.append(Verdict(step, where, finding))
    return tuple(verdicts)


def dispensable(verdict: Verdict) -> Verdict:
    """The same of a bootstrap server beside which another one answers: a write begins with that one. A certificate or
    a password that is refused ends it all the same."""
    if verdict.status is not Status.FAILED or verdict.step not in _DISPENSABLE:
        return verdict
    remedy = f"{verdict.finding.remedy}. Until then writes begin with the other bootstrap servers"
    return replace(verdict, finding=warning(verdict.finding.found, remedy))


def _went_well(step: str, attempt: Attempt, security: SecurityConfig) -> Finding:
    protocol = f"kafka.security.protocol={security.security_protocol}"
    match step:
        case "dns":
            return ok(", ".join(attempt.addresses))
        case "tcp":
            return ok(f"connected to {attempt.connected_to}")
        case "tls":
            found = attempt.tls or f"none ({protocol})"
            return _cautious(found, tls_caution(security))
        case "api versions":
            return ok(attempt.versions)
        case _:
            who = f"{security.sasl_mechanism}, {security.principal or 'by a token'}"
            found = who if security.is_authenticated else f"none ({protocol})"
            return _cautious(found, sasl_caution(security))


def _cautious(found: str, caution: Caution | None) -> Finding:
    return ok(found) if caution is None else warning(f"{found}; {caution.found}", caution.remedy)
