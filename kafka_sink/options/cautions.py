"""What works and protects less than it could: logged once in the life of a process, and shown by `pykafka check`."""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafka_sink.kafka.config import SecurityConfig
from kafka_sink.options.config import OPTION_OF, SECURITY_FIELDS, GivenOptions, is_set

log = logging.getLogger(__name__)


class Caution(NamedTuple):
    """What works and protects less than it could, and what to do."""

    found: str
    remedy: str


LOGGED: set[Caution] = set()


def tls_caution(security: SecurityConfig) -> Caution | None:
    """What is weak about encrypted connections."""
    if not security.is_encrypted or security.ssl_endpoint_identification_algorithm:
        return None
    return Caution(
        "host names of brokers are not verified: any host with a certificate of the trusted CAs can pose as a "
        "broker and take rows and credentials",
        "remove kafka.ssl.endpoint.identification.algorithm, which is empty",
    )


def sasl_caution(security: SecurityConfig) -> Caution | None:
    """Which options of SASL have no effect under the protocol that was chosen."""
    values = {field: getattr(security, field) for field in SECURITY_FIELDS}
    unused = [OPTION_OF[field].name for field in values if field.startswith("sasl_") and is_set(values, field)]
    if security.is_authenticated or not unused:
        return None
    return Caution(
        f"{', '.join(sorted(unused))} without effect: under kafka.security.protocol={security.security_protocol} the "
        "client does not authenticate by SASL",
        f"set kafka.security.protocol={'SASL_SSL' if security.is_encrypted else 'SASL_SSL or SASL_PLAINTEXT'}, or "
        "remove these options",
    )


def warn_once(security: SecurityConfig) -> None:
    """Logs what is weak about `security`; each text once in the life of the process."""
    for caution in (tls_caution(security), sasl_caution(security)):
        if caution is not None and caution not in LOGGED:
            LOGGED.add(caution)
            log.warning("%s. To change that, %s.", caution.found, caution.remedy)


def warn_of_given(given: GivenOptions) -> None:
    """The same of what the options of a write say by themselves, where it is planned."""
    warn_once(SecurityConfig(**{field: value for field, value in given.items() if field in SECURITY_FIELDS}))
