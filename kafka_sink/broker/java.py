"""Finds the Java that runs the broker, and checks its version.

It is `$JAVA_HOME/bin/java` if JAVA_HOME is set, else the `java` on the PATH. This is the rule of Spark's
`bin/spark-class`, so the broker and Spark use the same Java. Brokers from Kafka 4.0 on need Java 17 (KIP-1013), and so
does Spark 4.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafka_sink.broker import process
from kafka_sink.broker.errors import JavaNotFound, JavaVersionUnsupported

MINIMUM_JAVA = 17

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "21-ea"`. It may follow other
# lines: "Picked up JAVA_TOOL_OPTIONS: ...".
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the path of a Java launcher of at least MINIMUM_JAVA. Raises JavaNotFound, JavaVersionUnsupported."""
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


# --- an archive of classes --------------------------------------------------------------------------------------------
# An archive of Kafka's parsed and verified classes for the next JVM: class data sharing (JEP 350).
#
# With the archive a broker answers after 1.2 s instead of 2.2 s, and uses 1.6 s of CPU instead of 2.7 s (Kafka 4.3.1,
# two cores). The archive (50 MB) is in the folder of the jars, one for each `java`, because it fits one build of the
# JVM and one set of jars. A JVM ignores an archive that does not fit. If it cannot be written, brokers start without
# it.

# Suppresses the JVM's messages about omitted classes, and about archives that do not fit.
_QUIET = "-Xlog:cds*=off"
_TRIAL_SECONDS = 30.0


class ClassArchive:
    """The archive for the jars in the folder `jars` and the launcher `java`."""

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
