"""`make first-hour`: replay the first hour of a new user from an empty home, each step timed, with ten mistakes.

    PYTHONPATH=tests/support:.ci python3 .ci/first_hour.py [--table docs/mistakes.md]

Begins as `make first-run`: an empty home, a clone, the README's first rows, then its quick start, twice. The other
steps use the quick start's environment and a broker of `pykafka broker start --detach`. After a failed step the hour
continues, except after a failed installation. The answers to the mistakes must equal docs/mistakes.md; `--table`
writes that page instead.

Prints one line for each step, and the table of mistakes. Exit status 1 if a step failed or took too long, or if a
process was still running at the end. Uses only the standard library, and the machine's Python 3.11 and Java 17.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from first_run import LIMIT_S, ROOT, User, first_rows, new_user, session, status_of, stop_broker

from mistakes import MISTAKES, Mistake, answer_in, normalised, page, table

PAGE = ROOT / "docs" / "mistakes.md"
# Several times the duration on an idle machine with two cores.
QUICK_START_S = 2 * LIMIT_S
DEADLINE_S = 300
MISTAKES_S = 600
SUBMIT, PYTHON = "spark-submit", "python"
MARK, TRACEBACK = "== the mistake ", "Traceback (most recent call last):"
# Runs programs one after the other, as cells of a notebook, and shows how each fails.
PROGRAMS = """\
import sys
import traceback
from pathlib import Path

for name in {names}:
    print("== the mistake " + name, flush=True)
    try:
        exec(compile(Path(name + ".py").read_text(), name, "exec"), {{"__name__": name}})
    except Exception:
        traceback.print_exc()
