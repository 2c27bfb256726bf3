"""Pages: every code block of README, DESIGN and docs is run by a test, or cannot be; links lead somewhere; what they
name is there: options, commands, errors, tests, versions. Notebooks have no outputs. The page of the Python API has
every public name, and no other; each that people call has an example, which test_api_examples.py runs."""

import ast
import configparser
import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gate
import slot_model
from code_blocks import ROOT, RUNNABLE, Block, blocks, pages
from effort import each
from kafka_sink import errors
from kafka_sink.__main__ import COMMANDS
from kafka_sink.cli.explain import ERRORS
from kafka_sink.kafka.config import VERSION
from kafka_sink.options.reading import READING
from kafka_sink.options.table import NOT_YET_PREFIXES, REFUSED_PREFIXES, WRITING
from public_api import MODULES, public, with_examples

# What a command printed: nobody runs that, and no line of it may be a command. Any other kind fails.
NOT_RUN = {"text"}
RUNNERS = ("run_python", "run_bash", "run_program", "save_block", "words_of")
# Sections of the README.
IN_FIRST_RUN = ("First rows", "Quick start")
COMMAND = re.compile(r"\s*(\$|#!|make|pip|python3?|spark-submit|kafka-\w+(\.sh)?|cd|export|source)\s")
MAKE = re.compile(r"make( [A-Z]+=\S+)* ([a-z-]+)( [A-Z]+=\S+)* *(#.*)?")
ALL = [block for page in (*pages(), "DESIGN.md") for block in blocks(page)]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def is_make(block: Block) -> bool:
    """Nothing but targets of the Makefile: `make test` is this, and CI runs the demo by `make wheel`. That they exist
    is looked at."""
    return block.language == "bash" and all(MAKE.fullmatch(line) for line in block.text.splitlines())


def where(block: Block) -> tuple[str, str, int]:
    return block.page, block.section, block.number


# Written by tools, from tables and from results.
MADE_BY_TOOLS = {"mistakes.md", "options.md", "reading-options.md", "errors.md", "reliability.md", "protocol.md"}
MOST_WORDS = 50_000


def test_the_pages_have_no_more_words_than_a_reader_can_take() -> None:
    """README and docs, without the code."""
    written = [page for page in pages() if page == "README.md" or page.startswith("docs/")]
    texts = {page: text_of(page) for page in written if Path(page).name not in MADE_BY_TOOLS}
    code = re.compile(r"^( *)(```+)[^`]*?\n.*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
    words = sum(len(code.sub("", text).split()) for text in texts.values())
    assert 10_000 < words <= MOST_WORDS


def test_what_is_shown_as_output_is_no_command() -> None:
    shown = [line for block in ALL if block.language in NOT_RUN for line in block.text.splitlines()]
    assert shown
    assert [line for line in shown if COMMAND.match(line)] == []


def taken() -> Iterator[tuple[str, str, int]]:
    """What tests run: the literals that they give to what runs a block."""
    for path in sorted((ROOT / "tests" / "integration").glob("test_*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef):
                names = [function.name, *map(ast.unparse, function.decorator_list)]
                if any(name.startswith(("test_", "pytest.fixture")) for name in names):
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
    for section, script in zip(IN_FIRST_RUN, ("first_rows(self.user)", "session(self.user)"), strict=True):
        assert f'"{section}"' in text_of(".ci/first_run.py")
        assert script in text_of(".ci/first_hour.py")
    assert "make first-run" in text_of(".ci/run")


def test_every_target_that_is_named_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    texts = map(text_of, (*pages(), "DESIGN.md", "CHANGELOG.md", "AGENTS.md"))
    named = {name for text in texts for name in re.findall(r"`make ([a-z-]+)", text)}
    named |= {line.split()[1] for block in ALL if is_make(block) for line in block.text.splitlines()}
    assert {"demo", "test"} <= named
    assert named - targets == set()


# Those between other pages of docs/ are mkdocs' (make site). GitHub shows these files as they are, too.
DESIGN = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "design").glob("*.md")))
ROOT_PAGES = (
    "README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md", "CODE_OF_CONDUCT.md",
)  # fmt: skip
LINKING = (*ROOT_PAGES, "tests/README.md", "tests/cases.md", "tests/cases-reading.md", "docs/internals.md", *DESIGN)


