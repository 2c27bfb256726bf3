"""The committed page is the one that the messages make, and says all three things of every error."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink import errors, errors_page
from kafka_sink.errors import KafkaSinkError, ProtocolError
from kafka_sink.errors_page import example, page, taken_apart

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
RAISED = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, KafkaSinkError) and not cls.__subclasses__() and not issubclass(cls, ProtocolError)
]


def test_the_committed_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_module_prints_it() -> None:
    command = [sys.executable, "-m", "kafka_sink.errors_page"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == page()


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_every_error_has_a_row_with_all_three_answers(cls: type[KafkaSinkError]) -> None:
    (row,) = [
        line for line in page().splitlines() if line.startswith(f"| `{cls.__name__}` |") and line.count(" | ") == 3
    ]
    assert all(cell.strip() for cell in row.strip("|").split(" | "))


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_a_message_is_taken_apart_and_nothing_of_it_is_lost(cls: type[KafkaSinkError]) -> None:
    message = taken_apart(example(cls))
    often = dict(errors_page.OFTEN).get(message.often, "")
    parts = " ".join((message.happened, message.data, message.advice, errors_page.plain(often)))
    whole = errors_page.plain(str(example(cls)))
    assert sorted(parts.replace(":", "").split()) == sorted(whole.replace(":", "").split())


def test_what_to_do_is_added_only_where_a_message_does_not_say_it() -> None:
    silent = {cls.__name__ for cls in RAISED if not taken_apart(example(cls)).advice}
    assert silent == set(errors_page.TO_DO)


def test_the_data_is_spoken_of_in_the_column_for_it() -> None:
    happened = [taken_apart(example(cls)).happened for cls in RAISED]
    assert not [text for text in happened if "othing is lost" in text or "o row is lost" in text]
