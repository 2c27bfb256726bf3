"""A Kerberos realm on the loopback interface: MIT's KDC, with principals, keytabs and ticket caches in one folder;
and a local cluster whose listeners authenticate by it.

`KRB5_CONFIG` names the realm's krb5.conf while the realm is open, for this process and for all that it starts.
"""

import ctypes
import os
import random
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from fuzz.answers import answer
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.broker.settings import free_ports
from kafka_sink.kafka.auth.kerberos import LIBRARY, _Buffer, _Handle, _in, library
from kafka_sink.kafka.protocol.apis.handshake import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from scripted_peers import Behaviour, ByteScript
from secure_kafka import CA, keys_of
from waiting import wait_until

NAME = "PYKAFKA.TEST"
# Debian keeps the KDC's programs where users do not look.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/lib/mit/sbin"))
_MASTER_KEY = "master"
_START_S = 30


def program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None, f"{name} is missing, which the tests of Kerberos need: see `.ci/prerequisites kerberos`"
    return found


@dataclass(slots=True)
class Realm:
    dir: Path
    port: int
    _kdc: LeashedProcess | None = field(default=None, init=False)

    @property
    def krb5_conf(self) -> Path:
        return self.dir / "krb5.conf"

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(self.dir / "kdc.conf")}

    def start(self) -> None:
        """Start the KDC. Return when it listens."""
        self._kdc = LeashedProcess([program("krb5kdc"), "-n"], grace_seconds=1, environ=self.environ)
        wait_until(self._listens, _START_S, "the KDC listens")

    def _listens(self) -> bool:
        with closing(socket.socket()) as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self._kdc is not None:
            self._kdc.end()
            self._kdc = None

    def admin(self, *command: str) -> None:
        self.run("kadmin.local", *command)

    def keytab(self, principal: str, name: str | None = None, *options: str) -> Path:
        """Return a keytab of `principal`, whom the realm is made to know. An earlier keytab is then out of date."""
        path = self.dir / f"{name or principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        subprocess.run(
            [program("kadmin.local"), "addprinc", "-randkey", *options, principal],
            env=self.environ, check=False, capture_output=True,
        )  # fmt: skip
        self.admin("ktadd", "-k", str(path), principal)
        return path

    def kinit(self, keytab: Path, principal: str, cache: Path, *options: str) -> Path:
        """Put a ticket of `principal` into the file `cache`, in one step, as its readers may read it meanwhile."""
        new = cache.with_suffix(".new")
        self.run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{new}", *options, principal)
        return new.rename(cache)

    def tickets_issued(self, principal: str) -> int:
        """Return how often the KDC has logged in `principal`."""
        log = (self.dir / "kdc.log").read_text()
        return sum("AS_REQ" in line and "ISSUE" in line and f" {principal}@" in line for line in log.splitlines())

    def run(self, name: str, *arguments: str) -> None:
        command = [program(name), *arguments]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"


@contextmanager
def kerberos_realm(folder: Path) -> Iterator[Realm]:
    (port,) = free_ports(1, random.Random())
    realm = Realm(folder, port)
    realm.krb5_conf.write_text(
        f"""\
[libdefaults]
    default_realm = {NAME}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
[realms]
    {NAME} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
    )
    (folder / "kdc.conf").write_text(
        f"""\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {NAME} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/kadm5.acl
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""
    )
    realm.run("kdb5_util", "create", "-s", "-P", _MASTER_KEY, "-r", NAME)
    with patch.dict(os.environ, {"KRB5_CONFIG": str(realm.krb5_conf), "KRB5CCNAME": str(folder / "no-tickets")}):
        realm.start()
        try:
            yield realm
        finally:
            realm.stop()


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
            "kafka.bootstrap.servers": self.kafka.addresses_of(listener), "kafka.sasl.mechanism": "GSSAPI",
            "kafka.security.protocol": LISTENERS[listener], "kafka.sasl.kerberos.service.name": service,
            **login, **trust,
        }  # fmt: skip

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


REPLY, OFFER, END = range(3)
# Stage, the honest message, and who can wrap: what is sent.
Lie = Callable[[int, bytes, "Acceptor"], bytes]


class Acceptor:
    """The broker's side of a context (RFC 2743), by the same library."""

    def __init__(self) -> None:
        self._gss = library()
        self._context = _Handle(self._gss, "gss_delete_sec_context")
        self._gss._functions["gss_accept_sec_context"] = ctypes.CDLL(LIBRARY).gss_accept_sec_context

    def accept(self, token: bytes) -> bytes:
        out = _Buffer()
        self._gss.call(
            "gss_accept_sec_context", self._context.reference, None, ctypes.byref(_in(token)), None, None, None,
            ctypes.byref(out), None, None, None,
        )  # fmt: skip
        return self._gss.taken(out)

    def wrap(self, message: bytes, *, encrypted: bool = False) -> bytes:
        out = _Buffer()
        self._gss.call(
            "gss_wrap", self._context.value, int(encrypted), 0, ctypes.byref(_in(message)), None, ctypes.byref(out)
        )
        return self._gss.taken(out)

    def unwrap(self, message: bytes) -> bytes:
        out = _Buffer()
        self._gss.call("gss_unwrap", self._context.value, ctypes.byref(_in(message)), ctypes.byref(out), None, None)
        return self._gss.taken(out)


def lying_broker(lie: Lie, offer: bytes, asked: list[int | bytes]) -> Behaviour:
    """`asked` gets the key of each request, and the client's choice of a layer."""

    def behave(sock: socket.socket) -> None:
        script = ByteScript([
            (SaslHandshakeRequest("GSSAPI"), {"mechanisms": ["GSSAPI"]}),
            (MetadataRequest((), allow_auto_topic_creation=False), {"brokers": [], "topics": []}),
        ])  # fmt: skip
        acceptor, stage = Acceptor(), REPLY
        with sock.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                api_key, version, correlation_id, id_length = struct.unpack(">hhih", frame[:10])
                asked.append(api_key)
                if api_key != SaslAuthenticateRequest.api.key:
                    told = script.answer(frame)
                    assert told is not None
                else:
                    token = _auth_bytes(frame[10 + max(0, id_length) :], version)
                    if stage == REPLY:
                        honest = acceptor.accept(token)
                    elif stage == OFFER:
                        honest = acceptor.wrap(offer)
                    else:
                        asked.append(acceptor.unwrap(token))
                        honest = b""
                    said = {"error_code": 0, "auth_bytes": lie(stage, honest, acceptor)}
                    told = answer(SaslAuthenticateRequest(b""), version, said, correlation_id)
                    stage += 1
                sock.sendall(struct.pack(">i", len(told)) + told)

    return behave


def _auth_bytes(body: bytes, version: int) -> bytes:
    """From version 2 on, a byte of tags and the length as a varint, with one more than it is."""
    if version < 2:
        return body[4 : 4 + struct.unpack(">i", body[:4])[0]]
    length, shift, at = 0, 0, 1
    while True:
        length |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not body[at - 1] & 0x80:
            return body[at : at + length - 1]
