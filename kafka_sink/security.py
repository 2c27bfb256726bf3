"""The security options as what the network is given: a TLS context, and what begins an authentication.

Read where connections are made, as files are the executors'. Source: org.apache.kafka.common.network.ChannelBuilders.
"""

from __future__ import annotations

import secrets
import ssl

from kafka_sink.config import SecurityConfig
from kafka_sink.net.network_client import Authenticate
from kafka_sink.net.tls import TlsSettings, client_context
from kafka_sink.options import Secret
from kafka_sink.protocol.sasl import Authentication, PasswordLogin, authentication

NONCE_BYTES = 24


def tls_context(security: SecurityConfig) -> ssl.SSLContext | None:
    """None where connections are not encrypted. Raises ConfigError for certificates that cannot be used."""
    if not security.is_encrypted:
        return None
    return client_context(
        TlsSettings(
            truststore_location=security.ssl_truststore_location,
            truststore_certificates=security.ssl_truststore_certificates,
            keystore_location=security.ssl_keystore_location,
            keystore_certificate_chain=security.ssl_keystore_certificate_chain,
            keystore_key=_revealed(security.ssl_keystore_key),
            key_password=_revealed(security.ssl_key_password),
            verify_host_name=security.ssl_endpoint_identification_algorithm == "https",
            protocols=tuple(security.ssl_enabled_protocols.split(",")),
        )
    )


def authenticator(security: SecurityConfig) -> Authenticate | None:
    """None where brokers ask for no SASL."""
    if not security.is_authenticated:
        return None
    mechanism = security.sasl_mechanism
    username, password = security.credential("username"), security.credential("password")
    assert mechanism is not None and username is not None and password is not None, "the rules of config say so"
    login = PasswordLogin(username, password)

    def begin() -> Authentication:
        return authentication(mechanism, login, _nonce)

    return begin


def _nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else str(secret.value)
