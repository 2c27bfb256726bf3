"""`make matrix`: what the wheel was tried with, as the table in the README.

    PYTHONPATH=tests/verification:tests/support python -m matrix --wheel build/wheel/*.whl --workspace build/matrix

For each pyspark and pyarrow, and for each other Python with the newest of both: an environment of its own with the
wheel. There `check.py` writes to each Kafka and reads from it by Spark's own session, and with the default one also
over Spark Connect. Environments take most of the time, so each tries all brokers. Spark Connect changes where Spark
runs the format, not what is sent, so one broker is enough. The table goes between the README's marks. Exit status 1 if
a cell has something else than `expected`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafka_sink.broker import DEFAULT_KAFKA_VERSION
from matrix.interpreters import interpreters
from zookeeper_kafka import kafka_of

CHECK = Path(__file__).with_name("check.py")
README = Path(__file__).resolve().parents[3] / "README.md"
PYSPARKS = ("4.0", "4.1", "4.2", "4.3")
PYARROWS = ("18", "newest")
THIS_PYTHON = "{}.{}".format(*sys.version_info)
# pyspark 4.3 and the other packages have wheels for them, zstandard for 3.15 a source archive.
PYTHONS = ("3.12", "3.13", "3.14", "3.15")
# The oldest broker of each guarantee, and the last of each major version. The default one is what most tests use.
KAFKAS = ("2.1.1", "3.0.2", "3.9.2", DEFAULT_KAFKA_VERSION, "4.4.0")
REFUSED = {"2.1.1": "no exactly-once, no reading"}
SESSIONS = {"classic": KAFKAS, "connect": (DEFAULT_KAFKA_VERSION,)}
INSTALL_TIMEOUT_S = 900
CHECK_TIMEOUT_S = 600
# An installed wheel without a kernel would work, more slowly.
SHOW = """import json, platform, pyspark, pyarrow, kafka_sink.records._kernel
print(json.dumps([platform.python_version(), pyspark.__version__, pyarrow.__version__]))"""
# As pymdownx.snippets marks a section, so that a page of the site can show it.
BEGIN = "<!-- --8<-- [start:compatibility] -->"
END = "<!-- --8<-- [end:compatibility] -->"
TITLES = {"classic": "Kafka {}", "connect": "Kafka {}, Spark Connect"}


class Trial(NamedTuple):
    python: str
    pyspark: str
    pyarrow: str

    @property
    def told_by(self) -> str:
        """What it is that differs from most rows."""
        return self.pyspark if self.python == THIS_PYTHON else self.python


@dataclass(frozen=True, slots=True)
class Row:
    """`outcomes`: by session ("classic", "connect") and Kafka version; "yes", or what went wrong."""

    python: str
    pyspark: str
    pyarrow: str
    outcomes: Mapping[tuple[str, str], str]

    def cells(self) -> Iterator[str]:
        yield self.python
        yield self.pyspark
        yield self.pyarrow
        yield from self.outcomes.values()


def table(rows: Sequence[Row]) -> str:
    """Markdown. All rows have the same columns, in the same order."""
    titles = ["Python", "pyspark", "pyarrow", *(TITLES[session].format(kafka) for session, kafka in rows[0].outcomes)]
    lines = (titles, *(row.cells() for row in rows))
    made = [f"| {' | '.join(cell.replace('|', ' ') for cell in line)} |" for line in lines]
    made.insert(1, f"|{'---|' * len(titles)}")
    return "\n".join(made)


def with_table(text: str, made: str) -> str:
    """`text` with `made` between the marks. Raises ValueError where it has not both."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


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
        keep["MATRIX_READER"] = sys.executable
        return subprocess.run(
            [self.python, *arguments], cwd=self.folder, env=keep, capture_output=True, text=True, timeout=timeout_s
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True, help="for the environments, which are removed again")
    parser.add_argument("--readme", type=Path, default=README, help="gets the table, unless --only is given")
    told = f"print the rows of each of these: {', '.join(PYSPARKS + PYTHONS)}"
    parser.add_argument("--only", nargs="+", metavar="VERSION", choices=PYSPARKS + PYTHONS, help=told)
    args = parser.parse_args()
    workspace = args.workspace.resolve()
    wanted = [trial for trial in trials() if not args.only or trial.told_by in args.only]
    others = [trial.python for trial in wanted if trial.python != THIS_PYTHON]
    pythons = {THIS_PYTHON: sys.executable} | interpreters(others, workspace / "debian")
    for version in set(others) - set(pythons):
        print(f"no row for Python {version}: neither Debian nor the PATH has it", file=sys.stderr)
    wanted = [trial for trial in wanted if trial.python in pythons]
    rows = []
    with ExitStack() as brokers:
        kafkas = {version: brokers.enter_context(kafka_of(version)) for version in KAFKAS}
        addresses = {version: kafka.bootstrap_servers for version, kafka in kafkas.items()}
        for trial in wanted:
            rows.append(tried(pythons[trial.python], trial, args.wheel.resolve(), workspace, addresses))
            print(*rows[-1].cells(), sep=" | ", flush=True)
    if args.only:
        print(table(rows))
    else:
        args.readme.write_text(with_table(args.readme.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    return int(any(outcome != expected(kafka) for row in rows for (_, kafka), outcome in row.outcomes.items()))


def expected(kafka: str) -> str:
    """What `check.py` finds where nothing is wrong."""
    return REFUSED.get(kafka, "yes")


def trials() -> Iterator[Trial]:
    """The rows of the table."""
    for pyspark in PYSPARKS:
        for pyarrow in PYARROWS:
            yield Trial(THIS_PYTHON, pyspark, pyarrow)
    for python in PYTHONS:
        yield Trial(python, PYSPARKS[-1], PYARROWS[-1])


def tried(program: str, trial: Trial, wheel: Path, workspace: Path, addresses: Mapping[str, str]) -> Row:
    started = time.monotonic()
    environment = Environment(workspace / "-".join(trial))
    shutil.rmtree(environment.folder, ignore_errors=True)
    try:
        subprocess.run([program, "-m", "venv", environment.folder], check=True)
        pinned = [f"pyspark[connect]=={trial.pyspark}.*"]
        if trial.pyarrow != "newest":
            pinned.append(f"pyarrow=={trial.pyarrow}.*")
        # For Spark Connect: 3 is not supported by every Spark 4, and 2 has no wheel for Python 3.15.
        pinned.append("pandas<3; python_version < '3.15'")
        for arguments in (("-m", "pip", "install", "--quiet", str(wheel), *pinned), ("-c", SHOW)):
            ended = environment.run(*arguments, timeout_s=INSTALL_TIMEOUT_S)
            if ended.returncode:
                said = ended.stderr.strip().splitlines()[-1]
                return Row(*trial, dict.fromkeys(columns(), f"not installed: {said}"))
        outcomes: dict[tuple[str, str], str] = {}
        for session in SESSIONS:
            found = checked(environment, session, {kafka: addresses[kafka] for kafka in SESSIONS[session]})
            outcomes |= {(session, kafka): said for kafka, said in found.items()}
        print(f"{time.monotonic() - started:.0f} s", end="  ", flush=True)
        python, pyspark, pyarrow = json.loads(ended.stdout)
        return Row(python, pyspark, pyarrow, outcomes)
    finally:
        shutil.rmtree(environment.folder, ignore_errors=True)


def checked(environment: Environment, session: str, addresses: Mapping[str, str]) -> dict[str, str]:
    named = [f"{kafka}={servers}" for kafka, servers in addresses.items()]
    try:
        ended = environment.run(str(CHECK), session, *named, timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(addresses, f"did not end in {CHECK_TIMEOUT_S} s")
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
        said = ended.stderr.strip().splitlines()[-1]
        return dict.fromkeys(addresses, said)
    found: dict[str, str] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def columns() -> list[tuple[str, str]]:
    return [(session, kafka) for session, kafkas in SESSIONS.items() for kafka in kafkas]


if __name__ == "__main__":
    sys.exit(main())
