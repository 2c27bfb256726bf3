"""What is made of Spark's answers and failures; real ones are in `tests/integration/test_deploying.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kafka_sink.doctor.interpreter import this_interpreter
from kafka_sink.doctor.report import Report, Status
from kafka_sink.errors import MissingOption
from kafka_sink.spark.interpreters import TASKS, InterpreterReader, examine_interpreters, telling
from kafka_sink.spark.source import INTERPRETERS, KafkaDataSource

NOT_FOUND = "An error occurred while calling o29.load.\n: [DATA_SOURCE_NOT_FOUND] Failed to find the data source"
NO_MODULE = "[PYTHON_DATA_SOURCE_ERROR] Failed:\nTraceback ...\nModuleNotFoundError: No module named 'kafka_sink'\n at"


class Session:
    """A SparkSession whose reads of `format("pykafka")` fail with one of `failures` each, and then bring `rows`."""

    def __init__(self, failures: Iterator[str], rows: list[tuple[str, str, str]]) -> None:
        self.failures, self.registered = failures, list[type]()
        self.read = self.dataSource = self
        self.register = self.registered.append
        self.schema = lambda _: self
        self.collect = lambda: rows

    def format(self, name: str) -> Session:
        assert name == "pykafka"
        return self

    def option(self, name: str, _: str) -> Session:
        assert name == INTERPRETERS
        return self

    def load(self) -> Session:
        for failure in self.failures:
            raise RuntimeError(failure)
        return self


def rows() -> list[tuple[str, str, str]]:
    told = this_interpreter().to_json()
    return [("tasks", "worker-2", told), *[("tasks", "worker-1", told)] * 3, ("planner", "here", told)]


def examined(*failures: str) -> tuple[Report, Session]:
    session: Any = Session(iter(failures), rows())
    return examine_interpreters(session), session


def places(report: Report) -> list[tuple[str, str]]:
    return [(verdict.seen_from, verdict.where) for verdict in report.verdicts]


def test_each_host_is_told_of_once_after_the_driver_and_the_planner() -> None:
    report, session = examined()
    of_all = [("driver", "driver"), ("driver", "planner"), ("worker-1", "tasks"), ("worker-2", "tasks")]
    assert places(report) == of_all
    assert not session.registered


def test_a_format_that_only_register_makes_known_is_a_warning() -> None:
    report, session = examined(NOT_FOUND)
    assert session.registered == [KafkaDataSource]
    assert report.ok
    (told,) = (verdict for verdict in report.verdicts if verdict.where == "format")
    assert told.status is Status.WARNING
    assert "kafka_sink.register(spark)" in told.finding.remedy
    assert ("driver", "planner") in places(report)


@pytest.mark.parametrize("failures", [(NO_MODULE,), (NOT_FOUND, NO_MODULE)])
def test_workers_without_the_package_are_a_failure(failures: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    report, _ = examined(*failures)
    (failure,) = report.failures
    assert "ModuleNotFoundError: No module named 'kafka_sink'." in failure.finding.found
    assert "PYSPARK_DRIVER_PYTHON is not set and PYSPARK_PYTHON is /usr/bin/python3" in failure.finding.found
    assert f"set PYSPARK_PYTHON={this_interpreter().executable} " in failure.finding.remedy


def test_a_connect_server_does_not_have_the_environment_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "__module__", "pyspark.sql.connect.session")
    report, _ = examined(NO_MODULE)
    (failure,) = report.failures
    assert "by the server's environment" in failure.finding.found
    assert "PYSPARK_PYTHON" not in failure.finding.found
    assert "where the Spark Connect server starts" in failure.finding.remedy


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb: Cannot run program \"./x\": error=2\nc", "Cannot run program \"./x\": error=2"),
        ("a\n[SOME.CONDITION] what it is\nc", "[SOME.CONDITION] what it is"),
        ("nothing known\nmore", "nothing known"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_line_that_tells_most_is_shown(text: str, line: str) -> None:
    assert telling(RuntimeError(text)) == line


def test_the_reader_tells_of_its_planner_once_and_of_each_task() -> None:
    source = KafkaDataSource({INTERPRETERS: "true"})
    reader = source.reader(None)  # type: ignore[arg-type]
    assert isinstance(reader, InterpreterReader)
    told = [process for partition in reader.partitions() for process, _, _ in reader.read(partition)]
    assert (told.count("planner"), told.count("tasks")) == (1, TASKS)
    # Without the option it is a read of records.
    with pytest.raises(MissingOption):
        KafkaDataSource({}).reader(StructType())
