"""The committed page is the one that the messages make, and says all three things of every error."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from effort import each
from errors_page import OFTEN, page, plain
from kafka_sink.cli.error_catalogue import by_section, example
from kafka_sink.errors import DataState, KafkaSinkError, WriteKind
from kafka_sink.errors.wording import words

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "errors.md"
RAISED = [cls for _, classes in by_section() for cls in classes]


def test_the_committed_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@functools.cache
def rows() -> list[str]:
    return page().splitlines()


def row_of(cls: type[KafkaSinkError]) -> str:
    begins = f"| `{cls.__name__}` |"
    (row,) = [line for line in rows() if line.startswith(begins) and line.count(" | ") == 3]
    return row


@each("cls", RAISED)
def test_a_row_has_the_parts_of_the_message(cls: type[KafkaSinkError]) -> None:
    row = row_of(cls)
    assert all(cell.strip() for cell in row.strip("|").split(" | "))
    error = example(cls)
    told = error.explanation()
    assert [plain(part) in row for part in (told.happened, told.known, told.advice)] == [True] * 3
    assert plain(error.parts().data) in row or f"[{told.data.value}]" in row


@pytest.mark.parametrize("state", OFTEN)
def test_what_is_often_said_is_there_as_every_kind_of_write_is_told_it(state: DataState) -> None:
    for kind in WriteKind:
        assert plain(words(state, kind).data) in page()
