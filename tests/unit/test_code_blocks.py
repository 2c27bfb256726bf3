"""Every code block of README, DESIGN and docs is run by a test, or cannot be; every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from code_blocks import ROOT, RUNNABLE, Block, blocks, pages

# Kinds that are not run, and why. Anything else fails.
# What a command printed: nobody runs that, and no line of it may be a command. Any other kind fails.
NOT_RUN = {"text"}
RUNNERS = ("run_python", "run_bash", "words_of")
FIRST_RUN = ROOT / ".ci" / "first_run.py"
# Sections of the README.
IN_FIRST_RUN = ("First rows", "Quick start")
FIRST_HOUR = ROOT / ".ci" / "first_hour.py"
COMMAND = re.compile(r"\s*(\$|#!|make|pip|python3?|spark-submit|kafka-\w+(\.sh)?|cd|export|source)\s")
MAKE = re.compile(r"make( [A-Z]+=\S+)* ([a-z-]+)( [A-Z]+=\S+)* *(#.*)?")
ALL = [block for page in (*pages(), "DESIGN.md") for block in blocks(page)]


def is_make(block: Block) -> bool:
    """Nothing but targets of the Makefile: `make test` is this, and CI runs the demo by `make wheel`. That they exist
    is looked at."""
    return block.language == "bash" and all(MAKE.fullmatch(line) for line in block.text.splitlines())


def where(block: Block) -> tuple[str, str, int]:
    return block.page, block.section, block.number


def test_what_is_shown_as_output_is_no_command() -> None:
    shown = [line for block in ALL if block.language in NOT_RUN for line in block.text.splitlines()]
    assert shown
    assert [line for line in shown if COMMAND.match(line)] == []


def taken() -> Iterator[tuple[str, str, int]]:
    """What tests run: the literals that they give to what runs a block."""
    for path in sorted((ROOT / "tests" / "integration").glob("test_*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                yield from literals(function)


def literals(function: ast.FunctionDef) -> Iterator[tuple[str, str, int]]:
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in RUNNERS:
            page, section, number = (ast.literal_eval(argument) for argument in call.args[:3])
            yield page, section, number


def test_every_block_is_run_by_a_test() -> None:
    assert {block.language for block in ALL} <= {*RUNNABLE, *NOT_RUN}
    run = Counter(taken())
    in_first_run = [block for block in ALL if block.page == "README.md" and block.section in IN_FIRST_RUN]
    first_run = {where(block) for block in in_first_run if block.language in RUNNABLE}
    assert {section for _, section, _ in first_run} == set(IN_FIRST_RUN), "make first-run has nothing to do"
    expected = {where(block) for block in ALL if block.language in RUNNABLE and not is_make(block)}
    assert run.keys() | first_run == expected


def test_first_rows_and_quick_start_are_run_by_ci() -> None:
    first_run, first_hour = FIRST_RUN.read_text(encoding="utf-8"), FIRST_HOUR.read_text(encoding="utf-8")
    for section, script in zip(IN_FIRST_RUN, ("first_rows(self.user)", "session(self.user)"), strict=True):
        assert f'"{section}"' in first_run
        assert script in first_hour
    assert "make first-run" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_target_that_is_named_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in (*pages(), "DESIGN.md", "CHANGELOG.md")]
    named = {name for text in texts for name in re.findall(r"`make ([a-z-]+)", text)}
    named |= {line.split()[1] for block in ALL if is_make(block) for line in block.text.splitlines()}
    assert {"demo", "test"} <= named
    assert named - targets == set()


# Those between other pages of docs/ are mkdocs' (make site). GitHub shows these files as they are, too.
DESIGN = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "design").glob("*.md")))
ROOT_PAGES = ("README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINKING = (*ROOT_PAGES, "tests/README.md", "docs/internals.md", *DESIGN)


@pytest.mark.parametrize("page", LINKING)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: str) -> None:
    links = [link for link in links_of((ROOT / page).read_text(encoding="utf-8")) if not link.startswith("https://")]
    assert [link for link in links if not leads_somewhere(ROOT / page, link)] == []


def test_the_overview_and_its_page_define_the_same_links() -> None:
    """Each defines them relative to its own folder, as the page takes over the text that uses them."""
    at_root = {label: (ROOT / link).resolve() for label, link in defined("DESIGN.md").items()}
    in_docs = {label: (ROOT / "docs" / link).resolve() for label, link in defined("docs/internals.md").items()}
    assert at_root == in_docs
    used = set(re.findall(r"\]\[([^\]]+)\]", (ROOT / "DESIGN.md").read_text(encoding="utf-8")))
    assert used == at_root.keys()


def defined(page: str) -> dict[str, str]:
    return dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


def links_of(text: str) -> list[str]:
    """In place, and as definitions of references."""
    return [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)]


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    path = page.parent / name if name else page
    if not path.is_file():
        return False
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
    return not anchor or anchor in map(slug, headings)


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


LLMS = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
# As in https://llmstxt.org: a list of links, each with what it is.
LLMS_LINK = re.compile(r"^- \[[^\[\]]+\]\(([\w/-]+)\.html\): \S.*$", re.MULTILINE)


def test_llms_txt_has_its_parts_and_lists_every_page_of_the_site_once() -> None:
    lines = LLMS.splitlines()
    assert (lines[0], lines[2][:2]) == ("# pykafka", "> ")
    sections = re.split(r"^## .+\n\n", LLMS, flags=re.MULTILINE)[1:]
    assert sections
    assert [line for each in sections for line in each.splitlines() if line and not LLMS_LINK.match(line)] == []
    # It lies beside the pages, which mkdocs makes of docs/NAME.md as NAME.html.
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages_of_nav = re.findall(r"([\w/-]+)\.md$", nav, re.MULTILINE)
    assert "guarantees" in pages_of_nav
    assert sorted(LLMS_LINK.findall(LLMS)) == sorted(pages_of_nav)