@pytest.mark.parametrize("page", LINKING)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: str) -> None:
    links = [link for link in links_of(text_of(page)) if not link.startswith("https://")]
    assert [link for link in links if not leads_somewhere(ROOT / page, link)] == []


def test_the_overview_and_its_page_define_the_same_links() -> None:
    """Each defines them relative to its own folder, as the page takes over the text that uses them."""
    at_root = {label: (ROOT / link).resolve() for label, link in defined("DESIGN.md").items()}
    in_docs = {label: (ROOT / "docs" / link).resolve() for label, link in defined("docs/internals.md").items()}
    assert at_root == in_docs
    assert set(re.findall(r"\]\[([^\]]+)\]", text_of("DESIGN.md"))) == at_root.keys()


def defined(page: str) -> dict[str, str]:
    return dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text_of(page), re.MULTILINE))


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


SVG = "{http://www.w3.org/2000/svg}"
PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())


@each("picture", PICTURES)
def test_a_picture_is_text_for_both_themes_and_a_phone_and_a_page_shows_it(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    texts = [text for text in root.iter(f"{SVG}text") if text.text]
    width = float(root.get("viewBox", "").split()[2])
    style = "".join(element.text or "" for element in root.iter(f"{SVG}style"))
    sizes = [int(size) for size in re.findall(r"(\d+)px", style)]
    # A phone shows 360 pixels.
    assert len(texts) > 10 and min(sizes) * 360 / width >= 12
    assert "prefers-color-scheme: dark" in style
    assert [text.text for text in texts if end_of(text) >= width] == []
    shown = [alt for page in (*pages(), "DESIGN.md") for alt in alts_of(page, picture)]
    assert shown and all(len(alt.split()) > 30 for alt in shown)


def end_of(text: ElementTree.Element) -> float:
    """A letter of a browser's own font takes about half of its size."""
    width = len(text.text or "") * (7.1 if text.get("class") == "title" else 6.4)
    return float(text.get("x", "")) + (width / 2 if text.get("text-anchor") == "middle" else width)


def alts_of(page: str, picture: Path) -> list[str]:
    labels = {label: link for label, link in defined(page).items() if (ROOT / page).parent / link == picture}
    inline = re.findall(r"!\[([^\]]+)\]\(([^)\s]+)\)", text_of(page))
    by_label = re.findall(r"!\[([^\]]+)\]\[([^\]]+)\]", text_of(page))
    named = [alt for alt, link in inline if (ROOT / page).parent / link == picture]
    return named + [alt for alt, label in by_label if label in labels]


LLMS = text_of("docs/llms.txt")
# As in https://llmstxt.org: a list of links, each with what it is.
LLMS_LINK = re.compile(r"^- \[[^\[\]]+\]\(([\w/-]+)\.html\): \S.*$", re.MULTILINE)


def test_llms_txt_has_its_parts_and_lists_every_page_of_the_site_once() -> None:
    lines = LLMS.splitlines()
    assert (lines[0], lines[2][:2]) == ("# pykafka", "> ")
    sections = re.split(r"^## .+\n\n", LLMS, flags=re.MULTILINE)[1:]
    assert sections
    assert [line for each in sections for line in each.splitlines() if line and not LLMS_LINK.match(line)] == []
    # It lies beside the pages, which mkdocs makes of docs/NAME.md as NAME.html.
    nav = text_of("mkdocs.yml").partition("\nnav:\n")[2]
    pages_of_nav = re.findall(r"([\w/-]+)\.md$", nav, re.MULTILINE)
    assert "guarantees" in pages_of_nav
    assert sorted(LLMS_LINK.findall(LLMS)) == sorted(pages_of_nav)


OPTION_NAMES = {option.name for table in (WRITING, READING) for option in table.options}
OPTION_NAMES |= {*WRITING.refused, *READING.refused}
PREFIXES = (*REFUSED_PREFIXES, *NOT_YET_PREFIXES)
# Of a table of errors: the first cell of a row.
ERROR_ROW = re.compile(r"^\| ((?:`[A-Z][A-Za-z0-9]+`(?:, )?)+) \|", re.MULTILINE)


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
    rows = ERROR_ROW.findall(text_of("docs/faq.md"))
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert "DriverFenced" in named
    assert [name for name in named if name not in ERRORS] == []
    assert all(hasattr(errors, name) for name in named)


def test_the_facts_are_those_of_setup_cfg_and_of_what_was_tried() -> None:
    readme = text_of("README.md")
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    table = readme.partition("[start:compatibility]")[2].partition("[end:compatibility]")[0]
    rows = re.findall(r"^\| (\d+\.\d+)\.\d+ \| (\d+\.\d+)\.\d+ \|", table, re.MULTILINE)
    sparks = [spark for _, spark in rows]
    kafkas = [kafka.rpartition(".")[0] for kafka in re.findall(r"Kafka (\d+\.\d+\.\d+) \|", table)]
    assert f"pyspark >= {sparks[0]}" in settings["options.extras_require"]["spark"].splitlines()
    python = settings["options"]["python_requires"].removeprefix(">= ")
    classified = re.findall(r":: Python :: (3\.\d+)$", settings["metadata"]["classifiers"], re.MULTILINE)
    assert classified == list(dict.fromkeys(python for python, _ in rows))
    assert settings["metadata"]["version"] == VERSION
    licence = {"Apache-2.0": "Apache License 2.0"}[settings["metadata"]["license"]]
    facts = (f"Python {python} or later", f"Spark {sparks[0]} to {sparks[-1]}", f"Kafka {kafkas[0]} to {kafkas[-1]}")
    assert readme.splitlines()[2] == " · ".join((*facts, "Linux", licence))


def test_notebooks_are_committed_as_nobody_has_run_them() -> None:
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [path.stem for path in paths] == ["exactly_once", "export", "stream", "transform"]
    for cell in (cell for path in paths for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]):
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


