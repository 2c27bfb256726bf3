"""The jars of a Kafka broker. The Ivy that PySpark ships fetches them once, and a cache keeps them.

The cache is `$XDG_CACHE_HOME/pykafka/kafka-<version>`, or below `~/.cache`. It is complete or missing: the jars are
fetched into a neighbouring folder, which is then renamed. A lock allows several processes to do this at the same time.
Ivy's built-in settings name the repository, and Ivy compares checksums. Non-obvious about Ivy:

* Types `jar,bundle`: OSGi artifacts (scala-logging, snappy, zstd-jni) have the type bundle, and Ivy silently omits
  other types than requested. So the set of jars is checked before the rename.
* `conf="default->default"`: the module and its run-time dependencies. `runtime` alone omits the module itself.
* Kafka Connect is excluded. kafka-tools depends on it, with Jetty and Jersey: half of the download, not used here. The
  exclusion is a regexp, because Ivy's glob matcher needs a library that PySpark does not ship.
* The SLF4J binding is requested by name, see `settings.Logging`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_sink.broker import process
from kafka_sink.broker.errors import DiskFull, DownloadFailed, IvyNotFound, tells_of_full_disk, writing_to
from kafka_sink.broker.settings import LOG4J2, RELOAD4J, Logging

log = logging.getLogger(__name__)

# 50 jars, 46 MB: one minute on a good connection. Ivy itself has no timeout for a connection without traffic.
IVY_TIMEOUT_SECONDS = 900.0

# The jars that each version must contain, as `organisation_module`, in addition to the SLF4J binding.
REQUIRED_JARS = (
    "org.apache.kafka_kafka_2.13",
    "org.apache.kafka_kafka-clients",
    "org.apache.kafka_kafka-group-coordinator",
    "org.apache.kafka_kafka-metadata",
    "org.apache.kafka_kafka-raft",
    "org.apache.kafka_kafka-server",
    "org.apache.kafka_kafka-server-common",
    "org.apache.kafka_kafka-storage",
    "org.apache.kafka_kafka-tools",
    "org.apache.kafka_kafka-tools-api",
    "org.apache.kafka_kafka-transaction-coordinator",
    "org.scala-lang_scala-library",
    "com.typesafe.scala-logging_scala-logging_2.13",
    "com.github.luben_zstd-jni",
    "org.xerial.snappy_snappy-java",
    "at.yawk.lz4_lz4-java",
    "com.yammer.metrics_metrics-core",
    "net.sf.jopt-simple_jopt-simple",
    "net.sourceforge.argparse4j_argparse4j",
    "org.slf4j_slf4j-api",
)


@dataclass(frozen=True, slots=True)
class Release:
    """The jars of a broker.

    `modules` are those that Ivy fetches, with their dependencies: organisation, module, revision. `required` are the
    jars that must be among the fetched ones, as `organisation_module`.
    """

    version: str
    modules: Sequence[tuple[str, str, str]]
    required: Sequence[str]
    logging: Logging


def kraft_release(version: str, logging_of_version: Logging) -> Release:
    """Return the jars of a broker with KRaft and of Kafka's tools."""
    modules = [("org.apache.kafka", module, version) for module in ("kafka_2.13", "kafka-tools")]
    return Release(version, modules, REQUIRED_JARS, logging_of_version)


DEFAULT_KAFKA_VERSION = "4.3.1"
KAFKA_VERSIONS: Mapping[str, Release] = {
    release.version: release
    for release in (kraft_release("3.9.2", RELOAD4J), kraft_release("4.3.1", LOG4J2), kraft_release("4.4.0", LOG4J2))
}

Command = Sequence[str | Path]


