"""`make first-run`: the README's quick start, block by block, where nothing is installed; and then once more.

    PYTHONPATH=tests/support python3 .ci/first_run.py

The home is empty, the clone a copy of what is tracked, and of the caller's environment only what finds Java and
registries is left. Shell blocks are one bash session, as they would be in a terminal; Python is run as a file there.
The blocks check what was written themselves: `--expect-records`. A second run takes the same home, and runs Python
twice. Prints the seconds; exit status 1 if a block fails, or if a run took five minutes. The standard library only, and
Python 3.11 and Java 17 of the machine.
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
    """Somebody who has a clone, Python and Java. `folder` holds all that is theirs."""

    folder: Path
    home: Path
    clone: Path
    environment: dict[str, str]

    @property
    def quick_start(self) -> Path:
        """Where the quick start puts its environment, `venv`, and its broker."""
        return self.home / "pykafka-quick-start"


def main() -> int:
    with new_user() as user:
        try:
            passed = timed("first run", session(user), user)
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


def session(user: User, *, again: bool = False) -> Path:
    """A script that shows each block of the quick start and runs it. `again`: Python runs twice before its rows are
    counted, as by a reader who has changed nothing in it."""
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
    """With all that it starts in one process group, which is killed when it takes longer. `output`: gets what it
    prints."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, stdout=output, stderr=output and subprocess.STDOUT
    ) as process:
        try:
            return process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()


def stop_broker(user: User) -> None:
    """Where a block failed, the one that stops it was not reached."""
    pykafka = user.quick_start / "venv" / "bin" / "pykafka"
    if pykafka.is_file():
        command = [pykafka, "broker", "stop", "--dir", "kafka"]
        subprocess.run(command, cwd=user.quick_start, env=user.environment, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
