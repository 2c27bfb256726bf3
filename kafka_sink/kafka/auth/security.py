"""Turns the security options into what the network needs: a TLS context, and a function that begins authentication.

Called where connections are made, because file options name files of the executors. Source:
org.apache.kafka.common.network.ChannelBuilders.
"""

from __future__ import annotations

import pickle
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.auth.jaas import EXTENSION, KEYTAB, PRINCIPAL, TICKET_CACHE
from kafka_sink.kafka.config import VERSION, SecurityConfig
from kafka_sink.kafka.net.network_client import Authenticate
from kafka_sink.kafka.protocol.sasl import Authentication, Login, PasswordLogin, TokenLogin, authentication

# A process imports what its protocol and mechanism need.
if TYPE_CHECKING:
    from kafka_sink.kafka.auth.kerberos import Kerberos, KerberosIdentity
    from kafka_sink.kafka.auth.msk_iam import MskIamSigner
    from kafka_sink.kafka.auth.oauth import Fetch, Tokens
    from kafka_sink.kafka.net.tls import Contexts, TlsSettings

NONCE_BYTES = 24


def tls_contexts(security: SecurityConfig) -> Contexts | None:
    """Return the TLS contexts, or None without encryption. Raises ConfigError for certificates that cannot be used."""
    if not security.is_encrypted:
        return None
    from kafka_sink.kafka.net.tls import Contexts

    return Contexts(
        replace(
            _trust(security),
            keystore_location=security.ssl_keystore_location,
            keystore_password=_revealed(security.ssl_keystore_password) or None,
            keystore_certificate_chain=security.ssl_keystore_certificate_chain,
            keystore_key=_revealed(security.ssl_keystore_key),
            key_password=_revealed(security.ssl_key_password),
            verify_host_name=security.ssl_endpoint_identification_algorithm == "https",
            protocols=tuple(security.ssl_enabled_protocols.split(",")),
        )
    )


def authenticator(security: SecurityConfig, hosts: tuple[str, ...] = ()) -> Authenticate | None:
    """Return a function that begins an authentication, or None without SASL. `hosts`: those of the bootstrap servers,
    which show the region of an MSK cluster."""
    if not security.is_authenticated:
        return None
    mechanism = security.sasl_mechanism
    assert mechanism is not None, "a rule of config says so"
    match mechanism:
        case "AWS_MSK_IAM" | "OAUTHBEARER":
            login = _token_login(security, hosts)
        case "GSSAPI":
            login = _kerberos_of(security).login
        case _:
            login = _password_login(security)

    def begin(host: str) -> Authentication:
        return authentication(mechanism, login(host), _nonce)

    return begin


def _password_login(security: SecurityConfig) -> Callable[[str], Login]:
    username, password = security.credential("username"), security.credential("password")
    assert username is not None and password is not None, "a rule of config says so"
    login = PasswordLogin(username, password)
    return lambda host: login


def _token_login(security: SecurityConfig, hosts: tuple[str, ...]) -> Callable[[str], Login]:
    from kafka_sink.kafka.auth.oauth import subject_of

    signer, tokens = _tokens_of(security, hosts)
    extensions = tuple(
        (name.removeprefix(EXTENSION), value)
        for name, value in security.jaas_options.items()
        if name.startswith(EXTENSION)
    )

    def login(host: str) -> TokenLogin:
        token = tokens.current()
        if signer is not None:
            return TokenLogin(signer.described, token, if_refused=signer.if_refused)
        return TokenLogin(security.credential("clientId") or subject_of(token) or "of the token", token, extensions)

    return login


# --- the tokens and tickets this process keeps ------------------------------------------------------------------------

# Each registration of a token callable has tokens of its own. Beyond these, the oldest are fetched again.
MAX_KEPT_TOKENS = 100
_kept: dict[tuple[SecurityConfig, tuple[str, ...]], tuple[MskIamSigner | None, Tokens]] = {}
_kept_kerberos: dict[KerberosIdentity, Kerberos] = {}
_kept_lock = threading.Lock()


def _tokens_of(security: SecurityConfig, hosts: tuple[str, ...] = ()) -> tuple[MskIamSigner | None, Tokens]:
    """Return the tokens that all connections with these credentials share, with AWS_MSK_IAM those to one cluster. With
    the signer of the tokens, if this process signs them."""
    from kafka_sink.kafka.auth.oauth import Tokens

    is_signed = security.sasl_mechanism == "AWS_MSK_IAM"
    key = security, hosts if is_signed else ()
    with _kept_lock:
        if key not in _kept:
            signer = msk_iam_signer(security, hosts) if is_signed else None
            fetch = _fetch(security) if signer is None else signer.fetch
            _kept[key] = signer, Tokens(fetch, clock_s=time.monotonic)
            if len(_kept) > MAX_KEPT_TOKENS:
                del _kept[next(iter(_kept))]
        return _kept[key]


def _kerberos_of(security: SecurityConfig) -> Kerberos:
    """Return the tickets that all connections of this identity share."""
    from kafka_sink.kafka.auth.kerberos import Kerberos, KerberosIdentity

    service_name, files = security.kerberos_service_name, security.jaas_options
    assert service_name is not None, "a rule of config says so"
    identity = KerberosIdentity(
        service_name, files.get(KEYTAB), principal=files.get(PRINCIPAL), ticket_cache=files.get(TICKET_CACHE)
    )
    with _kept_lock:
        return _kept_kerberos.setdefault(identity, Kerberos(identity))


def msk_iam_signer(security: SecurityConfig, hosts: tuple[str, ...]) -> MskIamSigner:
    """Return a new signer with the credentials of this process. `hosts`: those of the bootstrap servers."""
    from kafka_sink.kafka.auth.msk_iam import IamLogin, MskIamSigner

    options = security.jaas_options
    login = IamLogin(
        profile=options.get("awsProfileName"),
        role_arn=options.get("awsRoleArn"),
        role_session_name=options.get("awsRoleSessionName"),
        role_external_id=options.get("awsRoleExternalId"),
        sts_region=options.get("awsStsRegion"),
    )
    return MskIamSigner(login, hosts, f"pyspark-pykafka/{VERSION}")


def _fetch(security: SecurityConfig) -> Fetch:
    from kafka_sink.kafka.auth.oauth import TokenEndpoint, fetched_by

    if security.token_callable is not None:
        return fetched_by(pickle.loads(security.token_callable.value))
    url = security.sasl_oauthbearer_token_endpoint_url
    client_id, client_secret = security.credential("clientId"), security.credential("clientSecret")
    assert url is not None and client_id is not None and client_secret is not None, "rules of config say so"
    endpoint = TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=client_secret,
        scope=security.credential("scope"),
        header_urlencode=security.sasl_oauthbearer_header_urlencode,
        contexts=_endpoint_contexts(security),
    )
    return lambda: endpoint.fetch(time.time)


def _endpoint_contexts(security: SecurityConfig) -> Contexts | None:
    """Return contexts that trust the brokers' CAs and the system's. Most identity providers use a public CA."""
    url = security.sasl_oauthbearer_token_endpoint_url or ""
    if not url.lower().startswith("https:"):
        return None
    from kafka_sink.kafka.net.tls import Contexts

    return Contexts(_trust(security), and_system=True)


def _trust(security: SecurityConfig) -> TlsSettings:
    from kafka_sink.kafka.net.tls import TlsSettings

    return TlsSettings(
        truststore_location=security.ssl_truststore_location,
        truststore_password=_revealed(security.ssl_truststore_password) or None,
        truststore_certificates=security.ssl_truststore_certificates,
    )


def _nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else str(secret.value)
