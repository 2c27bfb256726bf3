"""That the table has not rotted, and that the runner can tell a kill from everything else."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mutants import __main__ as command
from mutants.table import MUTANTS, Mutant
from mutants.trial import ROOT, MutantBroken, Outcome, Verdict, _execute, _judge_tests, _simulate, mutated
from reliability.campaign import Campaign

EXAMPLE = Mutant("an example", "kafka_sink/example.py", "return 1\n", "return 2\n", 10)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_applies_once_and_has_a_killer(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text()
    assert mutated(source, mutant) != source
    if isinstance(mutant.killer, int):
        assert 0 < mutant.killer <= 1_000
    else:
        path, *names = mutant.killer.split("::")
        assert "::".join(names) in _tests_of(ROOT / path)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    tests = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            tests |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            tests.add(node.name)
    return frozenset(tests)


def test_names_tell_mutants_apart() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert max(Counter((mutant.path, mutant.text, mutant.replacement) for mutant in MUTANTS).values()) == 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [("return 3\n", "0 times"), ("return 1\nreturn 1\n", "2 times"), ("def f(:\n return 1\n", "no Python")],
)
def test_what_does_not_apply_is_broken(source: str, reason: str) -> None:
    with pytest.raises(MutantBroken, match=reason):
        mutated(source, EXAMPLE)


@pytest.mark.parametrize(
    ("status", "output", "outcome", "by"),
    [
        (0, "3 passed", Outcome.SURVIVED, "no test failed"),
        (1, "F\nFAILED tests/test_a.py::test_b[1] - assert 1 == 2\n", Outcome.KILLED, "tests/test_a.py::test_b[1]"),
        (1, "F\nFAILED tests/test_a.py::test_b\n", Outcome.KILLED, "tests/test_a.py::test_b"),
        (1, "FAILED tests/test_a.py::test_b - NameError: name 'x' is not defined\n", Outcome.BROKEN, "NameError"),
        (1, "ERROR tests/test_a.py::test_b - OSError\n", Outcome.BROKEN, "ended with 1"),
        (2, "ERROR tests/test_a.py - ImportError: no name\n", Outcome.BROKEN, "ended with 2"),
        (4, "ERROR: not found: tests/test_a.py::test_b\n", Outcome.BROKEN, "not found"),
        (None, "", Outcome.KILLED, "no end"),
    ],
)
def test_only_a_test_that_fails_kills(status: int | None, output: str, outcome: Outcome, by: str) -> None:
    judged = _judge_tests(status, output)
    assert judged[0] is outcome
    assert by in judged[1]


@pytest.mark.parametrize(
    ("printed", "status", "outcome", "by"),
    [
        ("0 of 5 seeds failed", 0, Outcome.SURVIVED, "not within 5 seeds"),
        ("seed 3 FAILED\n    nothing_twice: a row\nseed 3: 1 broker\nseed 4 FAILED", 1, Outcome.KILLED, "seed 3"),
        ("seed 3 FAILED\n    a defect:\n    NameError: name\nseed 3: 1 broker", 1, Outcome.BROKEN, "NameError"),
        ("Traceback", 1, Outcome.BROKEN, "ended with 1"),
    ],
)
def test_only_a_seed_that_fails_kills(tmp_path: Path, printed: str, status: int, outcome: Outcome, by: str) -> None:
    (tmp_path / "simulation.py").write_text(f"import sys\nprint({printed!r})\nsys.exit({status})\n")
    judged = _simulate(tmp_path, 5, {})
    assert judged[0] is outcome
    assert by in judged[1]


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutants.trial.RUN_TIMEOUT_S", 0.2)
    (tmp_path / "simulation.py").write_text("import threading\nthreading.Event().wait()\n")
    assert _simulate(tmp_path, 5, {})[0] is Outcome.KILLED
    assert _execute(tmp_path, [sys.executable, "-m", "simulation"]) == (None, "")


@pytest.mark.parametrize(
    ("control", "verdict", "status"),
    [
        (Outcome.SURVIVED, Outcome.KILLED, 0),
        (Outcome.SURVIVED, Outcome.SURVIVED, 1),
        (Outcome.SURVIVED, Outcome.BROKEN, 1),
        (Outcome.KILLED, Outcome.KILLED, 1),
    ],
)
def test_all_must_die_and_the_control_must_not(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    control: Outcome,
    verdict: Outcome,
    status: int,
) -> None:
    results = tmp_path / "mutants.json"
    monkeypatch.setattr(sys, "argv", ["mutants", "--results", str(results)])
    monkeypatch.setattr(command, "MUTANTS", (EXAMPLE,))
    monkeypatch.setattr(command, "try_none", lambda killers: Verdict(control, "the control", 1.0))
    monkeypatch.setattr(command, "try_mutant", lambda mutant, killer: Verdict(verdict, "seed 4", 2.0))
    assert command.main() == status
    printed = capsys.readouterr().out
    assert ("seed 4" in printed) == (control is Outcome.SURVIVED)
    assert "an example" in printed or control is not Outcome.SURVIVED
    if control is Outcome.SURVIVED:
        written = Campaign.read(results)
        assert written.passed == (status == 0)
        assert (written.figures["mistakes"], written.figures["found"]) == (1, int(status == 0))
        assert ("Not found: an example" in written.explained) == (status != 0)