CAPABILITIES = text_of("tests/capabilities.md")
ROWS = re.findall(r"^\| (.+?) \| `(\w+)::(\w+)` \|", CAPABILITIES, re.MULTILINE)


@each("row", ROWS)
def test_a_capability_has_its_test_in_the_gate(row: tuple[str, str, str]) -> None:
    # `.ci/run` runs the tests of Kerberos, too.
    leaves = re.compile(r"pytest\.mark\.(long|chaos)\b")
    assert gate.stays(ROOT / "tests" / "integration" / f"{row[1]}.py", row[2], leaves)


def test_every_capability_is_shown_but_the_one_that_needs_clusters() -> None:
    rows = [line for line in CAPABILITIES.splitlines() if line.startswith("| ")]
    heads = 2
    assert len(rows) - len(ROWS) == heads + 1
    assert len({capability for capability, *_ in ROWS}) == len(ROWS) > 60


def test_every_module_of_which_the_gate_runs_nothing_is_in_the_table() -> None:
    leaves = re.compile(r"^pytestmark = .*pytest\.mark\.(long|chaos)\b", re.MULTILINE)
    modules = [path for path in (ROOT / "tests" / "integration").glob("test_*.py") if leaves.search(path.read_text())]
    assert len(modules) == 23
    assert [path.stem for path in modules if f"`{path.stem}`" not in CAPABILITIES] == []


PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("cases*.md")}
HEADING = re.compile(r"^## (.+): (\d+) cases$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
REASON = re.compile(r"(?<![\w*])\*([^*]+)\*")


def table(text: str) -> Iterator[tuple[str, str]]:
    """Both cells of each row of the first table of `text`."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line == "|---|---|") + 1
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        left, right = line.strip("| ").split(" | ")
        yield left, right


def sections(page: str) -> dict[str, list[tuple[str, str]]]:
    """The rows of each table of cases, by its heading."""
    headings = list(HEADING.finditer(page))
    ends = [*(heading.start() for heading in headings[1:]), len(page)]
    return {heading[0]: list(table(page[heading.end() : end])) for heading, end in zip(headings, ends, strict=True)}


@cache
def names_in(path: str) -> set[str]:
    """As pytest names them: `test_x`, `TestClass::test_x`."""
    return set(_tests(ast.parse(text_of(path)).body, ""))


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_is_named_is_there(page: str) -> None:
    named = TEST.findall(PAGES[page])
    assert named
    assert [f"{path}::{test}" for path, test in named if test not in names_in(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_case_has_a_test_or_a_reason(page: str) -> None:
    reasons = {reason[1] for left, _ in table(PAGES[page]) if (reason := REASON.search(left))}
    given = set()
    for heading, rows in sections(PAGES[page]).items():
        for left, right in rows:
            tests, why = TEST.findall(right), REASON.findall(right)
            assert tests or why, f"{heading}: {left}"
            assert set(why) <= reasons, f"{heading}: {left}"
            given.update(why)
    assert given == reasons

    # Each case is told of once, and all are counted.
    for heading, rows in sections(PAGES[page]).items():
        names = Counter(name for left, _ in rows for name in re.findall(r"`([^`]+)`", left))
        assert max(names.values()) == 1, f"{heading}: {names.most_common(1)}"
        assert heading.endswith(f": {names.total()} cases"), f"{heading}: {names.total()}"


def test_the_page_of_performance_has_the_formulas_of_the_model_and_their_symbols() -> None:
    formulas, symbols = slot_model.tables()
    assert formulas in text_of("docs/design/performance.md") and symbols in text_of("docs/design/performance.md")
    letters = {word for each in slot_model.FORMULAS for word in each.text.replace("(", " ").split() if len(word) == 1}
    assert {each for each in letters if each.isalpha()} <= slot_model.SYMBOLS.keys()


# Of the table of KIPs: the numbers of a row, and what is there of them.
KIP_ROW = re.compile(r"^\| ([\d, ]+) \| [^|]+ \| (yes|partly|no|brokers' own)\b[^|]*\|$", re.MULTILINE)


def test_every_kip_that_the_code_names_is_in_the_table_once() -> None:
    lines = [line for line in text_of("docs/kips.md").splitlines() if re.match(r"\| \d", line)]
    assert [line for line in lines if not KIP_ROW.match(line)] == []
    listed = [int(number) for line in lines for number in line.split("|")[1].split(",")]
    assert Counter(listed).most_common(1)[0][1] == 1
    firsts = [int(line.split("|")[1].split(",")[0]) for line in lines]
    assert firsts == sorted(firsts)
    # The brokers of tests are no part of the client.
    sources = [path for path in (ROOT / "kafka_sink").rglob("*.[pch]*") if path.suffix in (".py", ".c", ".h")]
    own = [path for path in sources if path.relative_to(ROOT).parts[1] != "broker"]
    named = {int(kip) for path in own for kip in re.findall(r"KIP-(\d+)", path.read_text(encoding="utf-8"))}
    assert 98 in named
    assert named - set(listed) == set()


API_PAGE = text_of("docs/api.md")
SHOWN = re.findall(r"^::: ([\w.]+)$", API_PAGE, re.MULTILINE)
# Their helpers are shared, so they have no underscore. Only what is in `__all__` is public there.
SHARED = "kafka_sink.monitoring.", "kafka_sink.spark.", "kafka_sink.errors"


def test_the_page_of_the_api_has_every_public_name_once_and_no_other() -> None:
    assert len(SHOWN) == len(set(SHOWN))
    assert set(SHOWN) <= public().keys()
    missing = [name for name in public().keys() - set(SHOWN) if not is_told_of_in_words(name)]
    assert missing == []


def is_told_of_in_words(name: str) -> bool:
    """Errors have a page of their own. What is only for their texts is named."""
    module, _, short = name.rpartition(".")
    return module == "kafka_sink.errors" and any(f"`{short}`" in page for page in (text_of("docs/errors.md"), API_PAGE))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(SHARED)])
def test_what_a_public_module_defines_is_public_or_has_an_underscore(name: str) -> None:
    module = importlib.import_module(name)
    defined = {
        short for short, what in vars(module).items()
        if callable(what) and getattr(what, "__module__", None) == name and not short.startswith("_")
    }  # fmt: skip
    assert defined - set(module.__all__) == set()


@each("name", with_examples())
def test_what_people_call_has_an_example(name: str) -> None:
    assert ">>> " in with_examples()[name]
