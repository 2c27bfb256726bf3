"""The interpreters of a write: what one says of itself, and what is wrong with one."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from kafka_sink.doctor import interpreter
from kafka_sink.doctor.interpreter import Interpreter, interpreter_of, judged, this_interpreter
from kafka_sink.doctor.report import Status
from kafka_sink.records.kernel import Loss, fallback

DRIVER = Interpreter("/venv/bin/python", "3.11.7", "0.1.0", "/venv/lib", "compiled")


def test_a_process_knows_its_python_and_says_it_to_the_driver() -> None:
    here = this_interpreter()
    assert (here.executable, here.python) == (sys.executable, ".".join(map(str, sys.version_info[:3])))
    assert interpreter_of(here.to_json()) == here


def test_a_process_says_why_it_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "KERNEL", replace(fallback(), loss=Loss("nobody built it", "build it")))
    here = this_interpreter()
    assert (here.kernel, here.loss, here.remedy) == ("vectorised", "nobody built it", "build it")


@pytest.mark.parametrize(
    ("found", "status", "says", "remedy"),
    [
        (DRIVER, Status.OK, "kafka_sink 0.1.0 in /venv/lib, compiled kernel", ""),
        (replace(DRIVER, executable="/usr/bin/python3", python="3.12.1"), Status.OK, "Python 3.12.1", ""),
        (replace(DRIVER, kernel="vectorised"), Status.OK, "vectorised kernel", ""),
        (replace(DRIVER, version="0.0.9"), Status.WARNING, "another version", "install pyspark-pykafka 0.1.0"),
        (replace(DRIVER, kernel="vectorised", loss="in a zip", remedy="unzip"), Status.WARNING, "in a zip", "unzip"),
    ],
)
def test_a_write_wants_one_version_and_the_kernel(found: Interpreter, status: Status, says: str, remedy: str) -> None:
    finding = judged(found, DRIVER)
    assert finding.status is status
    assert says in finding.found
    assert remedy in finding.remedy
