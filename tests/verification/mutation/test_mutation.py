"""The rules make the mistakes that they describe, and a trial returns the right verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mutants.trial import ROOT
from mutation import __main__ as command
from mutation.operators import Mutation, mutations
from mutation.subjects import EXPLAINED, SUBJECTS, Explained, Subject
from mutation.trial import Control, ControlFailed, Outcome, Verdict, try_all, try_none
from reliability.campaign import Campaign

EXAMPLE = Subject("kafka_sink/example.py", ("tests/test_example.py",))


def changed(source: str) -> list[tuple[str, str]]:
    return [(mutation.operator, mutation.after) for mutation in mutations("m.py", source)]


@pytest.mark.parametrize(("source", "expected"), [
    ("x = a < b", [("comparison", "x = a <= b"), ("comparison", "x = a >= b")]),
    ("x = (a) is  not (b)", [("comparison", "x = (a) is (b)")]), ("x = a not in b", [("comparison", "x = a in b")]),
    ("x = a == b != c", [("comparison", "x = a != b != c"), ("comparison", "x = a == b == c")]),
    (
        "x = (a or b) and c",
        [
            ("logic", "x = (False or b) and c"), ("logic", "x = (True) and c"), ("logic", "x = (a and b) and c"),
            ("logic", "x = (a or False) and c"), ("logic", "x = (a or b) or c"), ("logic", "x = (a or b) and True"),
        ],
    ),
    ("x = not (a)", [("logic", "x = (a)")]), ("x = True", [("logic", "x = False")]),
    ("x = a if b else c", [("condition", "x = a if False else c"), ("condition", "x = a if True else c")]),
    ("while a:\n    f(1)", [("condition", "while False:"), ("deletion", "pass"), ("number", "f(0)"),
                            ("number", "f(2)")]),
    ("x = [a for a in b if a]", [("condition", "x = [a for a in b if False]"),
                                 ("condition", "x = [a for a in b if True]")]),
    ("x = a // b", [("arithmetic", "x = a * b")]),
    ("x = -a ** b", [("arithmetic", "x = a ** b"), ("arithmetic", "x = -a * b")]),
    ("x = -1", [("number", "x = -0"), ("number", "x = -2")]),
    ("x.y += z", [("deletion", "pass"), ("arithmetic", "x.y -= z")]), ("x.y = z", [("deletion", "pass")]),
    ("x: int = z", []), ("T = {1: a, 2: b}", [("entry", "T = {2: b}"), ("entry", "T = {1: a}")]),
    ("def f():\n    return x", [("result", "return None")]),
    ("def f():\n    raise E(\n        'no'\n    )", [("deletion", "pass")]),
    ('"""Ünlike."""\nx = "ü", a <b', [("comparison", 'x = "ü", a <=b'), ("comparison", 'x = "ü", a >=b')]),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_what_the_rules_make(source: str, expected: list[tuple[str, str]]) -> None:
    found = [each for each in changed(source) if each[0] != "entry" or source.startswith("T")]
    assert [each for each in found if not source.startswith("T") or each[0] != "number"] == expected


@pytest.mark.parametrize("source", [
    '"""A text, 1 < 2."""', "import a", "@dataclass(frozen=True)\nclass A:\n    b: Annotated[int, 1]",
    "def f(a: Literal[1]) -> Literal[2]: ...", "if TYPE_CHECKING:\n    import a", "assert a < 1, 'b'", "x = f'{a + 1}'",
    "x = a", "while True:\n    x = a", "def f():\n    return",
])  # fmt: skip
def test_of_what_no_run_can_tell_nothing_is_made(source: str) -> None:
    assert [each for each in changed(source) if each != ("logic", "while False:")] == []


def test_a_mutation_says_where_it_is_and_changes_only_that() -> None:
    source = 'X = "ä"\n\n\nclass A:\n    def f(self):\n        def g(b):\n            return b  +  c\n'
    returned, added = mutations("m.py", source)
    assert (added.function, added.line, added.before, added.after) == ("A.f.g", 7, "return b + c", "return b - c")
    assert added.applied(source) == source.replace("b  +  c", "b  -  c")
    assert returned.applied(source) == source.replace("b  +  c", "None")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.module)
def test_mutants_of_a_module_compile_and_explanations_have_theirs(subject: Subject) -> None:
    source = (ROOT / subject.path).read_text(encoding="utf-8")
    possible = mutations(subject.path, source)
    for mutation in command.sample(possible, 10, seed=1):
        compile(mutation.applied(source), subject.path, "exec")
    assert command.stale([each for each in EXPLAINED if each.path == subject.path], possible) == []


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    possible = mutations("m.py", "".join(f"def f{n}(a, b):\n    return a < b and a + {n}\n" for n in range(20)))
    assert command.sample(possible, 0, 1) == command.sample(possible, 10_000, 1) == possible
    chosen = command.sample(possible, 20, 1)
    assert len(chosen) == 20
    assert chosen == command.sample(possible, 20, 1) == sorted(chosen, key=possible.index)
    assert chosen != command.sample(possible, 20, 2)
    assert set(chosen) < set(command.sample(possible, 30, 1)) < set(command.sample(possible, 0, 1))


SOURCE = "def count(n):\n    while n > 0:\n        n -= 1\n    return n\n"
TEST = "from kafka_sink.example import count\n\ndef test_count():\n    assert count(3) == count(0) == 0\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    # With a configuration of its own it is pytest's root, whatever lies in the folders above.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in {"kafka_sink/__init__.py": "", EXAMPLE.path: SOURCE, EXAMPLE.tests[0]: TEST}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_became_of_a_mutant(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutation.trial.LEAST_CPU_S", 0)
    control = try_none(tree, EXAMPLE)
    assert control.cpu_s > 0
    possible = [each for each in mutations(EXAMPLE.path, SOURCE) if each.operator == "comparison"]
    found = {verdict.mutation.after: verdict for verdict in try_all(tree, EXAMPLE, possible, control, jobs=2)}
    assert {after: verdict.outcome for after, verdict in found.items()} == {
        "while n >= 0:": Outcome.KILLED,
        "while n <= 0:": Outcome.TIMED_OUT,
    }
    assert found["while n >= 0:"].by == "tests/test_example.py::test_count"
    assert (tree / EXAMPLE.path).read_text() == SOURCE
    (tree / EXAMPLE.tests[0]).write_text("def test_nothing():\n    pass\n")
    assert [each.outcome for each in try_all(tree, EXAMPLE, possible, control, jobs=1)] == [Outcome.SURVIVED] * 2


def test_a_module_whose_tests_fail_anyway_is_not_tried(tree: Path) -> None:
    (tree / EXAMPLE.path).write_text("")
    with pytest.raises(ControlFailed, match=r"tests/test_example\.py"):
        try_none(tree, EXAMPLE)


@pytest.mark.parametrize(("outcomes", "explained", "status", "said"), [
    ([Outcome.KILLED] * 2, None, 0, "2 of 2 killed"), ([Outcome.KILLED, Outcome.TIMED_OUT], None, 0, "2 of 2 killed"),
    ([Outcome.KILLED] * 9 + [Outcome.SURVIVED], None, 1, "Survived"),
    ([Outcome.KILLED] * 9 + [Outcome.SURVIVED], "return 9", 0, "9 of 10 killed"),
    ([Outcome.KILLED] * 8 + [Outcome.SURVIVED], "return 8", 1, "Fewer than 90% are killed"),
    ([Outcome.KILLED] * 2, "return 1", 1, "Explained, and killed by a test"),
    ([Outcome.KILLED] * 2, "return 10", 1, "Explained, and no mutation any more"),
])  # fmt: skip
def test_who_lives_must_be_explained_and_most_must_die(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, outcomes: Sequence[Outcome],
    explained: str | None, status: int, said: str,
) -> None:  # fmt: skip
    possible = [
        Mutation(EXAMPLE.path, "f", "number", place, f"return {place}", "return None", place, place, "")
        for place in range(len(outcomes))
    ]

    @contextmanager
    def no_copy() -> Iterator[Path]:
        yield tmp_path

    results = tmp_path / "mutation.json"
    monkeypatch.setattr(sys, "argv", ["mutation", "--sample", "0", "--results", str(results)])
    monkeypatch.setattr(command, "SUBJECTS", (EXAMPLE,))
    entries = [Explained(EXAMPLE.path, "f", explained, "return None", "harmless")] if explained else []
    monkeypatch.setattr(command, "EXPLAINED", entries)
    monkeypatch.setattr(command, "copy_of_tree", no_copy)
    monkeypatch.setattr(command, "mutations_of", lambda subject: possible)
    monkeypatch.setattr(command, "try_none", lambda tree, subject: Control(None, 1.0, ()))
    verdicts = [Verdict(mutation, outcome, "a test") for mutation, outcome in zip(possible, outcomes, strict=True)]
    monkeypatch.setattr(command, "try_all", lambda tree, subject, chosen, control, jobs: verdicts)
    assert command.main() == status
    assert said in capsys.readouterr().out
    written = Campaign.read(results)
    assert written.passed == (status == 0)
    assert written.figures["tried"] == len(outcomes)
    lived = outcomes.count(Outcome.SURVIVED)
    assert written.figures["survivors, each explained below"] == len(written.explained) == lived
    assert all(("harmless" in sentence) == (explained is not None) for sentence in written.explained)
