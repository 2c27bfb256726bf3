"""One mutant on trial: a fork of an interpreter that has all but the sink and its tests, and pytest in there.

    this process    imports numpy, pyarrow, pytest ...  (what a control has had to)
      └─ a fork     in a copy of the tree: the mutant instead of its module ─> import sink and tests ─> first failure

So a mutant costs the import of the sink and of its module's tests, and what they take until one fails. The sources stay
as they are; the copy is written once and by nobody, as the mutant is compiled here and handed in by a finder.

Killed is a mutant with which a test fails, a module does not import, or the tests do not end: within three times the
processor's time that they take without it, or, where they wait, within their share of the clock's.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import math
import multiprocessing
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType, ModuleType

import hypothesis
import pytest

from mutants.trial import ROOT
from mutation.operators import Mutation
from mutation.subjects import Subject

PYTEST_OPTIONS = ("--exitfirst", "--quiet", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-profile=mutation")
# On top of three times what the control took: an interpreter that has just begun, a garbage collection.
LEAST_CPU_S = 3
CONTROL_CPU_S = 600
# Who shares a loaded machine, or waits for what never comes, has this and five times the processor's time.
LEAST_S = 60
# Endless loops are often of the kind that fills the memory. (A test asks for half of this, and touches none of it.)
MOST_BYTES = 16 * 2**30


class Outcome(Enum):
    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the test that failed, or what else became of it."""

    mutation: Mutation
    outcome: Outcome
    by: str


@dataclass(frozen=True, slots=True)
class Control:
    """The tests of a module without a mutant. `failed`: the first one that does, if any. `cpu_s`: what they took.
    `modules`: what they had imported in the end."""

    failed: str | None
    cpu_s: float
    modules: tuple[str, ...]


class ControlFailed(Exception):
    """Without a mutant the tests of `path` do not pass: a kill would mean nothing."""

    def __init__(self, path: str, by: str) -> None:
        super().__init__(f"the tests of {path} fail without a mutant: {by}")
        self.path = path
        self.by = by


def try_none(tree: Path, subject: Subject) -> Control:
    """The control, in the copy `tree`. Raises ControlFailed. What it imported that is not the project's stays here."""
    (control,) = (control for _, control in _run(tree, subject, [None], jobs=1, cpu_s=CONTROL_CPU_S))
    if not isinstance(control, Control) or control.failed is not None:
        raise ControlFailed(subject.path, str(control and control.failed))
    for name in control.modules:
        # Some can be imported only by those that need them.
        with suppress(ImportError):
            importlib.import_module(name)
    # What is here stays: no fork need look through it for garbage, which would also copy its pages.
    gc.freeze()
    return control


def try_all(
    tree: Path, subject: Subject, mutations: Sequence[Mutation], control: Control, *, jobs: int
) -> Iterator[Verdict]:
    """Each mutant of the module, `jobs` of them at a time; in the order in which they end."""
    for mutation, found in _run(tree, subject, mutations, jobs=jobs, cpu_s=LEAST_CPU_S + math.ceil(3 * control.cpu_s)):
        assert mutation is not None
        if found is None:
            yield Verdict(mutation, Outcome.TIMED_OUT, "its tests did not end")
        elif found.failed is None:
            yield Verdict(mutation, Outcome.SURVIVED, "no test failed")
        else:
            yield Verdict(mutation, Outcome.KILLED, found.failed)


@dataclass(frozen=True, slots=True)
class _Fork:
    process: BaseProcess
    mutation: Mutation | None
    ends_s: float


def _run(
    tree: Path, subject: Subject, mutations: Sequence[Mutation | None], *, jobs: int, cpu_s: int
) -> Iterator[tuple[Mutation | None, Control | None]]:
    """What each fork has to say; None where it was ended for its time, or the mutant took it along."""
    waiting = deque(mutations)
    running: dict[Connection, _Fork] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.popleft()
            heard, process = _fork(tree, subject, mutation, cpu_s)
            running[heard] = _Fork(process, mutation, time.monotonic() + LEAST_S + 5 * cpu_s)
        next_end_s = min(fork.ends_s for fork in running.values())
        said = wait(list(running), max(0.0, next_end_s - time.monotonic()))
        ended = [heard for heard, fork in running.items() if heard in said or fork.ends_s <= time.monotonic()]
        for heard in ended:
            fork = running.pop(heard)
            yield fork.mutation, _end(fork.process, heard, has_said=heard in said)


