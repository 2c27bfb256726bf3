"""`make matrix`: what the wheel was tried with, as the table in the README.

    PYTHONPATH=tests/verification python -m matrix --wheel build/wheel/*.whl --workspace build/matrix

For each pyspark and pyarrow: an environment of its own with the wheel, in which `cli/check.py` writes to each Kafka, by
Spark's own session and over Spark Connect. The table goes between the README's marks. Exit status 1 if anything in it
is not "yes".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kafka_sink.broker import LocalKafka
from matrix.table import Row, table, with_table

CHECK = Path(__file__).with_name("check.py")
README = Path(__file__).resolve().parents[3] / "README.md"
PYSPARKS = ("4.0", "4.1", "4.2", "4.3")
PYARROWS = ("18", "newest")
KAFKAS = ("3.9.2", "4.3.1")
SESSIONS = ("classic", "connect")
INSTALL_TIMEOUT_S = 900
CHECK_TIMEOUT_S = 600
SHOW = "import json, pyspark, pyarrow; print(json.dumps([pyspark.__version__, pyarrow.__version__]))"


@dataclass(frozen=True, slots=True)
class Environment:
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self, *arguments: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
        """Where no sources lie, and with nothing of the caller's Python and Spark."""
        callers = ("PYTHON", "PYSPARK", "SPARK")
        keep = {name: value for name, value in os.environ.items() if not name.startswith(callers)}
        return subprocess.run(
            [self.python, *arguments], cwd=self.folder, env=keep, capture_output=True, text=True, timeout=timeout_s
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True, help="for the environments, which are removed again")
    parser.add_argument("--readme", type=Path, default=README, help="gets the table")
    args = parser.parse_args()
    rows = []
    with ExitStack() as brokers:
        kafkas = {version: brokers.enter_context(LocalKafka(kafka_version=version)) for version in KAFKAS}
        addresses = [f"{version}={kafka.bootstrap_servers}" for version, kafka in kafkas.items()]
        for pyspark in PYSPARKS:
            for pyarrow in PYARROWS:
                rows.append(tried(pyspark, pyarrow, args.wheel.resolve(), args.workspace.resolve(), addresses))
                print(*rows[-1].cells(), sep=" | ", flush=True)
    args.readme.write_text(with_table(args.readme.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    return int(any(outcome != "yes" for row in rows for outcome in row.outcomes.values()))


def tried(pyspark: str, pyarrow: str, wheel: Path, workspace: Path, addresses: list[str]) -> Row:
    started = time.monotonic()
    environment = Environment(workspace / f"pyspark-{pyspark}-pyarrow-{pyarrow}")
    shutil.rmtree(environment.folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", environment.folder], check=True)
        pinned = [f"pyspark[connect]=={pyspark}.*", "pyarrow" if pyarrow == "newest" else f"pyarrow=={pyarrow}.*"]
        # pandas for Spark Connect: 3 is not supported by every Spark 4.
        install = ("-m", "pip", "install", "--quiet", f"{wheel}[verify]", *pinned, "pandas<3")
        installed = environment.run(*install, timeout_s=INSTALL_TIMEOUT_S)
        if installed.returncode:
            said = installed.stderr.strip().splitlines()[-1]
            return Row(pyspark, pyarrow, dict.fromkeys(columns(), f"not installed: {said}"))
        pyspark, pyarrow = json.loads(environment.run("-c", SHOW, timeout_s=CHECK_TIMEOUT_S).stdout)
        outcomes: dict[tuple[str, str], str] = {}
        for session in SESSIONS:
            found = checked(environment, session, addresses)
            outcomes |= {(session, kafka): found[kafka] for kafka in KAFKAS}
        print(f"{time.monotonic() - started:.0f} s", end="  ", flush=True)
        return Row(pyspark, pyarrow, outcomes)
    finally:
        shutil.rmtree(environment.folder, ignore_errors=True)


def checked(environment: Environment, session: str, addresses: list[str]) -> dict[str, str]:
    try:
        ended = environment.run(str(CHECK), session, *addresses, timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(KAFKAS, f"did not end in {CHECK_TIMEOUT_S} s")
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
        said = ended.stderr.strip().splitlines()[-1]
        return dict.fromkeys(KAFKAS, said)
    found: dict[str, str] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def columns() -> list[tuple[str, str]]:
    return [(session, kafka) for session in SESSIONS for kafka in KAFKAS]


if __name__ == "__main__":
    sys.exit(main())
