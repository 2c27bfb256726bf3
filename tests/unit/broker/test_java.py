"""kafka_sink.broker.java: which Java is taken, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.errors import JavaNotFound, JavaVersionUnsupported
from kafka_sink.broker.java import find_java, parse_java_major


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "25" 2025-09-16 LTS', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=9\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_major_version(output: str, major: int | None) -> None:
    assert parse_java_major(output) == major


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    at_home = java_that_says('openjdk version "21"', tmp_path / "home" / "bin")
    on_path = java_that_says('openjdk version "17"', tmp_path / "path")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ) == at_home
    del environ["JAVA_HOME"]
    assert find_java(environ) == on_path


def test_java_too_old(tmp_path: Path) -> None:
    java = java_that_says('openjdk version "11.0.2" 2019-01-15', tmp_path)
    with pytest.raises(JavaVersionUnsupported, match="is Java 11; the local broker needs 17") as raised:
        find_java({"PATH": str(tmp_path)})
    assert (raised.value.java, raised.value.major, raised.value.minimum) == (str(java), 11, 17)


def test_why_no_java_is_found(tmp_path: Path) -> None:
    java_that_says("Unable to locate a Java Runtime.", tmp_path / "tells")
    for environ, words in (
        ({"PATH": ""}, "JAVA_HOME is not set and no java is on the PATH.*Install Java 17"),
        ({"PATH": str(tmp_path)}, "JAVA_HOME is not set and no java is on the PATH.*Install Java 17"),
        ({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}, "JAVA_HOME is .*, which has no bin/java"),
        ({"PATH": str(tmp_path / "tells")}, "is no working Java: Unable to locate"),
    ):
        with pytest.raises(JavaNotFound, match=words):
            find_java(environ)


def java_that_says(text: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return java
