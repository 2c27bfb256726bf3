"""Finds the Java that runs the broker, and checks its version.

It is `$JAVA_HOME/bin/java` if JAVA_HOME is set, else the `java` on the PATH. This is the rule of Spark's
`bin/spark-class`, so the broker and Spark use the same Java. Brokers from Kafka 4.0 on need Java 17 (KIP-1013), and so
does Spark 4.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

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
