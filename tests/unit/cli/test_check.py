"""The command's line, statuses and words. What it finds: `unit/doctor` and `tests/integration/test_doctor.py`."""

from __future__ import annotations

import json
import runpy
import sys

import pytest

from kafka_sink.cli import check
from kafka_sink.cli.check import main
from kafka_sink.doctor.report import Report, Verdict, failed, ok, warning
from kafka_sink.options.config import SinkConfig

OK, FAILED, WRONG_USAGE = 0, 1, 2
SERVERS = ("--option", "kafka.bootstrap.servers=b:9092")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    verdicts: list[Verdict] = []
    monkeypatch.setattr(check, "examine", lambda config: Report(tuple(verdicts)))
    return verdicts


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--topic", "t"], ["--option", "x"], [*SERVERS, "--option", "kafka.ack=1"], ["--preset", "none"],
        *([*SERVERS, "--checkpoint", "c", "--wait", each] for each in ("-1", "nan", "inf", "1 s")),
        [*SERVERS, "--read", "--option", "subscribe=t", "--checkpoint", "c"],
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(arguments: list[str], found: list[Verdict]) -> None:
    try:
        assert main(arguments) == WRONG_USAGE
    except SystemExit as ended:
        assert ended.code == WRONG_USAGE


def test_warnings_are_no_failure(found: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    found += [Verdict("dns", "b:9092", ok("10.0.0.1")), Verdict("acks", "topic t", warning("acks=1", "set all"))]
    assert main(SERVERS) == OK
    assert "1 OK, 1 WARNING" in capsys.readouterr().out
    found.append(Verdict("tcp", "b:9092", failed("refused", "check the port")))
    assert main(SERVERS) == FAILED
    assert "to fix it: check the port" in capsys.readouterr().out
    assert main([*SERVERS, "--json"]) == FAILED
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verdicts"][2]["remedy"] == "check the port"


def test_spark_adds_what_executors_see(
    found: list[Verdict], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    masters: list[str] = []

    def from_spark(config: SinkConfig, master: str) -> Report:
        masters.append(master)
        return Report((Verdict("tcp", "b:9092", failed("refused", "open it"), seen_from="worker-7"),))

    monkeypatch.setattr(check, "from_spark", from_spark)
    assert main([*SERVERS, "--spark"]) == FAILED
    assert main([*SERVERS, "--spark", "local[2]"]) == FAILED
    assert masters == ["", "local[2]"]
    assert "worker-7" in capsys.readouterr().out
    assert main(SERVERS) == OK


def test_it_runs_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["check", "--option", "kafka.bootstrap.servers=localhost:1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kafka_sink.check", run_name="__main__")
    assert ended.value.code == FAILED
