"""What is committed is what the tools make of the tables, messages and schemas: pages, locks and the picture."""

import configparser
import functools
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import options_page
import recording
import site_pages
from code_blocks import ROOT, blocks
from effort import each
from errors_page import OFTEN, plain
from errors_page import page as errors_page
from kafka_sink.cli.explain import by_section, example
from kafka_sink.errors import DataState, KafkaSinkError, WriteKind
from kafka_sink.errors.base import words
from kafka_sink.options.kinds import OptionTable
from kafka_sink.options.reading import READING
from kafka_sink.options.table import WRITING
from options_page import page, reading_page
from protocol_page import NEWEST, Ours, Schema, ours, row

ERRORS_PAGE = ROOT / "docs" / "errors.md"
RAISED = [cls for _, classes in by_section() for cls in classes]
PAGE = (ROOT / "docs" / "design" / "protocol.md").read_text(encoding="utf-8")
SITE_PAGES = dict(site_pages.pages())
END_TXN = Ours(26, "EndTxn", 0, 5)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_of_errors_is_generated() -> None:
    assert ERRORS_PAGE.read_text(encoding="utf-8") == errors_page(), "run `make docs`"
    # A fact of an unknown type is a placeholder by characters.
    assert "<, " not in errors_page()


@functools.cache
def rows() -> list[str]:
    return errors_page().splitlines()


@each("cls", RAISED)
def test_a_row_has_the_parts_of_the_message(cls: type[KafkaSinkError]) -> None:
    begins = f"| `{cls.__name__}` |"
    (row,) = [line for line in rows() if line.startswith(begins) and line.count(" | ") == 3]
    assert all(cell.strip() for cell in row.strip("|").split(" | "))
    error = example(cls)
    told = error.explanation()
    assert [plain(part) in row for part in (told.happened, told.known, told.advice)] == [True] * 3
    assert plain(error.parts().data) in row or f"[{told.data.value}]" in row


@each("cls", RAISED)
def test_the_site_has_a_page_with_all_that_a_row_has(cls: type[KafkaSinkError]) -> None:
    text = SITE_PAGES[f"errors/{cls.__name__}.md"]
    error = example(cls)
    told = error.explanation()
    assert f"# {cls.__name__}\n" in text
    assert [plain(part) in text for part in (told.happened, told.known, told.advice)] == [True] * 3
    kinds = WriteKind if told.data in OFTEN and told.data is not DataState.SENT_AGAIN else [None]
    assert all(plain(words(told.data, kind).data) in text for kind in kinds)


@pytest.mark.parametrize("table", [WRITING, READING], ids=["write", "read"])
def test_the_site_has_a_page_for_each_option(table: OptionTable) -> None:
    for option in table.options:
        text = SITE_PAGES[f"options/{option.name}.md"]
        assert f"# {option.name}\n" in text and options_page.meaning(option) in text
    assert all(instead in SITE_PAGES[f"options/{name}.md"] for name, instead in table.refused.items())


@pytest.mark.parametrize("state", OFTEN)
def test_what_is_often_said_is_there_as_every_kind_of_write_is_told_it(state: DataState) -> None:
    for kind in WriteKind:
        assert plain(words(state, kind).data) in errors_page()


@pytest.mark.parametrize(("file", "text", "options"), [
    ("options.md", page(), WRITING), ("reading-options.md", reading_page(), READING),
], ids=["write", "read"])  # fmt: skip
def test_pages_of_options_are_generated_with_each_name_and_default(file: str, text: str, options: OptionTable) -> None:
    assert (ROOT / "docs" / file).read_text(encoding="utf-8") == text, "run `make docs`"
    prefixes = (f"{prefix}*" for prefix in options.refused_prefixes)
    names = [*(option.name for option in options.options), *options.refused, *prefixes]
    assert [name for name in names if f"`{name}`" not in text] == []
    if options is READING:
        assert "`endingOffsets` | `latest`" in text and "`kafka.isolation.level` | `read_uncommitted`" in text


def test_rows_are_rows_whatever_is_in_them() -> None:
    option = replace(WRITING.options[0], doc="a | b * c", redact=True)
    (row,) = options_page.table([option]).splitlines()[2:]  # type: ignore[attr-defined]
    assert row.count(" | ") == 3
    assert "a \\| b \\* c. No message shows the value" in row


def test_an_api_that_brokers_do_not_understand_is_marked() -> None:
    for schema, said in (
        (None, "Kafka has it no longer"),
        (Schema("EndTxn", 0, -1, ()), "Kafka has it no longer"),
        (Schema("EndTxn", 6, 7, ()), "no common version"),
    ):
        assert f"**{said}**" in row(END_TXN, schema)


def test_the_committed_page_is_of_the_newest_broker_and_of_our_versions() -> None:
    assert f"Kafka {NEWEST} " in PAGE, "run `make protocol`"
    for api in ours():
        mine = row(api, None).split(" | ")[:3]
        assert any(line.split(" | ")[:3] == mine for line in PAGE.splitlines()), f"run `make protocol` for {api}"
    assert "**" not in PAGE


@pytest.mark.long
def test_the_page_of_the_protocol_is_generated() -> None:
    command = [sys.executable, str(ROOT / "tools" / "protocol_page.py")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == PAGE, "run `make protocol`"


def requirements(extra: str) -> set[Requirement]:
    """Those of the package and of an extra, which may take over others (`%(test)s`)."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"] + settings["options.extras_require"][extra]
    return {Requirement(line) for line in lines.splitlines() if line and not line.startswith("#")}


def locked(extra: str) -> dict[str, list[Requirement]]:
    """The pins of each package: several, if the version depends on the platform."""
    pins: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^([a-z0-9].*?) \\$", (ROOT / f"requirements/{extra}.txt").read_text(), re.MULTILINE):
        pin = Requirement(line)
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins


def versions_of(pins: list[Requirement]) -> set[str]:
    return {str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("extra", ["dev", "connect", "release"])
def test_every_requirement_is_locked_with_a_hash_to_a_version_that_it_allows(extra: str) -> None:
    pins = locked(extra)
    for requirement in requirements(extra):
        versions = versions_of(pins.get(canonicalize_name(requirement.name), []))
        allowed = set(requirement.specifier.filter(versions))
        assert versions == allowed != set(), f"{requirement}: locked is {versions or 'nothing'}; run `make lock`"
    text = (ROOT / f"requirements/{extra}.txt").read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) > 10
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in text, "no index is named"
    dev = locked("dev")
    for name in dev.keys() & pins.keys():
        assert versions_of(pins[name]) <= versions_of(dev[name]), f"{name}: run `make lock`"


def test_the_committed_picture_shows_the_readme_and_refers_to_no_other_host() -> None:
    picture = (ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")
    lines: dict[float, str] = {}  # The parts of a line have one height.
    for part in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        if not part.attrib["class"].endswith("-title"):
            height = float(part.attrib["y"])
            lines[height] = lines.get(height, "") + (part.text or "")
    shown = [line.replace("\N{NO-BREAK SPACE}", " ").rstrip() for line in lines.values()]
    parts = [block for block in blocks("README.md") if block.section == recording.SECTION]
    assert {part.language for part in parts} == {"bash", "python", "text"}
    expected = [f"$ {command}" for command in recording.typed()]
    expected += [line for part in parts if part.language != "bash" for line in part.text.splitlines() if line]
    assert [line for line in expected if line not in shown] == []
    assert set(re.findall(r"https?:[^\"\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    # Commands have their comments cut off.
    assert recording.typed()[1] == "pip install --quiet './pykafka[spark]'"
    assert not [command for command in recording.typed() if "#" in command]
