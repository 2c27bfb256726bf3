"""Cautions: valid options that do less than their names say, mostly security options that protect less than others.

Each process logs each caution once. `pykafka check` shows them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from kafka_sink.kafka.config import SecurityConfig
from kafka_sink.options.config import OPTION_OF, SECURITY_FIELDS, GivenOptions, is_set

log = logging.getLogger(__name__)

# By which Spark's own source names a consumer group.
GROUP_OPTIONS = ("kafka.group.id", "groupIdPrefix")


class Caution(NamedTuple):
    """A weakness of valid options, and how to remove it."""

    found: str
    remedy: str


LOGGED: set[Caution] = set()


def tls_caution(security: SecurityConfig) -> Caution | None:
    """Return a caution if connections are encrypted and host names are not verified."""
    if not security.is_encrypted or security.ssl_endpoint_identification_algorithm:
        return None
    return Caution(
        "host names of brokers are not verified: any host with a certificate of the trusted CAs can pretend to be a "
        "broker and receive rows and credentials",
        "remove the empty option kafka.ssl.endpoint.identification.algorithm",
    )


def sasl_caution(security: SecurityConfig) -> Caution | None:
    """Return a caution if options of SASL are set and the security protocol has no SASL."""
    values = {field: getattr(security, field) for field in SECURITY_FIELDS}
    unused = [OPTION_OF[field].name for field in values if field.startswith("sasl_") and is_set(values, field)]
    if security.is_authenticated or not unused:
        return None
    return Caution(
        f"{', '.join(sorted(unused))} without effect: with kafka.security.protocol={security.security_protocol} the "
        "client does not authenticate by SASL",
        f"set kafka.security.protocol={'SASL_SSL' if security.is_encrypted else 'SASL_SSL or SASL_PLAINTEXT'}, or "
        "remove these options",
    )


def group_caution(names: Iterable[str], group_id: str | None) -> Caution | None:
    """Return a caution if options of a stream name a consumer group as for Spark's source, and groupId is not set.

    `names`: of the given options, in any case. `group_id`: the option groupId.
    """
    given = {name.lower() for name in names}
    unused = [name for name in GROUP_OPTIONS if name.lower() in given]
    if not unused or group_id is not None:
        return None
    return Caution(
        f"{', '.join(unused)} without effect: a stream joins no consumer group, and its offsets are in Spark's "
        "checkpoint",
        "set groupId to a group without members. The stream then commits its offsets to this group, and Kafka's tools "
        "show its lag",
    )


def warn_once(security: SecurityConfig) -> None:
    """Log the cautions about `security`, each once in a process."""
    for caution in (tls_caution(security), sasl_caution(security)):
        log_once(caution)


def log_once(caution: Caution | None) -> None:
    if caution is not None and caution not in LOGGED:
        LOGGED.add(caution)
        log.warning("%s. To change that, %s.", caution.found, caution.remedy)


def warn_of_given(given: GivenOptions) -> None:
    """Log the cautions about the options of a write, where the write is planned."""
    warn_once(SecurityConfig(**{field: value for field, value in given.items() if field in SECURITY_FIELDS}))
