"""A local cluster with a listener for each kind of authentication, and with its own certificates and users."""

import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from certificates import Authority, Identity
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka, resolve
from kafka_sink.broker.resolve import find_java
from kafka_sink.doctor.examinations import examine
from kafka_sink.doctor.report import Report, Verdict
from kafka_sink.options.config import sink_config
from waiting import wait_until

VERSIONS = (DEFAULT_KAFKA_VERSION, pytest.param("3.9.2", marks=pytest.mark.long))
# Alice may do everything, bob what an ACL allows, and nobody knows carol.
PASSWORDS = {"alice": "alice-secret, with=signs", "bob": 'bob"s\\secret'}
CLIENT_SECRET = "client-canary"
CA, OTHER_CA = Authority(), Authority("Another CA")
# Listener: security protocol. Those of SSL differ in their certificates, and in asking the client for one.
LISTENERS = {
    **dict.fromkeys(("TLS", "MTLS", "EXPIRED", "ELSEWHERE"), "SSL"),
    **dict.fromkeys(("SASL", "SHORT", "TOKENS"), "SASL_SSL"), "BARE": "SASL_PLAINTEXT",
}  # fmt: skip
MODULE = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Acl:
    """`operation` on the resource `name`; with `prefixed`, on all resources whose names begin with `name`."""

    kind: ResourceType
    name: str
    operation: AclOperation
    prefixed: bool = False

    def of(self, user: str) -> tuple[Any, ...]:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        return self.kind, self.name, pattern, f"User:{user}", "*", self.operation, AclPermissionType.ALLOW


@dataclass(frozen=True, slots=True)
class SecureKafka:
    kafka: LocalKafka

    def tls(self, listener: str = "TLS", **more: str) -> dict[str, str]:
        """Options that reach a listener of TLS; `more` with underscores for dots, and without `kafka.`."""
        return {
            "kafka.bootstrap.servers": self.kafka.addresses_of(listener),
            "kafka.security.protocol": LISTENERS[listener],
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": CA.certificate,
            **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()},
        }

    def sasl(self, mechanism: str, user: str = "alice", password: str | None = None, **more: str) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        secret = PASSWORDS.get(user, "") if password is None else password
        return self.tls(
            "SASL", sasl_mechanism=mechanism, **more,
            sasl_jaas_config=f"{MODULE}.{module} required username={quoted(user)} password={quoted(secret)};",
        )  # fmt: skip

    def tokens(self, url: str, **more: str) -> dict[str, str]:
        """Options for OAUTHBEARER with tokens from `url`."""
        module = f"{MODULE}.oauthbearer.OAuthBearerLoginModule"
        return self.tls(
            "TOKENS", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url, **more,
            sasl_jaas_config=f'{module} required clientId="app" clientSecret="{CLIENT_SECRET}" extension_a="b";',
        )  # fmt: skip

    def allow(self, *acls: Acl, user: str = "bob") -> None:
        """Allow `user` these operations. The ACLs are in force when this returns."""
        bindings = [AclBinding(*acl.of(user)) for acl in acls]
        admin = self.admin  # held: without it what it was asked for is broken off
        for future in admin.create_acls(bindings).values():
            future.result(30)
        self._wait_until(acls, user, in_force=True)

    def revoke(self, *acls: Acl, user: str = "bob") -> None:
        filters = [AclBindingFilter(*acl.of(user)) for acl in acls]
        admin = self.admin
        for future in admin.delete_acls(filters).values():
            assert future.result(30)
        self._wait_until(acls, user, in_force=False)

    def _wait_until(self, acls: Sequence[Acl], user: str, *, in_force: bool) -> None:
        """Wait until the broker has applied the ACLs: the controller answers before the broker knows them."""
        admin = self.admin

        def is_so(acl: Acl) -> bool:
            return bool(admin.describe_acls(AclBindingFilter(*acl.of(user))).result(30)) is in_force

        wait_until(lambda: all(map(is_so, acls)), 30, "the broker has heard of the ACLs")

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def keys_of(identity: Identity) -> dict[str, str]:
    keys = {"ssl.keystore.certificate.chain": identity.chain, "ssl.keystore.key": identity.key}
    return {"ssl.keystore.type": "PEM", **keys}


