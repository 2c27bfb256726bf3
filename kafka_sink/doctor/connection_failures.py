"""Verdicts about one host and port: the step at which a connection failed, the reason, and the remedy.

    Attempt (what `dialogue.dial` observed) ─> host_verdicts ─> one verdict for each of HOST_STEPS

Pure: the inputs are names, addresses and exceptions.

Non-obvious:

* A failure belongs to the step with the wrong setting, which may differ from the step where it is seen. A TLS listener
  answers a plaintext client's ApiVersions with an alert. A SASL listener closes the connection at the first request
  after ApiVersions.
* TLS 1.3 brokers refuse a client's certificate after the client's handshake is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_sink.doctor.report import HOST_STEPS, Finding, Status, Verdict, failed, ok, skipped, warning
from kafka_sink.errors import ProtocolError, SaslRefused, TlsExpected, TokenUnavailable
from kafka_sink.errors.quoting import MAX_HOST_CHARACTERS, quoted
from kafka_sink.kafka.auth.jaas import PRINCIPAL
from kafka_sink.kafka.config import SecurityConfig
from kafka_sink.kafka.net.transport import TlsFailure
from kafka_sink.kafka.protocol.sasl import NO_ANSWER_OF_KDC
from kafka_sink.options.cautions import Caution, sasl_caution, tls_caution


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a connection failed: the step with the cause, the observation, the remedy."""

    step: str
    found: str
    remedy: str


@dataclass(slots=True)
class Attempt:
    """One connection to `host`:`port`. `tls` and `versions` are the agreed values; "" before they are agreed.

    `failure` is None if the host answered a request.
    """

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


# --- failures ---------------------------------------------------------------------------------------------------------

_DISPENSABLE = ("dns", "tcp", "api versions")
_ADVERTISED = (
    "the cluster advertises this address to clients: set advertised.listeners of the broker to a name and port that "
    "this host can reach, or make this address reachable ({general})"
)


def advertised(failure: Failure) -> Failure:
    """Return the failure with the remedy for an advertised address, which the user did not configure."""
    if failure.step not in ("dns", "tcp"):
        return failure
    return Failure(failure.step, failure.found, _ADVERTISED.format(general=failure.remedy))


def dns_failure(error: OSError, host: str) -> Failure:
    what = "no name server answers" if isinstance(error, TimeoutError) else "it cannot be resolved"
    return Failure(
        "dns",
        f"{quoted(host, MAX_HOST_CHARACTERS)!r}: {what} ({error.strerror or error})",
        "correct the name, or add it to DNS or /etc/hosts of this host; in a container, look at its resolver and "
        "search domains",
    )


def tcp_failure(error: OSError, tried: Sequence[str]) -> Failure:
    """Return the failure of a TCP connection. None of the addresses in `tried` accepted it."""
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
        f"the port accepts connections, but does not answer the TLS handshake ({error})",
        "check that a broker's TLS listener is behind the port, and not a load balancer or proxy without a broker",
    )


_SASL_EXPECTED = (
    "use the credentials of this listener (kafka.security.protocol=SASL_SSL or SASL_PLAINTEXT, kafka.sasl.mechanism, "
    "kafka.sasl.jaas.config), or the port of a listener without SASL"
)


def hung_up(at: str, *, is_authenticated: bool) -> Failure:
    """Return the failure for a connection that the peer closed at step `at`. "request" is the first request after all
    steps."""
    match at:
        case "api versions":
            return Failure(
                at,
                "the peer closed the connection instead of an answer to ApiVersions",
                "check that this is the port of a Kafka listener, not of ZooKeeper, a controller, or a proxy; if the "
                "listener uses TLS, set kafka.security.protocol=SSL or SASL_SSL",
            )
        case "request" if not is_authenticated:
            return Failure(
                "sasl",
                "the peer answers ApiVersions and closes the connection at the first request: this listener requires "
                "authentication",
                _SASL_EXPECTED,
            )
        case _:
            return Failure(
                "sasl",
                "the peer closed the connection during authentication",
                "look into the broker's log: it names the client's address and the reason",
            )


