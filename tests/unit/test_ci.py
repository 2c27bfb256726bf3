"""`.ci/run` looks a second time at up to two failed tests, alone, and names those that pass then. `.ci/prerequisites`
says what a machine lacks before anything is built, with the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from failed_tests import FailedTests, main, refused

SUPPORT = Path(__file__).resolve().parents[1] / "support"
# `passes_at(2)` fails at its first call, as a test does that fails by chance.
TOY = """
import os, pathlib, pytest

def passes_at(attempt):
    calls = pathlib.Path(os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0] + ".calls")
    with calls.open("a") as file:
        file.write(".")
    assert len(calls.read_text()) >= attempt

@pytest.fixture
def starts_at_the_second_attempt():
    passes_at(2)

def test_right(): pass
"""
CHANCE = """
@pytest.mark.slow
@pytest.mark.parametrize("case", ["a::b c"])
def test_by_chance(case): passes_at(2)
"""
START = "def test_with_a_start(starts_at_the_second_attempt): pass\n"
WRONG = "def test_wrong(): passes_at(3)\n"
SKIPPED = """
def test_gone():
    try:
        passes_at(2)
    except AssertionError:
        raise
    pytest.skip()
"""


def gate(folder: Path, tests: str, *options: str) -> tuple[int, list[str]]:
    """Run `tests` as `.ci/run` does, and return the exit status of the second look and what it printed."""
    (folder / "setup.cfg").write_text(
        f"[tool:pytest]\ntestpaths = tests\npythonpath = {SUPPORT}\nmarkers = slow\naddopts = -m 'not slow'\n"
    )
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").write_text("pytest_plugins = ('failed_tests',)\n")
    (folder / "tests" / "test_toy.py").write_text(TOY + tests)
    first = folder / "failed.json"
    # Only the plugin that the second look needs, as each takes its time to start.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    test = [Path(sys.executable).with_name("pytest"), "-m", "", "--failed-tests", first, *options]
    subprocess.run(test, cwd=folder, env=alone, stdout=subprocess.DEVNULL)
    look = [sys.executable, "-m", "failed_tests", first]
    support = {**alone, "PYTHONPATH": str(SUPPORT)}
    ended = subprocess.run(look, cwd=folder, env=support, stdout=subprocess.PIPE, text=True)
    return ended.returncode, ended.stdout.splitlines()


def test_two_tests_that_pass_the_second_time_pass_the_gate_and_are_named_last(tmp_path: Path) -> None:
    status, said = gate(tmp_path, CHANCE + START, "--numprocesses", "2")
    assert status == 0 and "2 passed" in said[-3]
    flaky = ("test_by_chance[a::b c]", "test_with_a_start")
    assert sorted(said[-2:]) == [f"FLAKY: tests/test_toy.py::{test}" for test in flaky]


@pytest.mark.parametrize("tests", [CHANCE + WRONG, SKIPPED], ids=["one of two fails again", "is skipped"])
def test_a_test_that_does_not_pass_the_second_time_fails_the_gate(tmp_path: Path, tests: str) -> None:
    status, said = gate(tmp_path, tests)
    assert status == 1
    assert not any(line.startswith("FLAKY:") for line in said)


@pytest.mark.parametrize(("tests", "options", "failed"), [
    ("def test_crash(): os._exit(7)\n", ("--numprocesses", "1"), "tests/test_toy.py::test_crash"),
    ("import no_such_module\n", ("--continue-on-collection-errors",), "tests/test_toy.py"),
], ids=["a worker crashed", "a module cannot be collected"])  # fmt: skip
def test_anything_but_failed_tests_fails_the_gate(
    tmp_path: Path, tests: str, options: tuple[str, ...], failed: str
) -> None:
    assert gate(tmp_path, tests, *options) == (1, [f"No second look: not only tests failed: {failed}."])


def test_a_run_that_did_not_come_to_its_end_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path / "failed.json") == 1
    assert capsys.readouterr().out == "No second look: pytest did not come to its end.\n"


@pytest.mark.parametrize(("seen", "reason"), [
    (FailedTests(failed=["a", "b"], status=1), ""), (FailedTests(failed=["a", "b", "c"], status=1), "3 tests failed"),
    (FailedTests(failed=["a"], status=2), "pytest ended with 2"),
    (FailedTests(failed=["a"], broken=["b"], status=1), "not only tests failed: b"),
    (FailedTests(status=0), "pytest ended with 0"), (FailedTests(status=1), "0 tests failed"),
])  # fmt: skip
def test_more_than_two_tests_or_anything_else_gets_no_second_look(seen: FailedTests, reason: str) -> None:
    assert refused(seen) == reason


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
