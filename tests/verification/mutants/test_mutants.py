"""A mutant finds its place after a refactoring; none and two places are errors; only a test that fails kills."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import gate
from mutants import __main__ as command
from mutants.anchor import Module, MutantBroken, mutated
from mutants.mutant import Mutant
from mutants.table import MUTANTS
from mutants.trial import Outcome, Verdict, _execute, _judge_tests, _simulate
from reliability.campaign import Campaign

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = Mutant(name="an example", rule="a rule", pattern="return 1", replacement="return 2", killer=10)
PACKAGE = (Module(Path("package/example.py"), "def one():\n    return 1\n\n\ndef two():\n    return 2\n"),)


def test_names_tell_mutants_apart() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1


@pytest.mark.parametrize("killer", sorted({mutant.killer for mutant in MUTANTS if isinstance(mutant.killer, str)}))
def test_every_test_that_must_fail_is_one_of_the_gate(killer: str) -> None:
    path, *names = killer.partition("[")[0].split("::")
    assert gate.stays(ROOT / path, names[-1])


@pytest.mark.parametrize(("status", "output", "outcome", "by"), [
    (0, "3 passed", Outcome.SURVIVED, "no test failed"),
    (1, "F\nFAILED tests/test_a.py::test_b[1] - assert 1 == 2\n", Outcome.KILLED, "tests/test_a.py::test_b[1]"),
    (1, "F\nFAILED tests/test_a.py::test_b\n", Outcome.KILLED, "tests/test_a.py::test_b"),
    (1, "FAILED tests/test_a.py::test_b[two words] - NameError: no name 'x'\n", Outcome.BROKEN, "NameError"),
    (1, "ERROR tests/test_a.py::test_b - OSError\n", Outcome.BROKEN, "ended with 1"),
    (2, "ERROR tests/test_a.py - ImportError: no name\n", Outcome.BROKEN, "ended with 2"),
    (4, "ERROR: not found: tests/test_a.py::test_b\n", Outcome.BROKEN, "not found"),
    (None, "", Outcome.KILLED, "no end"),
])  # fmt: skip
def test_only_a_test_that_fails_kills(status: int | None, output: str, outcome: Outcome, by: str) -> None:
    judged = _judge_tests(status, output)
    assert judged[0] is outcome
    assert by in judged[1]


@pytest.mark.parametrize(("printed", "status", "outcome", "by"), [
    ("0 of 5 seeds failed", 0, Outcome.SURVIVED, "not within 5 seeds"),
    ("seed 3 FAILED\n    nothing_twice: a row\nseed 3: 1 broker\nseed 4 FAILED", 1, Outcome.KILLED, "seed 3"),
    ("seed 3 FAILED\n    a defect:\n    NameError: name\nseed 3: 1 broker", 1, Outcome.BROKEN, "NameError"),
    ("Traceback", 1, Outcome.BROKEN, "ended with 1"),
])  # fmt: skip
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


@pytest.mark.parametrize(("control", "verdict", "status"), [
    (Outcome.SURVIVED, Outcome.KILLED, 0), (Outcome.SURVIVED, Outcome.SURVIVED, 1),
    (Outcome.SURVIVED, Outcome.BROKEN, 1), (Outcome.KILLED, Outcome.KILLED, 1),
])  # fmt: skip
def test_all_must_die_and_the_control_must_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, control: Outcome,
    verdict: Outcome, status: int,
) -> None:  # fmt: skip
    results = tmp_path / "mutants.json"
    monkeypatch.setattr(sys, "argv", ["mutants", "--results", str(results)])
    monkeypatch.setattr(command, "MUTANTS", (EXAMPLE,))
    monkeypatch.setattr(command, "package", lambda: PACKAGE)
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


@pytest.mark.parametrize(("pattern", "status", "printed"), [
    ("return 1", 0, "2 mutants have one place each"), ("return 3", 1, "another example: its pattern is found 0 times"),
    ("return $X", 1, "another example: its pattern is found 2 times, package/example.py:2, package/example.py:6"),
])  # fmt: skip
def test_nothing_is_tried_until_each_mutant_has_one_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pattern: str, status: int, printed: str
) -> None:
    another = replace(EXAMPLE, name="another example", pattern=pattern)
    monkeypatch.setattr(sys, "argv", ["mutants", "--places"] if status == 0 else ["mutants"])
    monkeypatch.setattr(command, "MUTANTS", (EXAMPLE, another))
    monkeypatch.setattr(command, "package", lambda: PACKAGE)
    assert command.main() == status
    assert capsys.readouterr().out == f"{printed}\n"


QUEUE = Module(
    Path("package/queue.py"),
    '''\
"""Une file d'attente, où un caractère a deux octets."""


class Queue:
    def put(self, batch):
        self._batches.append(batch)

    def take(self, now_ms):
        if self._batches and self._is_ready(now_ms):
            batch = self._batches.popleft()  # the oldest
            self._taken.add(batch)
            return batch
        return None

    def _is_ready(self, now_ms):
        return now_ms >= self._ready_at_ms
''',
)
OTHER = Module(Path("package/other.py"), "def put(one):\n    one.things.append(one)\n")
MUTANT = Mutant(
    name="what is not ready is taken", rule="a rule", pattern="self.$BATCHES and self.$IS_READY($NOW_MS)",
    replacement="self.$BATCHES", killer=10,
)  # fmt: skip


@pytest.mark.parametrize("within", ["Queue", "Queue.put", "class $CLASS:\n    $$$BODY"])
def test_what_is_around_it_tells_places_apart(within: str) -> None:
    mutant = replace(MUTANT, pattern="$X.append($Y)", replacement="pass", within=within)
    assert mutated((QUEUE, OTHER), mutant).text == QUEUE.text.replace("self._batches.append(batch)", "pass")


@pytest.mark.parametrize(("pattern", "replacement", "reason"), [
    (MUTANT.pattern, "self.$BATCHES and", "no Python"),
    (MUTANT.pattern, "self.$NOBODY", r"nothing is captured for \$NOBODY"),
    ("return 1\nreturn 2", "return 3", "no pattern"),
])  # fmt: skip
def test_what_cannot_be_put_in_is_broken(pattern: str, replacement: str, reason: str) -> None:
    with pytest.raises(MutantBroken, match=reason):
        mutated((QUEUE,), replace(MUTANT, pattern=pattern, replacement=replacement))
