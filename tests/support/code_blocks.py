"""Finds the code blocks of README and docs, and runs them as readers would.

`run_python` and `run_bash` find a block on its page and execute it, in one call. `save_block` makes a file of it. Tests
pass literals as the first three arguments: `tests/unit/test_pages.py` reads these literals and compares them with all
blocks that exist.
Only addresses, folders and names are replaced, and each replaced text must be in the block.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# A diff is run as what it leads to.
RUNNABLE = ("python", "diff", "bash")
# A busy machine takes minutes for the start of an application.
TIMEOUT_S = 700
# Where sources are tested, pip has installed no script.
SCRIPT = 'command -v pykafka > /dev/null || pykafka() { python -m kafka_sink "$@"; }\n'

_HEADING = re.compile(r"#{1,6} (.+)")
_FENCE = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_IN_A_LIST = re.compile(r"[-*] |\d+\. |  +\S")


@dataclass(frozen=True, slots=True)
class Block:
    """`section`: the heading above it. `number`: its place among those of the section that can be run, else -1.
    `language`: "indented" where it has none, as it has no fence."""

    page: str
    section: str
    number: int
    language: str
    text: str


def pages() -> list[str]:
    """README and docs, and what contributors read, relative to the root."""
    docs = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", "SECURITY.md", *docs]


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    section, fence, language, inside, before = "", "", "", list[str](), ""

    def end() -> None:
        number = sum(block.section == section and block.language in RUNNABLE for block in found)
        text = "\n".join(inside) + "\n"
        found.append(Block(page, section, number if language in RUNNABLE else -1, language, text))

    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        marks = _FENCE.match(line)
        if fence:
            if marks and marks[2] == fence and not marks[3]:
                end()
                fence, inside, before = "", [], ""
            else:
                inside.append(line)
        elif marks:
            fence, language = marks[2], marks[3].strip()
        elif re.match(r" {4}|\t", line) and not _IN_A_LIST.match(before):
            language, inside = "indented", [line]
            end()
            inside = []
        else:
            if heading := _HEADING.fullmatch(line):
                section = heading[1]
            before = line or before
    assert not fence, f"{page}: a code block has no end"
    return found


def block_of(page: str, section: str, number: int) -> Block:
    found = [block for block in blocks(page) if block.section == section and block.number == number]
    assert len(found) == 1, f"{page}, {section}: there is no one block {number}"
    return found[0]


def run_python(
    page: str, section: str, number: int, replaced: Mapping[str, str], names: Mapping[str, object]
) -> dict[str, Any]:
    """Run the block with the variables `names` and return all variables. Spark pickles its functions by value."""
    block = block_of(page, section, number)
    assert block.language in ("python", "diff")
    variables: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(_as_it_is_here(block, replaced), f"{page}: {section}", "exec"), variables)
    return variables


def run_bash(
    page: str, section: str, number: int, replaced: Mapping[str, str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the block in `folder` with the tests' Python, until a command fails. stdout also contains stderr."""
    block = block_of(page, section, number)
    assert block.language == "bash"
    # PYTHONSAFEPATH would hide a job's own modules from it; no sources lie in `folder`.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    path = os.pathsep.join((str(Path(sys.executable).parent), inherited.get("PATH", "")))
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SCRIPT + _as_it_is_here(block, replaced)],
        cwd=folder, env=inherited | {"PATH": path} | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


def run_program(
    page: str, section: str, number: int, replaced: Mapping[str, str], folder: Path, python: Path, **environment: str
) -> str:
    """Run the block as a program in `folder`, by another Python. Return what it printed, also if it failed."""
    block = block_of(page, section, number)
    assert block.language == "python"
    script = folder / "program.py"
    script.write_text(_as_it_is_here(block, replaced), encoding="utf-8")
    return subprocess.run(
        [python, script], cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=TIMEOUT_S,
    ).stdout  # fmt: skip


def save_block(page: str, section: str, number: int, replaced: Mapping[str, str], path: Path) -> None:
    """Write the block to `path`, for another block that runs it."""
    path.write_text(_as_it_is_here(block_of(page, section, number), replaced), encoding="utf-8")


def words_of(page: str, section: str, number: int, replaced: Mapping[str, str]) -> list[str]:
    """Split a block of one command into words, as the shell does, for a caller that runs it in its own process."""
    block = block_of(page, section, number)
    assert block.language == "bash"
    command = _as_it_is_here(block, replaced).replace("\\\n", " ").strip()
    assert "\n" not in command
    ended = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return ended.stdout.removesuffix("\0").split("\0")


def _as_it_is_here(block: Block, replaced: Mapping[str, str]) -> str:
    text = block.text
    if block.language == "diff":
        text = "".join(f"{line[1:]}\n" for line in text.splitlines() if not line.startswith("-"))
    for what in replaced:
        assert what in text, f"{what} is not in the block"
    # In one pass: what comes in, such as a port, may have what another replaces.
    longest_first = sorted(replaced, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: replaced[found[0]], text) if replaced else text
