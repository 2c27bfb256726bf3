"""A local cluster whose listeners authenticate by Kerberos, in a realm of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from kafka_sink.broker import LocalKafka
from kerberos_realm import NAME, Realm, kerberos_realm
from secure_kafka import CA, keys_of

# Listener: security protocol.
LISTENERS = {"KRB": "SASL_PLAINTEXT", "KRBTLS": "SASL_SSL", "KRBSHORT": "SASL_PLAINTEXT", "KRBSTALE": "SASL_PLAINTEXT"}
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HOST = "127.0.0.1"
SESSION_MS = 2_000


@dataclass(frozen=True, slots=True)
class KerberizedKafka:
    kafka: LocalKafka
    realm: Realm
    # Alice's, whom the brokers let in.
    keytab: Path

    def options(self, jaas: str | None, listener: str = "KRB", service: str = "kafka") -> dict[str, str]:
        """Options of a write; `jaas`: the options of Java's login module."""
        login = {} if jaas is None else {"kafka.sasl.jaas.config": f"{MODULE} required {jaas};"}
        trust = {"kafka.ssl.truststore.certificates": CA.certificate} if LISTENERS[listener] == "SASL_SSL" else {}
        return {
            "kafka.bootstrap.servers": self.kafka.addresses_of(listener),
            "kafka.security.protocol": LISTENERS[listener],
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.kerberos.service.name": service,
            **login,
            **trust,
        }

    def by_keytab(self, listener: str = "KRB", service: str = "kafka") -> dict[str, str]:
        return self.options(of_keytab(self.keytab, "alice"), listener, service)

    def by_cache(self, cache: Path, listener: str = "KRB") -> dict[str, str]:
        return self.options(of_cache(cache), listener)


def of_keytab(keytab: Path | str, principal: str) -> str:
    return f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{NAME}"'


def of_cache(cache: Path | str) -> str:
    return f'useTicketCache=true ticketCache="{cache}" doNotPrompt=true'


@contextmanager
def kerberized_kafka(folder: Path) -> Iterator[KerberizedKafka]:
    with kerberos_realm(folder) as realm:
        of_broker = realm.keytab(f"kafka/{HOST}")
        out_of_date = realm.keytab(f"stale/{HOST}", "out-of-date")
        alice = realm.keytab("alice")
        config = {
            f"listener.name.{listener.lower()}.{name}": value
            for listener in LISTENERS
            for name, value in _listener(listener, of_broker, out_of_date).items()
        }
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.security.krb5.conf={realm.krb5_conf}"
        with patch.dict(os.environ, {"JDK_JAVA_OPTIONS": java}):
            kafka = LocalKafka(listeners=LISTENERS, config=config)
            kafka.__enter__()
        # The broker has logged in with the key that is out of date from now on.
        realm.keytab(f"stale/{HOST}", "up-to-date")
        try:
            yield KerberizedKafka(kafka, realm, alice)
        finally:
            kafka.close()


def _listener(listener: str, of_broker: Path, out_of_date: Path) -> dict[str, str]:
    service, keytab = ("stale", out_of_date) if listener == "KRBSTALE" else ("kafka", of_broker)
    sessions = {"connections.max.reauth.ms": str(SESSION_MS)} if listener == "KRBSHORT" else {}
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "gssapi.sasl.jaas.config": f"{MODULE} required {of_keytab(keytab, f'{service}/{HOST}')};",
        **sessions,
        **(keys_of(CA.issue("broker")) if LISTENERS[listener] == "SASL_SSL" else {}),
    }
