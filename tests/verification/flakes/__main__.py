"""`make flakes`: the tests of the gate again and again, in random order, beside a load; which of them ever failed?

    PYTHONPATH=tests/verification:tests/support python -m flakes --runs 20 --seed 1 [--results FILE] [pytest's options]

Each run has a seed, which decides the order of files, the order of a file's tests, and what Hypothesis tries. Two runs
go at the same time: each is the other's load, and doubles the machine's work. A run without another has busy processes
beside it, as many as the machine has processors. What a run prints is in build/flakes. Each test that failed is listed
with its seeds and the command that repeats the first of these runs for its file. Exit status 1 if any run failed or
took too long.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import processes
from failed_tests import FailedTests
from reliability.campaign import Campaign

# Three times what two runs take together on a machine with nothing else to do.
LIMIT_MINUTES = 45
LOGS = Path("build/flakes")
# Ends with the process that started it, should that be killed.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@dataclass(frozen=True, slots=True)
class Run:
    """`problems`: tests that failed, and whatever else went wrong."""

    seed: int
    tests: int
    problems: tuple[str, ...]


def main() -> int:
    arguments, options = _arguments()
    started_s, runs = time.monotonic(), []
    for first in range(arguments.seed, arguments.seed + arguments.runs, 2):
        seeds = range(first, min(first + 2, arguments.seed + arguments.runs))
        with load(os.cpu_count() or 1 if len(seeds) == 1 else 0):
            runs += run(seeds, [*shlex.split(arguments.pytest), *options])
        print("\n".join(told(runs)), flush=True)
    command = f"make flakes RUNS={arguments.runs} SEED={arguments.seed}"
    command += f" ARGS={shlex.quote(shlex.join(options))}" if options else ""
    result = campaign(runs, command, minutes=(time.monotonic() - started_s) / 60)
    if arguments.results is not None:
        result.write(arguments.results)
    return 0 if result.passed else 1


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return ours, and the others, which are pytest's."""
    parser = argparse.ArgumentParser(prog="flakes", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; they count up")
    parser.add_argument("--pytest", default="", metavar="OPTIONS", help="of every run, as `make test` has them")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures there, as JSON")
    return parser.parse_known_args()


@contextmanager
def load(count: int) -> Iterator[list[int]]:
    """Busy processes while the block runs, by their ids."""
    busy: list[subprocess.Popen[bytes]] = []
    try:
        # Ctrl-C is for the process that ends them.
        busy += (subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count))
        yield [process.pid for process in busy]
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(seeds: Sequence[int], options: Sequence[str], limit_minutes: float = LIMIT_MINUTES) -> list[Run]:
    """Run the tests with each of `seeds`, all at the same time."""
    LOGS.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + 60 * limit_minutes
    with tempfile.TemporaryDirectory(prefix="flakes-") as folder, ExitStack() as stack:
        files = {seed: Path(folder, f"{seed}.json") for seed in seeds}
        started = {seed: stack.enter_context(_started(seed, options, file)) for seed, file in files.items()}
        statuses = {seed: _status(process, deadline_s) for seed, process in started.items()}
        seen = {seed: FailedTests.read(file) if file.exists() else FailedTests() for seed, file in files.items()}
    return [
        Run(seed, each.passed + len(each.failed), tuple(problems(statuses[seed], each, limit_minutes)))
        for seed, each in seen.items()
    ]


@contextmanager
def _started(seed: int, options: Sequence[str], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = LOGS / f"{seed}.log"
    print(f"== seed {seed}: {log}", flush=True)
    # The tests get the environment that `make test` gives to them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    drawn = ("--hypothesis-profile=flakes", f"--hypothesis-seed={seed}")
    ordered = ("-p", "randomly", f"--randomly-seed={seed}", *drawn)
    pytest = Path(sys.executable).with_name("pytest")
    command: list[str | Path] = [pytest, *ordered, "--failed-tests", file, *options]
    with log.open("wb") as output, processes.started(command, environment, output=output) as process:
        yield process


def _status(process: subprocess.Popen[bytes], deadline_s: float) -> int | None:
    """Return None for a run that did not end in time."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(max(0.0, deadline_s - time.monotonic()))
    return None


def problems(status: int | None, seen: FailedTests, limit_minutes: float = LIMIT_MINUTES) -> Iterator[str]:
    yield from seen.failed
    yield from (f"{test} (not collected, or its process crashed)" for test in seen.broken)
    if status is None:
        yield f"the run did not end within {limit_minutes:g} minutes"
    elif status and not seen.failed and not seen.broken:
        yield f"pytest ended with {status}"


def seeds_of_problems(runs: Sequence[Run]) -> Mapping[str, list[int]]:
    """Return the seeds by problem, the most frequent first."""
    seeds = defaultdict(list)
    for each in runs:
        for problem in each.problems:
            seeds[problem].append(each.seed)
    return dict(sorted(seeds.items(), key=lambda item: (-len(item[1]), item[0])))


def told(runs: Sequence[Run]) -> Iterator[str]:
    """What failed, and how to repeat it: pytest-randomly gives a file's tests the same order when it runs alone."""
    failed = seeds_of_problems(runs)
    yield f"{len(runs)} runs, {len(failed)} tests failed at least once"
    for problem, seeds in failed.items():
        file, _, test = problem.partition("::")
        yield f"{problem}: {_of(seeds)}"
        yield f"    make flakes RUNS=1 SEED={seeds[0]}" + (f" ARGS={file}" if test else "")


def _of(seeds: Sequence[int]) -> str:
    return f"failed {len(seeds)} times, with seed {', '.join(map(str, seeds))}"


def campaign(runs: Sequence[Run], command: str, *, minutes: float) -> Campaign:
    failed = seeds_of_problems(runs)
    return Campaign(
        name="flakes", title="The tests of the gate, under load", command=command,
        about="All tests that every change must pass run in random order, twice at the same time. A test that fails "
        "once in these runs is a bug of the test or of the product.",
        figures={
            "runs": len(runs), "runs that failed": sum(bool(each.problems) for each in runs),
            "tests of a run": max((each.tests for each in runs), default=0),
            "tests that failed at least once": len(failed), "minutes": round(minutes),
        },
        passed=bool(runs) and not failed,
        explained=tuple(f"`{problem}`: {_of(seeds)}" for problem, seeds in failed.items()),
    )  # fmt: skip


if __name__ == "__main__":
    # `kill` ends everything, too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