"""
TAIL_LINES = 30


@dataclass(frozen=True, slots=True)
class Step:
    """A bash script. $CLONE is the clone, $SERVERS the broker; `python` and `pykafka` are installed."""

    name: str
    script: str
    deadline_s: int = DEADLINE_S


def has(rows: int, *topics: str) -> str:
    commands = (f"pykafka read --bootstrap-servers $SERVERS --topic {topic} --quiet --expect-records {rows}"
                for topic in topics)  # fmt: skip
    return "\n".join(commands)


def with_topic(topic: str) -> str:
    return f"pykafka check --bootstrap-servers $SERVERS --topic {topic} --option createTopics=true"


STEPS = (
    Step("packages of notebooks and Spark Connect", "pip install --quiet nbclient ipykernel pandas 'pyspark[connect]'"),
    Step("notebook, as Jupyter runs it", "jupyter execute $CLONE/notebooks/export.ipynb"),
    Step(
        "exports in threads",
        f"python $CLONE/.ci/hour/exports_in_threads.py\n{has(1_000, *(f'threads-{n}' for n in range(4)))}",
    ),
    Step("update mode, exactly-once", f"python $CLONE/.ci/hour/update_mode.py\n{has(4, 'update-mode')}"),
    Step("Spark Connect", f"python $CLONE/.ci/hour/spark_connect.py\n{has(1_000, 'connect-export', 'connect-stream')}"),
    Step(
        "standalone cluster",
        f"""
        {with_topic("standalone")}
        export PYTHONPATH=$CLONE/tests/support
        python $CLONE/.ci/hour/standalone_cluster.py $CLONE/tests/support/deploying_app.py $SERVERS standalone
        {has(1_000, "standalone")}
        """,
    ),
    Step(
        "two applications, one checkpoint name",
        f"""
        for run in one-1 other-1 one-2; do
            application=${{run%-*}}
            mkdir -p $application/incoming
            seq -f '{{"value": "%.0f"}}' 1000 > $application/incoming/$run.json
            (cd $application && python $CLONE/tests/support/exactly_once_app.py \\
                $SERVERS $application incoming checkpoint createTopics=true --derived-name)
        done
        {has(2_000, "one")}
        {has(1_000, "other")}
        """,
    ),
    Step(
        "frames, SQL, a thread and a closed port; not activated",
        f"""
        PATH=${{PATH#*:}} $(command -v python) $CLONE/.ci/hour/frames_and_threads.py
        {has(1_000, "from-pandas", "from-pyarrow", "from-sql", "from-thread")}
        """,
    ),
    Step(
        "stuck or not: a stream by its checkpoint",
        """
        pykafka check --bootstrap-servers $SERVERS --checkpoint other/checkpoint --topic other
        pykafka warm
        """,
    ),
    Step(
        "commands",
        """
        pykafka version | grep -E '^pyspark .*, package pyspark '
        pykafka check --bootstrap-servers $SERVERS --topic threads-0
        pykafka check --bootstrap-servers $SERVERS --topic threads-0 --spark 'local[1]'
        pykafka read --bootstrap-servers $SERVERS --topic threads-0 --limit 2
        pykafka verify --bootstrap-servers $SERVERS --receipts receipts
        pykafka transactions list --bootstrap-servers $SERVERS
        pykafka explain StateExpired
        """,
    ),
)


@dataclass(slots=True)
class Hour:
    user: User
    environment: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.user.home / "hour"

    def replay(self) -> dict[str, str]:
        """Run all steps. Return the answers to the mistakes."""
        began = time.monotonic()
        quick_start = session(self.user)
        scripts = {
            "first rows": first_rows(self.user),
            "install and quick start": quick_start,
            "quick start again": quick_start,
        }
        for name, script in scripts.items():
            step = Step(name, f". {shlex.quote(str(script))}", QUICK_START_S)
            if not self.take(step, self.user.environment, self.user.clone):
                return {}
        self.folder.mkdir()
        binaries = self.user.quick_start / "venv" / "bin"
        path = os.pathsep.join((str(binaries), self.user.environment["PATH"]))
        self.environment = {**self.user.environment, "PATH": path, "CLONE": str(self.user.clone)}
        answers: dict[str, str] = {}
        try:
            self.take(Step("broker start", "pykafka broker start --detach --dir kafka > started"))
            self.environment["SERVERS"] = (self.folder / "started").read_text().strip().partition("=")[2]
            for step in STEPS:
                self.take(step)
            self.timed("ten mistakes", lambda: self.make_mistakes(answers))
        finally:
            self.take(Step("broker stop", "pykafka broker stop --dir kafka"))
        print(f"{time.monotonic() - began:6.1f} s  the hour", flush=True)
        return answers

    def take(self, step: Step, environment: dict[str, str] | None = None, folder: Path | None = None) -> bool:
        return self.timed(step.name, lambda: self.run(step, environment or self.environment, folder or self.folder))

    def timed(self, name: str, what: Callable[[], str]) -> bool:
        """Run `what`, which returns the error text or "". Return True without an error."""
        started = time.monotonic()
        trouble = what()
        print(f"{time.monotonic() - started:6.1f} s  {'FAILED' if trouble else 'ok    '}  {name}", flush=True)
        if trouble:
            self.failed.append(name)
            print("\n".join(f"    {line}" for line in trouble.splitlines()[-TAIL_LINES:]), flush=True)
        return not trouble

    def run(self, step: Step, environment: dict[str, str], folder: Path) -> str:
        log = self.user.folder / "step.log"
        with log.open("wb") as output:
            command = ["bash", "-eo", "pipefail", "-c", step.script]
            status = status_of(command, folder, environment, step.deadline_s, output)
        if not status:
            return ""
        ended = f"took more than {step.deadline_s} s" if status == -signal.SIGKILL else f"status {status}"
        return f"{log.read_text(errors='replace')}\n{ended}"

    # --- mistakes -----------------------------------------------------------------------------------------------------

    def make_mistakes(self, answers: dict[str, str]) -> str:
        if trouble := self.run(Step("topic", with_topic("orders")), self.environment, self.folder):
            return trouble
        # Batch writes by Spark's own API run by spark-submit. The others run one after the other, as in a notebook.
        submitted = [mistake for mistake in MISTAKES if "df.write" in mistake.call]
        others = [mistake for mistake in MISTAKES if mistake not in submitted]
        with ThreadPoolExecutor() as pool:
            by_submit, by_python = pool.map(self.make, (SUBMIT, PYTHON), (submitted, others))
        wrong = []
        for mistake in MISTAKES:
            printed = (by_submit | by_python)[mistake.name]
            answer = answer_in(printed, mistake.place) if TRACEBACK in printed else None
            if answer is None:
                wrong.append(f"{mistake.name}: no answer as {mistake.place.value}. It printed:\n{printed[-2_000:]}")
            else:
                answers[mistake.name] = normalised(answer, self.environment["SERVERS"], "orders")
        return "\n".join(wrong)

    def make(self, command: str, mistakes: Sequence[Mistake]) -> dict[str, str]:
        """Return the output of each mistake. It ends with a traceback if the mistake fails as expected."""
        folder = self.folder / f"mistakes by {command}"
        folder.mkdir()
        for mistake in mistakes:
            (folder / f"{mistake.name}.py").write_text(mistake.program, encoding="utf-8")
        (folder / "programs.py").write_text(PROGRAMS.format(names=[mistake.name for mistake in mistakes]))
        with (folder / "printed").open("wb") as output:
            environment = {**self.environment, "TOPIC": "orders", "PYTHONUNBUFFERED": "1"}
            status_of([command, "programs.py"], folder, environment, MISTAKES_S, output)
        of_each = (folder / "printed").read_text(errors="replace").split(MARK)[1:]
        printed = dict(part.split("\n", 1) for part in of_each if "\n" in part)
        return {mistake.name: printed.get(mistake.name, "nothing") for mistake in mistakes}


def processes_of(folder: Path) -> Iterator[int]:
    """Yield the processes whose environment names the folder: all processes of the hour."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                yield int(process.name)
        except OSError:  # it has ended, or is not ours
            continue


def end_what_is_left(folder: Path) -> list[str]:
    """Kill processes that still run after 20 s. Return their command lines."""
    deadline = time.monotonic() + 20
    while (left := list(processes_of(folder))) and time.monotonic() < deadline:
        time.sleep(0.5)
    told = []
    for process in left:
        try:
            told.append(Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")[:200])
            os.kill(process, signal.SIGKILL)
        except OSError:
            continue
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the page of mistakes there")
    arguments = parser.parse_args()
    with new_user() as user:
        hour = Hour(user)
        try:
            answers = hour.replay()
        finally:
            stop_broker(user)
            left = end_what_is_left(user.folder)
    if left:
        hour.failed.append("processes that outlived the hour")
        print("\n".join(("killed:", *left)))
    if answers:
        print(f"\n{table(answers)}\n")
        if arguments.table is not None:
            arguments.table.write_text(page(answers), encoding="utf-8")
        elif page(answers) != PAGE.read_text(encoding="utf-8"):
            hour.failed.append("docs/mistakes.md has other lines")
    print(f"failed: {', '.join(hour.failed) or 'nothing'}")
    return 1 if hour.failed else 0


if __name__ == "__main__":
    sys.exit(main())
