"""The jars of a Kafka broker, fetched once by the Ivy that PySpark ships and kept in a cache.

`$XDG_CACHE_HOME/pykafka/kafka-<version>` (else below `~/.cache`) holds them, complete or not at all: they are
fetched into a folder beside it and renamed, under a lock, so that two processes may want them at once. Ivy's
built-in settings say where from, and it compares checksums. What is not obvious about asking Ivy:

* Types `jar,bundle`: OSGi-flavoured artifacts (scala-logging, snappy, zstd-jni) are of type bundle, and Ivy
  drops types not asked for without a word. So the set is checked before the rename.
* `conf="default->default"`: the module and what it needs at run time. `runtime` alone leaves out the module
  itself.
* Kafka Connect, which kafka-tools drags in with Jetty and Jersey, is excluded: half of the download, no use
  here. By regexp: Ivy's glob matcher needs a library that PySpark does not ship.
* The SLF4J binding is asked for by name, see `settings.Logging`.
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
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_sink.broker import process
from kafka_sink.broker.errors import DiskFull, DownloadFailed, IvyNotFound
from kafka_sink.broker.settings import LOG4J2, RELOAD4J, Logging
from kafka_sink.broker.storage import tells_of_full_disk, writing_to

log = logging.getLogger(__name__)

DEFAULT_KAFKA_VERSION = "4.3.1"
KAFKA_VERSIONS: Mapping[str, Logging] = {"3.9.2": RELOAD4J, "4.3.1": LOG4J2}

# 50 jars, 46 MB: a minute on a good line. Ivy itself never gives up on a line that went silent.
IVY_TIMEOUT_SECONDS = 900.0

# What the jars of a version must contain, as `organisation_module`, beside the SLF4J binding.
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


Command = Sequence[str | Path]


def resolve_jars(version: str, cache_dir: Path, ivy_command: Callable[[], Command]) -> Path:
    """The folder with the jars of a Kafka version, fetched if need be.

    `ivy_command` yields what runs Ivy, e.g. `[java, "-jar", ivy_jar]`; it is asked only when something is to
    be fetched. Raises DownloadFailed, DiskFull, DirectoryUnusable.
    """
    logging_of_version = KAFKA_VERSIONS[version]
    jars = cache_dir / f"kafka-{version}"
    if not missing_jars(jars, logging_of_version):
        return jars
    with writing_to(cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with exclusive(cache_dir / f"kafka-{version}.lock"):
            # Another process may have fetched them while this one waited for the lock.
            if missing_jars(jars, logging_of_version):
                fetch(version, logging_of_version, jars, ivy_command())
    return jars


def fetch(version: str, logging_of_version: Logging, jars: Path, ivy_command: Command) -> None:
    """Fetches into a folder beside `jars`, then renames. What Ivy has got survives a failure: the next run goes on."""
    work = jars.with_name(f"kafka-{version}.part")
    fetched = work / "jars"
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    (work / "ivy.xml").write_text(ivy_module(version, logging_of_version), encoding="utf-8")
    # A warning, as that shows where logging was not set up: whoever waits a minute should know why.
    log.warning("fetching Kafka %s, about 50 MB, once, into %s", version, jars)
    run_ivy(version, ivy_command, work, fetched)
    missing = missing_jars(fetched, logging_of_version)
    if missing:
        raise DownloadFailed(kafka_version=version, reason=f"these jars did not come: {', '.join(missing)}")
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
    """The first few lines of what Ivy complains of."""
    complaints = [line.strip() for line in output.partition(":: problems summary ::")[2].splitlines()]
    told = [line for line in complaints if line and not line.startswith("::")] or output.strip().splitlines()[-3:]
    return "; ".join(told[:3]) or "Ivy gave no reason"


def missing_jars(directory: Path, logging_of_version: Logging) -> list[str]:
    """Which of the jars that a broker needs are not in `directory` (all, when it does not exist)."""
    names = [path.name for path in directory.glob("*.jar")]
    binding = f"{logging_of_version.binding_organisation}_{logging_of_version.binding_module}"
    return [required for required in (*REQUIRED_JARS, binding) if not _has(names, required)]


def _has(names: Iterable[str], required: str) -> bool:
    return any(name.startswith(required + "-") and name[len(required) + 1].isdigit() for name in names)


def ivy_module(version: str, logging_of_version: Logging) -> str:
    """An ivy.xml that depends on what a broker of this version needs."""
    wanted = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
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
    """Holds a lock file; waits for whoever has it. The kernel frees it when its holder dies."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """XDG Base Directory Specification: a relative or empty XDG_CACHE_HOME does not count."""
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "pykafka"


def installed_pyspark() -> Path:
    """The folder of the PySpark package; it is not imported, which would take a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise IvyNotFound(searched="PySpark is not installed")
    return Path(spec.submodule_search_locations[0])


def find_ivy_jar(pyspark: Path) -> Path:
    """Ivy's jar below a PySpark package; raises IvyNotFound."""
    found = sorted(pyspark.glob("jars/ivy-*.jar"))
    if not found:
        raise IvyNotFound(searched=f"{pyspark} holds no jars/ivy-*.jar")
    return found[-1]
