"""Options, commands and errors that README and docs name are there, in the tables and modules that know them."""

from __future__ import annotations

import re

import pytest

from code_blocks import ROOT, blocks, pages
from kafka_sink import errors
from kafka_sink.__main__ import COMMANDS
from kafka_sink.cli.explain import ERRORS
from kafka_sink.options.reading import READING
from kafka_sink.options.table import NOT_YET_PREFIXES, REFUSED_PREFIXES, WRITING

OPTION_NAMES = {option.name for table in (WRITING, READING) for option in table.options}
OPTION_NAMES |= {*WRITING.refused, *READING.refused}
PREFIXES = (*REFUSED_PREFIXES, *NOT_YET_PREFIXES)
# Of a table of errors: the first cell of a row.
ERROR_ROW = re.compile(r"^\| ((?:`[A-Z][A-Za-z0-9]+`(?:, )?)+) \|", re.MULTILINE)
FAQ = ROOT / "docs" / "faq.md"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages())
def test_every_option_of_the_client_that_a_page_names_is_one(page: str) -> None:
    named = set(re.findall(r"`(kafka\.[a-z0-9.]*[a-z0-9])[`=]", text_of(page)))
    unknown = {name for name in named - OPTION_NAMES if not name.startswith(PREFIXES)}
    assert unknown == set()


@pytest.mark.parametrize("page", pages())
def test_every_command_that_a_page_names_is_one(page: str) -> None:
    shell = "\n".join(block.text for block in blocks(page) if block.language == "bash")
    named = {*re.findall(r"`pykafka ([a-z]+)", text_of(page)), *re.findall(r"^pykafka ([a-z]+)", shell, re.MULTILINE)}
    assert named <= COMMANDS.keys() | {"version"}


def test_every_error_of_the_faq_is_one() -> None:
    rows = ERROR_ROW.findall(FAQ.read_text(encoding="utf-8"))
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert "DriverFenced" in named
    assert [name for name in named if name not in ERRORS] == []
    assert all(hasattr(errors, name) for name in named)