def resolve_jars(release: Release, cache_dir: Path, ivy_command: Callable[[], Command]) -> Path:
    """Return the folder with the jars of a Kafka version. Fetch them if they are missing.

    `ivy_command` returns the command that runs Ivy, e.g. `[java, "-jar", ivy_jar]`. It is called only if jars are
    missing. Raises DownloadFailed, DiskFull, DirectoryUnusable.
    """
    jars = cache_dir / f"kafka-{release.version}"
    if not missing_jars(jars, release):
        return jars
    with writing_to(cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with exclusive(cache_dir / f"kafka-{release.version}.lock"):
            # Another process may have fetched them while this one waited for the lock.
            if missing_jars(jars, release):
                fetch(release, jars, ivy_command())
    return jars


def fetch(release: Release, jars: Path, ivy_command: Command) -> None:
    """Fetch into a neighbouring folder, then rename it to `jars`. After a failure the next run reuses Ivy's cache."""
    work = jars.with_name(f"kafka-{release.version}.part")
    fetched = work / "jars"
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    (work / "ivy.xml").write_text(ivy_module(release), encoding="utf-8")
    # A warning, because it shows without configured logging too. The download takes about a minute.
    log.warning("fetching Kafka %s, about 50 MB, once, into %s", release.version, jars)
    run_ivy(release.version, ivy_command, work, fetched)
    missing = missing_jars(fetched, release)
    if missing:
        raise DownloadFailed(kafka_version=release.version, reason=f"these jars are missing: {', '.join(missing)}")
    shutil.rmtree(jars, ignore_errors=True)
    fetched.rename(jars)
    shutil.rmtree(work, ignore_errors=True)


def run_ivy(version: str, ivy_command: Command, work: Path, fetched: Path) -> None:
    pattern = fetched / "[organisation]_[artifact]-[revision].[ext]"
    arguments: Command = [
        *("-ivy", work / "ivy.xml"),
        *("-types", "jar", "bundle"),
        *("-cache", work / "ivy"),
        *("-retrieve", pattern),
        "-error",
    ]
    try:
        ivy = process.run([*ivy_command, *arguments], timeout_seconds=IVY_TIMEOUT_SECONDS, cwd=work)
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(kafka_version=version, reason=f"no end after {error.timeout:.0f} s") from error
    output = (ivy.stdout + ivy.stderr).decode(errors="replace")
    if tells_of_full_disk(output):
        raise DiskFull(directory=str(work))
    if ivy.returncode:
        raise DownloadFailed(kafka_version=version, reason=reason_in(output))


def reason_in(output: str) -> str:
    """Return the first lines of Ivy's error messages."""
    complaints = [line.strip() for line in output.partition(":: problems summary ::")[2].splitlines()]
    told = [line for line in complaints if line and not line.startswith("::")] or output.strip().splitlines()[-3:]
    return "; ".join(told[:3]) or "Ivy gave no reason"


def missing_jars(directory: Path, release: Release) -> list[str]:
    """Return the required jars that are not in `directory` (all of them if it does not exist)."""
    names = [path.name for path in directory.glob("*.jar")]
    binding = f"{release.logging.binding_organisation}_{release.logging.binding_module}"
    return [required for required in (*release.required, binding) if not _has(names, required)]


def _has(names: Iterable[str], required: str) -> bool:
    return any(name.startswith(required + "-") and name[len(required) + 1].isdigit() for name in names)


def ivy_module(release: Release) -> str:
    """Return an ivy.xml with the dependencies of a broker of this version."""
    logging_of_version = release.logging
    wanted = [
        *release.modules,
        (
            logging_of_version.binding_organisation,
            logging_of_version.binding_module,
            logging_of_version.binding_revision,
        ),
    ]
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)}"
        ' conf="default->default"/>'
        for organisation, module, revision in wanted
    )
    return f"""\
<ivy-module version="2.0">
  <info organisation="local" module="kafka-broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    <exclude org="org.apache.kafka" module="connect-.*" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock file. Wait while another process holds it. The kernel releases it when the holder dies."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the cache folder. A relative or empty XDG_CACHE_HOME is ignored (XDG Base Directory Specification)."""
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "pykafka"


def installed_pyspark() -> Path:
    """Return the folder of the PySpark package, without importing it: the import takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise IvyNotFound(searched="PySpark is not installed")
    return Path(spec.submodule_search_locations[0])


def find_ivy_jar(pyspark: Path) -> Path:
    """Return the path of Ivy's jar in a PySpark package. Raises IvyNotFound."""
    found = sorted(pyspark.glob("jars/ivy-*.jar"))
    if not found:
        raise IvyNotFound(searched=f"{pyspark} holds no jars/ivy-*.jar")
    return found[-1]
