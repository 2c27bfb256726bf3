"""`make first-run`: run the README's first rows and its quick start in an empty home, then the quick start once more.

    PYTHONPATH=tests/support python3 .ci/first_run.py

The clone is a copy of the tracked files. Variables of Python, Spark and
this project are removed from the environment. Shell blocks run in one bash session, as in a terminal. Python blocks
run there as files. The blocks check the written rows themselves (`--expect-records`). The second run uses the same
home, and runs Python blocks twice.

Prints the seconds. Exit status 1 if a block fails, or if a run takes five minutes. Uses only the standard library, and
the machine's Python 3.11 and Java 17.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from code_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300
NOT_TRACKED = (".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
CALLERS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "XDG", "PYKAFKA", "MAKE")


@dataclass(frozen=True, slots=True)
class User:
    """A user with a clone, Python and Java. `folder` contains all files of the user."""

    folder: Path
    home: Path
    clone: Path
    environment: dict[str, str]

    @property
    def first_rows(self) -> Path:
        """The folder of the README's first rows, which has the clone, too."""
        return self.home / "first-rows"

    @property
    def quick_start(self) -> Path:
        """The folder in which the quick start creates its environment, `venv`, and its broker."""
        return self.home / "pykafka-quick-start"


def main() -> int:
    with new_user() as user:
        try:
            passed = timed("first rows", first_rows(user), user)
            passed = passed and timed("first run", session(user), user)
            passed = passed and timed("second run", session(user, again=True), user)
        finally:
            stop_broker(user)
    return 0 if passed else 1


@contextmanager
def new_user() -> Iterator[User]:
    with tempfile.TemporaryDirectory(prefix="pykafka-first-run.") as name:
        folder = Path(name)
        home, clone, tools = folder / "home", folder / "clone", folder / "bin"
        for empty in (home, tools):
            empty.mkdir()
        shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*NOT_TRACKED))
        (tools / "python3").symlink_to(os.path.realpath(sys.executable))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(CALLERS)}
        path = [part for part in environment["PATH"].split(os.pathsep) if not Path(part).is_relative_to(ROOT)]
        environment |= {"HOME": str(home), "PATH": os.pathsep.join((str(tools), *path)), "SPARK_LOCAL_IP": "127.0.0.1"}
        yield User(folder, home, clone, environment)


def timed(name: str, script: Path, user: User) -> bool:
    started = time.monotonic()
    status = status_of(["bash", str(script)], user.clone, user.environment, 2 * LIMIT_S)
    elapsed_s = time.monotonic() - started
    if status:
        print(f"{name}: FAILED with status {status} after {elapsed_s:.0f} s", flush=True)
    else:
        print(f"{name}: {elapsed_s:.0f} s, of {LIMIT_S} s allowed", flush=True)
    return not status and elapsed_s < LIMIT_S


def first_rows(user: User) -> Path:
    """Return a script that runs the blocks of the first rows, and looks at what they print. Blocks of Python are one
    program, as in the README."""
    parts = [block for block in blocks("README.md") if block.section == "First rows"]
    install, program = ("".join(part.text for part in parts if part.language == each) for each in ("bash", "python"))
    assert install and program, "the README has no first rows"
    folder = user.first_rows
    folder.mkdir()
    (folder / "pykafka").symlink_to(user.clone)
    (folder / "install.bash").write_text(install, encoding="utf-8")
    (folder / "orders.py").write_text(program, encoding="utf-8")
    script = user.folder / "first-rows.sh"
    script.write_text(
        f"""set -eo pipefail
cd {folder}
. ./install.bash
python orders.py | tee printed
grep --quiet '^1,000 rows, at-least-once' printed
grep --quiet '"order_id":' printed
pykafka broker stop
""",
        encoding="utf-8",
    )
    return script


def session(user: User, *, again: bool = False) -> Path:
    """Return a script that prints and runs each block of the quick start. With `again` Python blocks run twice before
    their rows are counted, as when a reader repeats a block unchanged."""
    quick_start = [block for block in blocks("README.md") if block.section == "Quick start"]
    assert quick_start, "the README has no quick start"
    lines = ["set -eo pipefail"]
    for number, block in enumerate(twice(quick_start) if again else quick_start):
        file = user.folder / f"block-{number}.{block.language}"
        file.write_text(block.text, encoding="utf-8")
        run = {"bash": f". {file}", "python": f"python {file}"}[block.language]
        lines += [f"printf '\\n== block {number}, {block.language}, %d s\\n' $SECONDS", f"cat {file}", run]
    script = user.folder / "session.sh"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return script


def twice(quick_start: list[Block]) -> list[Block]:
    return [again for block in quick_start for again in [block] * (1 + (block.language == "python"))]


def status_of(
    command: list[str], folder: Path, environment: dict[str, str], deadline_s: float, output: IO[bytes] | None = None
) -> int:
    """Run the command in its own process group, which is killed at the deadline. Return the status. `output` receives
    what the command prints."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, stdout=output, stderr=output and subprocess.STDOUT
    ) as process:
        try:
            return process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()


def stop_broker(user: User) -> None:
    """Stop the brokers. If a block failed, the block that stops its broker did not run."""
    for folder, options in ((user.first_rows, ()), (user.quick_start, ("--dir", "kafka"))):
        pykafka = folder / "venv" / "bin" / "pykafka"
        if pykafka.is_file():
            command = [pykafka, "broker", "stop", *options]
            subprocess.run(command, cwd=folder, env=user.environment, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
