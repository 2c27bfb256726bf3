"""docs/recording.svg: it shows what the README says, and refers to no other host."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import recording
from code_blocks import ROOT, blocks

SVG = "{http://www.w3.org/2000/svg}"


def lines_of(picture: str) -> list[str]:
    """What the terminal shows, line by line: the parts of a line have one height."""
    lines: dict[float, str] = {}
    parts = ElementTree.fromstring(picture).iter(f"{SVG}text")
    for part in (part for part in parts if not part.attrib["class"].endswith("-title")):
        height = float(part.attrib["y"])
        lines[height] = lines.get(height, "") + (part.text or "")
    shown = [lines[height].replace("\N{NO-BREAK SPACE}", " ").rstrip() for height in sorted(lines)]
    return [line for line in shown if line]


def hosts_of(picture: str) -> set[str]:
    return set(re.findall(r"https?:[^\"\s]+", picture))


def test_the_committed_picture_shows_the_readme() -> None:
    picture = (ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")
    shown = lines_of(picture)
    parts = [block for block in blocks("README.md") if block.section == recording.SECTION]
    assert {part.language for part in parts} == {"bash", "python", "text"}
    expected = [f"$ {command}" for command in recording.typed()]
    expected += [line for part in parts if part.language != "bash" for line in part.text.splitlines() if line]
    assert [line for line in expected if line not in shown] == []
    assert hosts_of(picture) == {"http://www.w3.org/2000/svg"}
    # Commands have their comments cut off.
    assert recording.typed()[1] == "pip install --quiet ./pykafka"
    assert not [command for command in recording.typed() if "#" in command]
