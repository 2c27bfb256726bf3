from __future__ import annotations

import re

import pytest

from effort import each
from kafka_sink.cli.error_catalogue import example
from kafka_sink.cli.explain import ERRORS, main
from kafka_sink.errors import UnknownOption
from kafka_sink.options.table import OPTIONS, REFUSED


def said(capsys: pytest.CaptureFixture[str], *names: str, status: int = 0) -> str:
    assert main(names) == status
    return capsys.readouterr().out


def test_all_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = set(re.findall(r"[\w.]+", said(capsys)))
    assert {option.name for option in OPTIONS} | ERRORS.keys() <= listed


def test_an_option_has_its_default_and_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert "kafka.linger.ms  (default 100)" in said(capsys, "KAFKA.linger.ms")
    assert "createTopics  (default false)" in said(capsys, "createtopics")


def test_a_part_of_a_name_finds_all_and_a_whole_name_comes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "timeout")
    assert "kafka.request.timeout.ms" in found and "DeliveryTimeout" in found
    lines = said(capsys, "topic").splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == ["topic  (default none)"]


@each("name", REFUSED)
def test_a_refused_name_has_what_to_do_instead(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert found == f"{name} (refused) {' '.join(REFUSED[name].split())}"


@each("name", ERRORS)
def test_an_error_has_its_whole_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert " ".join(str(example(ERRORS[name])).split()) in found


def test_a_name_that_is_in_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka.nonsense", "TornBatch"]) == 1
    ended = capsys.readouterr()
    assert "'kafka.nonsense' is neither an option nor an error" in ended.err
    assert ended.out.startswith("TornBatch\n")


def test_errors_name_no_page_that_pip_does_not_install() -> None:
    texts = [str(example(cls)) for cls in ERRORS.values()]
    assert [text for text in texts if "docs/" in text or ".md" in text] == []
    assert "`pykafka explain`" in str(UnknownOption(option="x"))
