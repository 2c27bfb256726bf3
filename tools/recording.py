"""`make recording`: PYTHONPATH=tests/support python tools/recording.py docs/recording.svg

Runs the README's first rows in an empty home, with a copy of the clone and a real broker, and draws what a terminal
shows. Only the home's path is replaced, by `~`. Spark's own messages go into a file, as the command says. rich draws
the picture.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from code_blocks import blocks

ROOT = Path(__file__).resolve().parents[1]
NOT_TRACKED = (".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
SECTION = "First rows"
PROGRAM = "orders.py"
WIDTH = 100
# rich's own format fetches a font from another host.
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font: bold 18px sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""
# Between the outputs of two commands.
MARK = "== next command"
# Variables that would lead to another Python, Spark or home.
CALLERS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "XDG", "PYKAFKA", "MAKE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    commands = [*typed(), f"cat {PROGRAM}", f"python {PROGRAM} 2> spark.log", "pykafka broker stop"]
    with TemporaryDirectory(prefix="pykafka-recording.") as home:
        shutil.copytree(ROOT, Path(home) / "pykafka", ignore=shutil.ignore_patterns(*NOT_TRACKED))
        (Path(home) / PROGRAM).write_text(in_readme("python"), encoding="utf-8")
        shown = run(commands, Path(home))
    arguments.picture.write_text(picture(zip(commands, shown, strict=True)), encoding="utf-8")


def typed() -> list[str]:
    """Return the commands of the README, without their comments."""
    return [re.sub(r" +#.*", "", line) for line in in_readme("bash").splitlines()]


def in_readme(language: str) -> str:
    parts = [block.text for block in blocks("README.md") if (block.section, block.language) == (SECTION, language)]
    return "\n".join(parts)


def run(commands: Sequence[str], home: Path) -> list[str]:
    """Run the commands in one shell, in `home`. Return what each one printed.

    Raises CalledProcessError if one fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CALLERS)}
    environment |= {"HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    # Only the last command stops the broker otherwise.
    script = "exec 2>&1\ntrap '[ $? = 0 ] || pykafka broker stop' EXIT\n"
    script += "".join(f"printf '%s\\n' '{MARK}'\n{command}\n" for command in commands)
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=home, env=environment, stdout=subprocess.PIPE, text=True
    )
    if ended.returncode:
        print(ended.stdout)
    ended.check_returncode()
    return ended.stdout.replace(str(home), "~").split(f"{MARK}\n")[1:]


def picture(session: Iterable[tuple[str, str]]) -> str:
    """Return an SVG of a terminal with these commands and what they printed."""
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor", force_terminal=True)
    for command, printed in session:
        console.print(Text("$ ", style="bold green"), Text(command, style="bold"), sep="")
        console.print(Text(printed), end="")
    return console.export_svg(title="pykafka", code_format=FORMAT, unique_id="recording")


if __name__ == "__main__":
    main()