def settings(**more: str) -> Mapping[str, str]:
    """Broker settings."""
    good = CA.issue("broker")
    of_listener = {
        "tls": keys_of(good),
        "mtls": {
            **keys_of(good),
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": CA.certificate,
        },
        "expired": keys_of(CA.issue("broker", expired=True)),
        "elsewhere": keys_of(CA.issue("broker", hosts=("elsewhere.example",))),
        "sasl": keys_of(good) | sasl_settings(),
        # Its sessions end after two seconds.
        "short": keys_of(good) | sasl_settings() | {"connections.max.reauth.ms": "2000"},
        # Whose sessions end with their tokens, which anybody may sign.
        "tokens": keys_of(good)
        | {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
            "connections.max.reauth.ms": "3600000",
        },
        "bare": sasl_settings(),
    }
    named = {
        f"listener.name.{listener}.{name}": value
        for listener, settings_ in of_listener.items()
        for name, value in settings_.items()
    }
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:CN=alice",
    }
    return named | authorizer | more


def sasl_settings(passwords: Mapping[str, str] = PASSWORDS) -> dict[str, str]:
    users = " ".join(f"user_{user}={quoted(password)}" for user, password in passwords.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {users};",
        "scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    }


@contextmanager
def secure_kafka(version: str, **more: str) -> Iterator[SecureKafka]:
    with LocalKafka(kafka_version=version, listeners=LISTENERS, config=settings(**more)) as kafka:
        cluster = SecureKafka(kafka)
        add_scram_users(cluster.admin)
        yield cluster


def add_scram_users(admin: AdminClient, passwords: Mapping[str, str] = PASSWORDS, *, iterations: int = 4096) -> None:
    # A broker takes one credential of a user a request.
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, iterations), password.encode())
            for user, password in passwords.items()
        ]
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(30)


_SCRAM_CLASS = "org/apache/kafka/common/security/scram/internals/ScramMechanism.class"


def careless_java(kafka_version: str, least: int, folder: Path) -> str:
    """Return the JAVA_TOOL_OPTIONS of a broker that accepts SCRAM credentials with fewer iterations, and sends their
    number to clients. An unchanged one neither stores nor offers such a credential (ScramControlManager,
    ScramSaslServer): both read the minimum from a class, of which a changed copy in `folder` is loaded first."""
    jars = resolve.resolve_jars(
        resolve.KAFKA_VERSIONS[kafka_version],
        resolve.default_cache_dir(os.environ),
        lambda: [find_java(os.environ), "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())],
    )
    with zipfile.ZipFile(jars / f"org.apache.kafka_kafka-clients-{kafka_version}.jar") as archive:
        compiled = archive.read(_SCRAM_CLASS)
    # `sipush 4096`. Of the most (16,384) there is another one.
    loads = b"\x11" + (4096).to_bytes(2, "big")
    assert compiled.count(loads) == 2, "one for each mechanism"
    target = folder / _SCRAM_CLASS
    target.parent.mkdir(parents=True)
    target.write_bytes(compiled.replace(loads, b"\x11" + least.to_bytes(2, "big")))
    return f"-Xbootclasspath/a:{folder}"


# Half of what a client would wait for a cluster that it does not reach.
ANSWER_S = 30
CANARY = "wrong-canary"


def examined(options: dict[str, str]) -> Report:
    started = time.monotonic()
    report = examine(sink_config(options))
    assert time.monotonic() - started < ANSWER_S
    shown = repr(report) + report._repr_html_()
    assert not any(password in shown for password in (*PASSWORDS.values(), CANARY))
    return report


def failure_found(options: dict[str, str]) -> Verdict:
    """Return the one thing that is wrong; what needs it was skipped."""
    report = examined(options)
    assert not report.ok
    (failure,) = report.failures
    return failure


def verdict_of(report: Report, step: str) -> Verdict:
    (verdict,) = (each for each in report.verdicts if each.step == step)
    return verdict
