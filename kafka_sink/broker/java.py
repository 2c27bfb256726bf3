"""The Java that runs the broker: found as Spark finds it, and new enough.

`$JAVA_HOME/bin/java` when JAVA_HOME is set, else the `java` on the PATH: the rule of Spark's
`bin/spark-class`, so that one Java serves both. Brokers from Kafka 4.0 on need Java 17 (KIP-1013), as Spark 4
does.
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

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "21-ea"`. Searched, not
# matched: "Picked up JAVA_TOOL_OPTIONS: ..." may come first.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


def find_java(environ: Mapping[str, str]) -> Path:
    """Path of a Java launcher of at least MINIMUM_JAVA; raises JavaNotFound, JavaVersionUnsupported."""
    java = locate_java(environ)
    output = version_output(java)
    major = parse_java_major(output)
    if major is None:
        # macOS has a /usr/bin/java that only says where to get one.
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
    """17 of what `java -version` prints, 8 for "1.8.0_392"; None when it holds no version."""
    found = _VERSION.search(output)
    return int(found[1]) if found else None