def no_answer(at: str, error: TimeoutError) -> Failure:
    if at == "api versions":
        return Failure(
            at,
            f"the port accepts connections, but does not answer ApiVersions ({error})",
            "check that a broker is behind the port: a load balancer or proxy accepts connections without one; a "
            "listener with TLS waits for a handshake (set kafka.security.protocol=SSL or SASL_SSL); if the broker is "
            "starting or hangs, look into its log",
        )
    return Failure("sasl", f"no answer to {at} ({error})", "look into the broker's log")


def too_slow(what: str, error: TimeoutError) -> Failure:
    if what == NO_ANSWER_OF_KDC:
        remedy = "check that krb5.conf of this host names the KDCs, and that this host can reach their ports"
        return Failure("sasl", f"{what} ({error})", remedy)
    return Failure(
        "sasl",
        f"{what} ({error})",
        "create the user's SCRAM credentials again with 4096 to 16384 iterations (kafka-configs.sh), or check on a "
        "host with less load",
    )


def not_kafka(error: ProtocolError) -> Failure:
    """Return the failure for bytes that are not a Kafka answer, or for an answer that ends the authentication."""
    match error:
        case TlsExpected():
            return Failure(
                "tls",
                error.detail,
                "set kafka.security.protocol to SSL, or SASL_SSL, or use the port of a plaintext listener",
            )
        case SaslRefused():
            return Failure(
                "sasl", f"{error.mechanism} as {error.user!r}: {error.reason}", error.remedy or _sasl_remedy(error)
            )
        case _:
            return Failure(
                "api versions",
                f"the peer does not speak this client's Kafka protocol: {error.detail}",
                "use the port of a Kafka listener (often 9092 to 9094), not that of a REST proxy, schema registry, "
                "console or exporter; brokers must be Kafka 2.1 or newer",
            )


def _sasl_remedy(error: SaslRefused) -> str:
    reason = error.reason
    if "does not offer it" in reason and error.mechanism == "AWS_MSK_IAM":
        return "use the port of MSK's IAM listener (9098, from outside the VPC 9198), and turn IAM on for the cluster"
    if "does not offer it" in reason:
        return "set kafka.sasl.mechanism to one that it offers, or add this one to the broker's sasl.enabled.mechanisms"
    if "expects no authentication" in reason:
        return "set kafka.security.protocol to SSL or PLAINTEXT, or use the port of the SASL listener"
    return (
        "check user name and password (kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password), that "
        "the cluster has this user, and for SCRAM that it has credentials of this mechanism"
    )


def no_token(error: TokenUnavailable) -> Failure:
    found = f"no token from {error.source}: {error.reason}"
    return Failure("sasl", found, f"from this host, {error.advice}")


# --- the verdicts -----------------------------------------------------------------------------------------------------


def host_verdicts(attempt: Attempt, where: str, security: SecurityConfig) -> tuple[Verdict, ...]:
    """Return one verdict for each of HOST_STEPS: OK before the failure, SKIPPED after it."""
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
    """Return the verdict with a failure reduced to a warning, because another bootstrap server answers.

    A refused certificate or password stays a failure: a write ends with it at any bootstrap server.
    """
    if verdict.status is not Status.FAILED or verdict.step not in _DISPENSABLE:
        return verdict
    remedy = f"{verdict.finding.remedy}. Until then writes use the other bootstrap servers"
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
            who = f"{security.sasl_mechanism}, {security.principal or _identified_by(security)}"
            found = who if security.is_authenticated else f"none ({protocol})"
            return _cautious(found, sasl_caution(security))


def _identified_by(security: SecurityConfig) -> str:
    if security.sasl_mechanism != "GSSAPI":
        return "by a token"
    return security.jaas_options.get(PRINCIPAL, "by the ticket cache")


def _cautious(found: str, caution: Caution | None) -> Finding:
    return ok(found) if caution is None else warning(f"{found}; {caution.found}", caution.remedy)
