"""Apicurio Registry in a process of its own, with its schemas in memory: it speaks Confluent's API over HTTP and HTTPS.

Ivy fetches its archive (142 MB) once. Version 3 needs Java 21.
"""

import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from certificates import Authority
from kafka_sink.broker import resolve
from kafka_sink.broker.process import LeashedProcess
from openid_provider import Provider
from waiting import wait_until

VERSION = "2.6.13.Final"
NAME = "apicurio-registry-app"
DEADLINE_S = 120
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Ivy takes the archive for a jar, because resolve.run_ivy asks for jars.
_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="apicurio"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="{NAME}" rev="{VERSION}" conf="default->default" transitive="false">
      <artifact name="{NAME}" type="jar" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class Apicurio:
    """`url`, `https_url`: of Confluent's API. `ca`: the file of the CA that signed its certificate."""

    url: str
    https_url: str
    ca: Path


def installed() -> Path:
    """The folder of the registry, fetched if need be. Raises DownloadFailed, DiskFull."""
    folder = resolve.default_cache_dir(os.environ) / f"apicurio-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with resolve.exclusive(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            work = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            (work / "ivy.xml").write_text(_MODULE, encoding="utf-8")
            java = resolve.find_java(os.environ)
            ivy: resolve.Command = [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())]
            resolve.run_ivy(f"Apicurio Registry {VERSION}", ivy, work, work)
            (archive,) = work.glob("*.tar.gz")
            with tarfile.open(archive) as files:
                files.extractall(work / "app", filter="data")
            (work / "app").rename(folder)
            shutil.rmtree(work)
    return folder


def _checks_tokens_of(provider: Provider) -> dict[str, str]:
    """Properties with which each request needs a token of the provider, or a client's name and secret as basic
    authentication. The roles are sr-readonly, sr-developer and sr-admin."""
    return {
        "registry.auth.enabled": "true", "registry.auth.role-based-authorization": "true",
        "registry.auth.basic-auth-client-credentials.enabled": "true",
        "registry.auth.token.endpoint": provider.token_url, "quarkus.oidc.auth-server-url": provider.url,
    }  # fmt: skip


@contextmanager
def apicurio(folder: Path, provider: Provider | None = None) -> Iterator[Apicurio]:
    """`folder`: of the certificates and the registry's output. `provider`: whose tokens it asks for."""
    authority = Authority()
    identity = authority.issue("localhost")
    files = {"ca": authority.certificate, "chain": identity.chain, "key": identity.key}
    for name, text in files.items():
        (folder / f"{name}.pem").write_text(text)
    settings = {
        "quarkus.http.host": "127.0.0.1", "quarkus.http.port": "0", "quarkus.http.ssl-port": "0",
        "quarkus.http.ssl.certificate.files": str(folder / "chain.pem"),
        "quarkus.http.ssl.certificate.key-files": str(folder / "key.pem"),
        "quarkus.datasource.jdbc.initial-size": "1", "quarkus.datasource.jdbc.min-size": "1",
        **({} if provider is None else _checks_tokens_of(provider)),
    }  # fmt: skip
    output = folder / "apicurio.log"
    with output.open("wb") as log:
        registry = LeashedProcess(
            [
                resolve.find_java(os.environ), *JVM, *(f"-D{name}={value}" for name, value in settings.items()),
                "-jar", installed() / f"{NAME}-{VERSION}-runner.jar",
            ],
            grace_seconds=0, stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    try:

        def listening() -> re.Match[str] | None:
            said = output.read_text(errors="replace")
            assert registry.returncode is None, said[-4_000:]
            return re.search(r"Listening on: (http://\S+) and (https://\S+)", said)

        wait_until(listening, DEADLINE_S, "Apicurio Registry listens")
        found = listening()
        assert found is not None
        url, https_url = (f"{each.rstrip('.')}/apis/ccompat/v7" for each in found.groups())
        yield Apicurio(url, https_url, folder / "ca.pem")
    finally:
        registry.end()
