"""Write the results of the chaos tests: `pytest -m chaos tests/integration --results docs/reliability/chaos.json`.

A test reports with `record_property`: ("fault", kind) for each fault, and numbers by label. The numbers of all tests
are added up.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reliability.campaign import Campaign

FAULT = "fault"
ABOUT = (
    "Real Spark applications write to real brokers of Kafka 4.3.1 and 3.9.2. Meanwhile brokers, drivers and workers "
    "are killed or paused, topics change, and a proxy damages messages. Two streams, one for each guarantee, go "
    "through the faults below (three brokers, acks=all, min.insync.replicas=2). After each fault, librdkafka reads "
    "every row."
)


@dataclass(slots=True, eq=False)
class Collector:
    """A plugin of pytest."""

    path: Path
    # pytest's -k, which leaves tests out.
    keyword: str = ""
    reports: list[pytest.TestReport] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_sessionfinish(self) -> None:
        command = f"make chaos ARGS=\"-k '{self.keyword}'\"" if self.keyword else "make chaos"
        campaign(self.reports, seconds=time.monotonic() - self.started_s, command=command).write(self.path)


def campaign(reports: Iterable[pytest.TestReport], *, seconds: float, command: str = "make chaos") -> Campaign:
    """Return the results of `reports`: every phase of every test that ran. `seconds`: the duration of all tests."""
    tests: set[str] = set()
    failed: set[str] = set()
    skipped: dict[str, str] = {}
    faults: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for report in reports:
        tests.add(report.nodeid)
        if report.failed:
            failed.add(report.nodeid)
        elif report.skipped:
            skipped[report.nodeid] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if report.when == "call":
            for name, said in report.user_properties:
                if name == FAULT:
                    faults[str(said)] += 1
                elif isinstance(said, int):
                    numbers[name] += said
    return Campaign(
        name="chaos", title="Real brokers, real Spark", command=command, about=ABOUT,
        figures={
            "tests": len(tests), "passed": len(tests) - len(failed) - len(skipped), "failed": len(failed),
            "skipped": len(skipped), "minutes": round(seconds / 60),
            **{f"fault: {kind}": count for kind, count in sorted(faults.items())}, **dict(sorted(numbers.items())),
        },
        passed=bool(tests) and not failed,
        explained=tuple(sorted(f"{name.partition('::')[2]}: {why}" for name, why in skipped.items())),
    )  # fmt: skip
