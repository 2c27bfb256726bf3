"""What a broker runs on: the jars of a Kafka version, Java, and an archive of classes.

The Ivy that PySpark ships fetches the jars once, and a cache keeps them: `$XDG_CACHE_HOME/pykafka/kafka-<version>`, or
below `~/.cache`. It is complete or missing: the jars are fetched into a neighbouring folder, which is then renamed. A
lock allows several processes to do this at the same time. Ivy's built-in settings name the repository, and Ivy compares
checksums. Non-obvious about Ivy:

* Types `jar,bundle`: OSGi artifacts (scala-logging, snappy, zstd-jni) have the type bundle, and Ivy silently omits
  other types than requested. So the set of jars is checked before the rename.
* `conf="default->default"`: the module and its run-time dependencies. `runtime` alone omits the module itself.
* Kafka Connect is excluded. kafka-tools depends on it, with Jetty and Jersey: half of the download, not used here. The
  exclusion is a regexp, because Ivy's glob matcher needs a library that PySpark does not ship.
* The SLF4J binding is requested by name, see `settings.Logging`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_sink.broker import process
from kafka_sink.broker.errors import (
    DiskFull,
    DownloadFailed,
    IvyNotFound,
    JavaNotFound,
    JavaVersionUnsupported,
    tells_of_full_disk,
    writing_to,
)
from kafka_sink.broker.settings import LOG4J2, RELOAD4J, Logging

log = logging.getLogger(__name__)


# For brokers from Kafka 4.0 on (KIP-1013), and for Spark 4.
MINIMUM_JAVA = 17

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "21-ea"`. It may follow other
# lines: "Picked up JAVA_TOOL_OPTIONS: ...".
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
# Suppresses the JVM's messages about omitted classes, and about archives that do not fit.
_QUIET = "-Xlog:cds*=off"
_TRIAL_SECONDS = 30.0

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
    lines = [line for line in complaints if line and not line.startswith("::")] or output.strip().splitlines()[-3:]
    return "; ".join(lines[:3]) or "Ivy gave no reason"


def missing_jars(directory: Path, release: Release) -> list[str]:
    """Return the required jars that are not in `directory` (all of them if it does not exist)."""
    names = [path.name for path in directory.glob("*.jar")]
    binding = "_".join(release.logging.binding[:2])
    return [required for required in (*release.required, binding) if not _has(names, required)]


def _has(names: Iterable[str], required: str) -> bool:
    return any(name.startswith(required + "-") and name[len(required) + 1].isdigit() for name in names)


def ivy_module(release: Release) -> str:
    """Return an ivy.xml with the dependencies of a broker of this version."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)}"
        ' conf="default->default"/>'
        for organisation, module, revision in (*release.modules, release.logging.binding)
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


@contextlib.contextmanager
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
        raise IvyNotFound(searched="no pyspark is installed")
    return Path(spec.submodule_search_locations[0])


def find_ivy_jar(pyspark: Path) -> Path:
    """Return the path of Ivy's jar: in pip's pyspark, or in the Spark of the cluster's. Raises IvyNotFound."""
    # The cluster's pyspark is SPARK_HOME/python/pyspark.
    found = sorted(pyspark.glob("jars/ivy-*.jar")) or sorted(pyspark.parent.parent.glob("jars/ivy-*.jar"))
    if not found:
        raise IvyNotFound(searched=f"{pyspark} holds no jars/ivy-*.jar")
    return found[-1]


# --- Java -------------------------------------------------------------------------------------------------------------


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the path of a Java launcher of at least MINIMUM_JAVA. Raises JavaNotFound, JavaVersionUnsupported.

    JAVA_HOME comes before the PATH, as in Spark's `bin/spark-class`, so that the broker and Spark use the same Java.
    """
    java = locate_java(environ)
    output = version_output(java)
    major = parse_java_major(output)
    if major is None:
        # The /usr/bin/java of macOS only prints where to download Java.
        raise JavaNotFound(searched=f"{java} is no working Java: {output.strip() or 'it prints nothing'}")
    if major < MINIMUM_JAVA:
        raise JavaVersionUnsupported(java=str(java), major=major, minimum=MINIMUM_JAVA)
    return java


def locate_java(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise JavaNotFound(searched=f"JAVA_HOME is {home}, which has no bin/java")
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise JavaNotFound(searched="JAVA_HOME is not set and no java is on the PATH")
    return Path(found)


def version_output(java: Path) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(searched=f"{java} does not run: {error}") from error
    return answer.stderr + answer.stdout


def parse_java_major(output: str) -> int | None:
    """Return the major version in the output of `java -version` (8 for "1.8.0_392"), or None without a version."""
    found = _VERSION.search(output)
    return int(found[1]) if found else None


class ClassArchive:
    """An archive of Kafka's parsed and verified classes for the next JVM: class data sharing (JEP 350).

    With it a broker answers after 1.2 s instead of 2.2 s, and uses 1.6 s of CPU instead of 2.7 s (Kafka 4.3.1, two
    cores). The archive (50 MB) is in the folder `jars`, one for each launcher `java`, because it fits one build of the
    JVM and one set of jars. A JVM ignores one that does not fit. If it cannot be written, brokers start without it.
    """

    def __init__(self, jars: Path, java: Path) -> None:
        self._java = java
        launcher = java.resolve()
        build = hashlib.sha256(f"{launcher} {launcher.stat().st_mtime_ns}".encode()).hexdigest()
        self._path = jars / f"classes-{build[:16]}.jsa"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def flags(self) -> tuple[str, ...]:
        """Return the flags that make a JVM use the archive, or () if there is no archive."""
        return (f"-XX:SharedArchiveFile={self._path}", _QUIET) if self.exists else ()

    def recording_flags(self, file: Path) -> tuple[str, ...]:
        """Return the flags that make a JVM write its classes into `file` at a clean shutdown (2 s), or ().

        The flags are tried first: a JVM without an archive of the JDK's own classes, or with another archive in its
        environment, would not start with them.
        """
        flags = f"-XX:ArchiveClassesAtExit={file}", _QUIET
        try:
            tried = process.run([self._java, *flags, "-version"], timeout_seconds=_TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return ()
        return flags if tried.returncode == 0 and file.exists() else ()

    def keep(self, file: Path) -> None:
        """Make `file`, which an ended JVM recorded, the archive. If several processes do this, the last one wins."""
        part = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            shutil.move(file, part)
            part.replace(self._path)
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
