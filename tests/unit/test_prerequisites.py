"""`.ci/prerequisites`: what a machine lacks is said before anything is built, with the remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "prerequisites"


def check(*words: str, path: str = "/usr/bin:/bin", folder: Path | None = None, **variables: str) -> tuple[int, str]:
    """(exit status, what was said)."""
    command, env = ["/bin/sh", str(SCRIPT), *words], {"PATH": path, **variables}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_tests_of_kerberos_need_is_enough(tmp_path: Path) -> None:
    for name in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit", "faketime"):
        program(tmp_path / name, "")
    assert check("kerberos", path=str(tmp_path)) == (0, "")


@pytest.mark.parametrize(("version", "is_enough"), [
    ("17.0.15", True), ("17", True), ("21.0.2", True), ("25-ea", True), ("1.8.0_402", False), ("11.0.2", False),
    ("9", False),
])  # fmt: skip
def test_java_is_new_enough_or_too_old(tmp_path: Path, version: str, is_enough: bool) -> None:
    program(tmp_path / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    status, said = check("java", JAVA_HOME=str(tmp_path))
    assert status == (0 if is_enough else 1)
    assert (is_enough and not said) or f"is Java {version}: 17 or newer is needed" in said


def test_no_java(tmp_path: Path) -> None:
    assert f"JAVA_HOME is {tmp_path}" in check("java", JAVA_HOME=str(tmp_path))[1]
    status, said = check("java", path=str(tmp_path))
    assert status == 1 and "no java on the PATH" in said and "apt install" in said


@pytest.mark.parametrize(("answers", "words"), [
    # The script asks for the version's text first and compares second.
    ("*print*) echo 3.9 ;; *sys.exit*) exit 1 ;;", "is Python 3.9: 3.11 or newer is needed"),
    ("*print*) echo 3.12 ;; *ensurepip*) exit 1 ;;", "apt install python3.12-venv"),
])  # fmt: skip
def test_python_is_too_old_or_has_no_venv(tmp_path: Path, answers: str, words: str) -> None:
    status, said = check("python", str(program(tmp_path / "python3", f"case $2 in {answers} esac")))
    assert status == 1
    assert words in said


@pytest.mark.parametrize("name", ["a space", "a(b)", "it's", "a&b", "a;b", "$HOME", "a\\b", "a\tb"])
def test_the_folder_would_hide_the_interpreter_from_spark(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    status, said = check("folder", folder=folder)
    assert status == 1 and str(folder) in said
