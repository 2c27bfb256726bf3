from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kafka_sink.spark import relay_choice
from kafka_sink.spark.relay_choice import WORKERS, is_worth_it, workers_of


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_choice, "_begun_in", set())
    monkeypatch.setattr(relay_choice, "is_possible", lambda: True)
    monkeypatch.delenv("PYKAFKA_RELAY", raising=False)


def with_workers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(relay_choice, "workers_of", lambda daemon_pid: number)


def test_from_some_workers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with_workers(monkeypatch, WORKERS - 1)
    assert not is_worth_it()
    with_workers(monkeypatch, WORKERS)
    assert is_worth_it()


def test_a_worker_that_has_begun_goes_on_when_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with_workers(monkeypatch, WORKERS)
    assert is_worth_it()
    with_workers(monkeypatch, 1)
    assert is_worth_it()


def test_a_forked_process_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    with_workers(monkeypatch, WORKERS)
    assert is_worth_it()
    with_workers(monkeypatch, 1)
    monkeypatch.setattr(relay_choice.os, "getpid", lambda: 1)
    assert not is_worth_it()


@pytest.mark.parametrize(("choice", "number", "expected"), [("on", 1, True), ("off", 99, False), ("", 1, False)])
def test_the_environment_decides(choice: str, number: int, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_workers(monkeypatch, number)
    monkeypatch.setenv("PYKAFKA_RELAY", choice)
    assert is_worth_it() is expected


def test_never_where_the_system_lacks_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_workers(monkeypatch, 99)
    monkeypatch.setenv("PYKAFKA_RELAY", "on")
    monkeypatch.setattr(relay_choice, "is_possible", lambda: False)
    assert not is_worth_it()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_workers_are_the_children_of_the_daemon() -> None:
    before = workers_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert workers_of(os.getpid()) >= max(1, before)
    assert workers_of(2**22 - 1) == 0
