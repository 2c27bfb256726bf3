"""The errors of the local broker. They do not concern the rows of a write."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from kafka_sink.errors import DataState, Explanation, KafkaSinkError
from kafka_sink.errors.exhaustion import is_exhaustion


class LocalKafkaError(KafkaSinkError):
    """The local broker for development and tests failed."""

    _data = DataState.NO_DATA


class LocalClusterUnusable(LocalKafkaError):
    """The cluster cannot do the operation. `problem` is a sentence that names the operation and the reason."""

    problem: str = field(kw_only=False)

    _happened = "{problem}"
    _advice = "Correct that, or start the cluster again."


class JavaNotFound(LocalKafkaError):
    searched: str

    _happened = "no Java for the local broker: {searched}."
    _advice = (
        "Install Java 17 or newer (on Debian or Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to one."
    )


class JavaVersionUnsupported(LocalKafkaError):
    java: str
    major: int
    minimum: int

    _happened = "{java} is Java {major}; the local broker needs {minimum} or newer."
    _advice = "Install a newer Java and set JAVA_HOME to it."


class IvyNotFound(LocalKafkaError):
    searched: str

    _happened = "no Ivy to fetch the local broker's jars with: {searched}."
    _advice = "The jar comes with Spark: pip install 'pyspark-pykafka[spark]', in a Python without pyspark-client."


class DownloadFailed(LocalKafkaError):
    kafka_version: str
    reason: str

    _happened = "the jars of Kafka {kafka_version} could not be fetched: {reason}."
    _advice = (
        "They are needed once and then kept: check the network and try again; what has been fetched is not fetched "
        "again. Java takes a proxy from JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=... -Dhttps.proxyPort=...), not from "
        "https_proxy."
    )


class DiskFull(LocalKafkaError):
    directory: str

    _happened = (
        "no space left (or quota exceeded) in {directory}. The jars of a Kafka version take 100 MB while they are "
        "fetched, an idle broker 1 MB."
    )
    _advice = (
        "Free some, or name another place: --dir or LocalKafka(dir=...) for data, TMPDIR for temporary data, "
        "XDG_CACHE_HOME for jars."
    )


class DirectoryUnusable(LocalKafkaError):
    directory: str
    reason: str

    _happened = "{directory} cannot be used by the local broker: {reason}."
    _advice = "Name another folder."


class HostExhausted(LocalKafkaError):
    """`what`: "memory", "threads" or "open files"."""

    what: str
    reason: str

    _happened = "the local broker was not started, as this process has no more {what}: {reason}."
    _advice = "Raise that limit, or stop what uses it up."


class BrokerStartFailed(LocalKafkaError):
    node: int
    reason: str
    port_taken: bool
    log_tail: str

    def explanation(self) -> Explanation:
        taken = " Another process took its port." if self.port_taken else ""
        again = "Try again. " if self.port_taken else ""
        return self._told(
            f"node {self.node} of the local cluster did not start: {self.reason}.{taken}",
            f"{again}The end of its log:\n{self.log_tail or '(empty)'}",
        )


class BrokerDied(LocalKafkaError):
    node: int
    status: int
    log_tail: str

    def explanation(self) -> Explanation:
        return self._told(
            f"the broker of node {self.node} of the local cluster ended by itself, with status {self.status} (137 is "
            "kill -9, often by a system short of memory).",
            f"Start it again. The end of its log:\n{self.log_tail or '(empty)'}",
            known="Its topics are gone unless the cluster has a --dir of its own.",
        )


class ToolFailed(LocalKafkaError):
    tool: str
    reason: str
    output_tail: str

    def explanation(self) -> Explanation:
        return self._told(
            f"Kafka's {self.tool} {self.reason}.", f"The end of its output:\n{self.output_tail or '(empty)'}"
        )


# --- failed writes to the disk ----------------------------------------------------------------------------------------

# Java's messages for ENOSPC and EDQUOT (strerror of the C library, untranslated in practice), and for SIGBUS: a page
# of a mapped file (Kafka's indexes) finds no space on the disk.
_FULL = ("No space left on device", "Disk quota exceeded", "unsafe memory access operation")


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Convert an OSError of the block to DiskFull or DirectoryUnusable, which name the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(directory=str(directory)) from error
        if is_exhaustion(error.errno):
            # Another folder would not help.
            raise
        raise DirectoryUnusable(directory=str(directory), reason=error.strerror or str(error)) from error


def tells_of_full_disk(output: str) -> bool:
    """Return True if `output` of a Java program shows that the disk is full."""
    return any(text in output for text in _FULL)
