"""Which tests failed, and what else went wrong: `pytest --failed-tests FILE` writes it, as JSON. With pytest-xdist only
the first process writes: it receives the reports of all tests.

Run as a script, one more look at them, which only `.ci/run` takes, after `make test`, when nothing else runs:

    make test ARGS="--failed-tests FILE" || PYTHONPATH=tests/support python -m failed_tests FILE

Up to two failed tests run once more, in one process. If both pass, the exit status is 0, and the last lines name them.
A failed collection, a crashed worker, and an exit status of pytest's that is not 1 get no second look.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest


# By identity, because pytest hashes its plugins.
@dataclass(slots=True, eq=False)
class FailedTests:
    """A plugin of pytest, and what it wrote.

    `failed`: ids of tests, in the order in which they failed first. `broken`: what is no test's failure: modules that
    could not be collected, and tests or workers that took a process of pytest-xdist with them. `status`: pytest's
    exit status."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    status: int | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when == "call":
            self.passed += 1
        elif report.failed and report.when not in ("setup", "call", "teardown"):
            self.broken.append(report.nodeid)
        elif report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    @classmethod
    def read(cls, path: Path) -> FailedTests:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-tests", type=Path, metavar="FILE", help="gets the tests that failed, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--failed-tests") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(), "failed-tests")


# The last word: every other plugin may change the status before.
@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    try:
        return (yield)
    finally:
        written = session.config.pluginmanager.get_plugin("failed-tests")
        if isinstance(written, FailedTests):
            written.status = int(session.exitstatus)
            session.config.getoption("--failed-tests").write_text(json.dumps(asdict(written), indent=2))


AT_MOST = 2
TESTS_FAILED = 1


def main(first: Path) -> int:
    try:
        seen = FailedTests.read(first)
    except FileNotFoundError:
        print("No second look: pytest did not come to its end.")
        return 1
    if refusal := refused(seen):
        print(f"No second look: {refusal}.")
        return 1
    print(f"\n== second look at {len(seen.failed)} failed tests", flush=True)
    if not pass_alone(seen.failed):
        return 1
    print("\n".join(f"FLAKY: {test}" for test in seen.failed))
    return 0


def refused(seen: FailedTests) -> str:
    """Return why the failures cannot be chance, or nothing."""
    if seen.broken:
        return f"not only tests failed: {', '.join(seen.broken)}"
    if seen.status != TESTS_FAILED:
        return f"pytest ended with {seen.status}"
    if not 0 < len(seen.failed) <= AT_MOST:
        return f"{len(seen.failed)} tests failed"
    return ""


def pass_alone(tests: list[str]) -> bool:
    """Whether each of `tests` passes; one that is skipped or not found does not."""
    with tempfile.TemporaryDirectory(prefix="second-look-") as folder:
        again = Path(folder, "failed.json")
        pytest = Path(sys.executable).with_name("pytest")
        # An empty -m: no mark leaves a test out.
        options = ("--numprocesses", "0", "-m", "", "--failed-tests", again)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        status = subprocess.run([pytest, *options, *tests], env=environment).returncode
        return status == 0 and FailedTests.read(again).passed == len(tests)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