def _end(process: BaseProcess, heard: Connection, *, has_said: bool) -> Control | None:
    """What it said; None if the system has ended it, or its time is over."""
    try:
        return Control(*heard.recv()) if has_said else None
    except EOFError:
        process.join()
        assert process.exitcode is not None and process.exitcode < 0, "the trial itself has a defect"
        return None
    finally:
        process.kill()
        process.join()
        heard.close()


def _fork(tree: Path, subject: Subject, mutation: Mutation | None, cpu_s: int) -> tuple[Connection, BaseProcess]:
    code = None
    if mutation is not None:
        path = tree / subject.path
        code = compile(mutation.applied(path.read_text(encoding="utf-8")), path, "exec", dont_inherit=True)
    heard, says = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_test, args=(tree, subject, code, cpu_s, says))
    process.start()
    # The fork's is then the last one, and what ends the fork ends the connection.
    says.close()
    return heard, process


def _test(tree: Path, subject: Subject, code: CodeType | None, cpu_s: int, says: Connection) -> None:
    _limit(cpu_s)
    _enter(tree)
    if code is not None:
        sys.meta_path.insert(0, _Finder(subject, tree / subject.path, code))
    # The same examples each time; and that one fails is all there is to know.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, database=None, phases=phases)
    first = _FirstFailure()
    status = pytest.main([*PYTEST_OPTIONS, *subject.tests], plugins=[first])
    if status is not pytest.ExitCode.OK and first.failed is None:
        first.failed = f"pytest ended with {status}"
    spent = resource.getrusage(resource.RUSAGE_SELF)
    foreign = () if code is not None else _foreign(tree)
    # Not as a Control: this module is one of ours, too, and has been forgotten.
    says.send((first.failed, spent.ru_utime + spent.ru_stime, foreign))
    # Threads that a mutant has left hanging are not waited for.
    os._exit(0)


def _limit(cpu_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with open(os.devnull, "r+b") as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)


def _enter(tree: Path) -> None:
    """The project is `tree` from now on, and nothing of it is imported."""
    os.chdir(tree)
    os.environ["PYKAFKA_TEST_SOURCES"] = "1"
    ours = [str(tree), str(tree / "tests" / "verification")]
    sys.path[:] = [*ours, *(each for each in sys.path if not _is_in(each, ROOT))]
    for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _foreign(tree: Path) -> tuple[str, ...]:
    return tuple(
        name
        for name, module in sys.modules.items()
        if not _is_ours(module) and not _is_in(getattr(module, "__file__", None) or "/", tree)
    )


def _is_ours(module: ModuleType) -> bool:
    name = module.__name__
    found = getattr(module, "__file__", None)
    return name == "__main__" or name.partition(".")[0] == "kafka_sink" or (found is not None and _is_in(found, ROOT))


def _is_in(path: str, folder: Path) -> bool:
    """The environment may lie in the project's folder, and is none of the project. Paths as they are spelled, as there
    are thousands, once a mutant."""
    return f"{os.path.abspath(path)}/".startswith(f"{folder}/") and not path.startswith(f"{sys.prefix}/")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, subject: Subject, path: Path, code: CodeType) -> None:
        self._subject = subject
        self._loader = _Loader(subject.module, str(path), code)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._subject.module:
            return None
        return importlib.util.spec_from_file_location(fullname, loader=self._loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """Of one module, whose code is there already."""

    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _FirstFailure:
    """A plugin of pytest's: the test that failed first, or the file that could not be imported."""

    def __init__(self) -> None:
        self.failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
