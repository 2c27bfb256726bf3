"""A Kerberos realm on the loopback interface: MIT's KDC, with principals, keytabs and ticket caches in one folder.

`KRB5_CONFIG` names the realm's krb5.conf while the realm is open, for this process and for all that it starts.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from kafka_sink.broker.ports import free_ports
from kafka_sink.broker.process import LeashedProcess
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
