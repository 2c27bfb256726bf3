"""One mutant on trial: a copy of the tree, the mistake put into it, and the killer run there.

    copy ─> put back ─> compile ─┬─> pytest <node id>             killed by the first test that fails
                                 └─> simulation --seeds n         killed by the first seed that fails

Only a test or an oracle kills. A mutant that does not apply, that Python or the C compiler refuses, or whose run ends
for a name that is not there, is broken: that says nothing about the tests.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mutants.anchor import Module, MutantBroken, modules, mutated
from mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("kafka_sink", "tests", "jobs", "demo", "conf", "setup.py", "setup.cfg", "pyproject.toml", "README.md",
          "LICENSE", "pyspark_pykafka.py")  # fmt: skip
PACKAGE = "kafka_sink"
TEST_TIMEOUT_S = 60
# Twenty times what a run takes on an idle machine.
RUN_TIMEOUT_S = 600
SEEDS_A_RUN = 100
# A test that ends so has not seen the mistake, but one that was made in the table.
_BROKEN = re.compile(r"\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError)\b")
_FAILED_TEST = re.compile(r"^FAILED (.+?)(?: - (.*))?$", re.MULTILINE)
_FAILED_SEED = re.compile(r"^seed (\d+) FAILED")


class Outcome(Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the test or the seed that failed; else why there is none."""

    outcome: Outcome
    by: str
    took_s: float


def package() -> tuple[Module, ...]:
    return modules(ROOT, PACKAGE)


def try_mutant(mutant: Mutant, killer: str | int) -> Verdict:
    started_s = time.monotonic()
    try:
        with copy_of_tree() as tree:
            _put_back(tree, mutant)
            outcome, by = _run(tree, killer, kernel=not mutant.fallback)
    except MutantBroken as broken:
        outcome, by = Outcome.BROKEN, broken.reason
    return Verdict(outcome, by, time.monotonic() - started_s)


def try_none(killers: Sequence[str | int]) -> Verdict:
    """The control: all `killers` on a copy without a mutant, which must survive them."""
    started_s = time.monotonic()
    tests = sorted({killer for killer in killers if isinstance(killer, str)})
    seeds = max((killer for killer in killers if isinstance(killer, int)), default=0)
    outcome, by = Outcome.SURVIVED, ""
    with copy_of_tree() as tree:
        if tests:
            outcome, by = _judge_tests(*_execute(tree, _pytest(tests)))
        if seeds and outcome is Outcome.SURVIVED:
            outcome, by = _run(tree, seeds)
    return Verdict(outcome, by, time.monotonic() - started_s)


@contextmanager
def copy_of_tree() -> Iterator[Path]:
    """What tests need of the tree, in a folder of its own while the block runs."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(source, tree / name)
        _copy_kernel(tree)
        yield tree


def _copy_kernel(tree: Path) -> None:
    """The compiled kernel, from wherever this interpreter has it: one beside the sources may be older than they are."""
    found = importlib.util.find_spec("kafka_sink.records._kernel")
    if found is not None and found.origin is not None:
        shutil.copy(found.origin, tree / "kafka_sink" / "records")


def _put_back(tree: Path, mutant: Mutant) -> None:
    module = mutated(modules(tree, PACKAGE), mutant)
    path = tree / module.path
    path.write_text(module.text)
    if module.language == "python":
        return
    for built in path.parent.glob("_kernel*.so"):
        built.unlink()
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    status, output = _execute(tree, build, PYKAFKA_REQUIRE_KERNEL="1")
    if status:
        raise MutantBroken(f"{module.path} does not compile: {output[-500:]}")


def _run(tree: Path, killer: str | int, *, kernel: bool = True) -> tuple[Outcome, str]:
    if isinstance(killer, str):
        return _judge_tests(*_execute(tree, _pytest([killer])))
    return _simulate(tree, killer, {} if kernel else {"PYKAFKA_KERNEL": "off"})


def _pytest(tests: Sequence[str]) -> list[str]:
    options = ["--exitfirst", "--quiet", "--tb=no", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_S}"]
    # Hypothesis tries the same examples each time: who is killed once is killed always.
    return [sys.executable, "-m", "pytest", *options, "--hypothesis-seed=0", *tests]


def _judge_tests(status: int | None, output: str) -> tuple[Outcome, str]:
    """What pytest's exit status and output say. Status 2 and above: it could not run the tests."""
    if status is None:
        return Outcome.KILLED, f"no end within {RUN_TIMEOUT_S} s"
    if status == 0:
        return Outcome.SURVIVED, "no test failed"
    failed = _FAILED_TEST.search(output)
    if status != 1 or failed is None:
        return Outcome.BROKEN, f"pytest ended with {status}: {' '.join(output.split())[-300:]}"
    return _judge_failure(failed.group(1), failed.group(2) or "")


def _simulate(tree: Path, seeds: int, environment: Mapping[str, str]) -> tuple[Outcome, str]:
    """Ends with the first seed that fails, in the order of their numbers."""
    for first in range(0, seeds, SEEDS_A_RUN):
        count = min(SEEDS_A_RUN, seeds - first)
        judged = _judge_seeds(tree, ["--first", str(first), "--seeds", str(count), "--jobs", "1"], environment)
        if judged is not None:
            return judged
    return Outcome.SURVIVED, f"not within {seeds} seeds"


def _judge_seeds(tree: Path, options: Sequence[str], environment: Mapping[str, str]) -> tuple[Outcome, str] | None:
    """None: all of them passed."""
    failed: list[str] = []
    with _process(tree, [sys.executable, "-m", "simulation", *options], environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            # What failed is indented; then comes the plan.
            if failed and not line.startswith("    "):
                break
            if failed or _FAILED_SEED.match(line):
                failed.append(line)
        else:
            process.wait()
    if failed:
        return _judge_failure(failed[0].partition(" FAILED")[0], "".join(failed[1:]))
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return Outcome.KILLED, f"no end within {RUN_TIMEOUT_S} s, {' '.join(options)}"
    return Outcome.BROKEN, f"the simulation ended with {process.returncode}"


def _judge_failure(by: str, reason: str) -> tuple[Outcome, str]:
    return (Outcome.BROKEN, f"{by}: {reason}") if _BROKEN.search(reason) else (Outcome.KILLED, by)


def _execute(tree: Path, command: Sequence[str], **environment: str) -> tuple[int | None, str]:
    """Exit status (None: it was ended for its time) and output."""
    with _process(tree, command, environment) as process:
        output = process.communicate()[0]
    return None if process.returncode < 0 else process.returncode, output


@contextmanager
def _process(tree: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process with the copy's modules, in a group of its own, which ends with the block."""
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tree), str(tree / "tests" / "verification"))),
            # Two mutants of one second and of one length would pass for each other.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYKAFKA_TEST_SOURCES": "1",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def end() -> None:
        # Once it was waited for, its number may be another's.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(RUN_TIMEOUT_S, end)
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        end()
        process.wait()
