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
from pathlib import Path

from code_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300
NOT_TRACKED = (".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
CALLERS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "XDG", "PYKAFKA", "MAKE")


def main() -> int:
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
        quick_start = [block for block in blocks("README.md") if block.section == "Quick start"]
        assert quick_start, "the README has no quick start"
        try:
            passed = timed("first run", session(quick_start, folder), clone, environment)
            passed = passed and timed("second run", session(twice(quick_start), folder), clone, environment)
        finally:
            stop_broker(home, environment)
    return 0 if passed else 1


def twice(quick_start: list[Block]) -> list[Block]:
    """Python runs again before its rows are counted, as by a reader who has changed nothing in it."""
    return [again for block in quick_start for again in [block] * (1 + (block.language == "python"))]


def timed(name: str, script: Path, clone: Path, environment: dict[str, str]) -> bool:
    started = time.monotonic()
    status = status_of(["bash", str(script)], clone, environment)
    elapsed_s = time.monotonic() - started
    if status:
        print(f"{name}: FAILED with status {status} after {elapsed_s:.0f} s", flush=True)
    else:
        print(f"{name}: {elapsed_s:.0f} s, of {LIMIT_S} s allowed", flush=True)
    return not status and elapsed_s < LIMIT_S


def session(quick_start: list[Block], folder: Path) -> Path:
    """A script that shows each block and runs it."""
    lines = ["set -eo pipefail"]
    for number, block in enumerate(quick_start):
        file = folder / f"block-{number}.{block.language}"
        file.write_text(block.text, encoding="utf-8")
        run = {"bash": f". {file}", "python": f"python {file}"}[block.language]
        lines += [f"printf '\\n== block {number}, {block.language}, %d s\\n' $SECONDS", f"cat {file}", run]
    script = folder / "session.sh"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return script


def status_of(command: list[str], folder: Path, environment: dict[str, str]) -> int:
    """With all that it starts in one process group, which is killed when it takes far too long."""
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True) as process:
        try:
            return process.wait(2 * LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()


def stop_broker(home: Path, environment: dict[str, str]) -> None:
    """Where a block failed, the one that stops it was not reached."""
    folder = home / "pykafka-quick-start"
    pykafka = folder / "venv" / "bin" / "pykafka"
    if pykafka.is_file():
        command = [pykafka, "broker", "stop", "--dir", "kafka"]
        subprocess.run(command, cwd=folder, env=environment, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
