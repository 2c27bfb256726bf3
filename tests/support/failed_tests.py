"""Which tests failed, and what else went wrong: `pytest --failed-tests FILE` writes it, as JSON.

With pytest-xdist only the first process writes: it receives the reports of all tests.
"""

from __future__ import annotations

import json
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
