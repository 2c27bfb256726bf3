"""What `make flakes` finds, in toy tests that fail with one seed only, and what it says of it."""

import sys
from pathlib import Path

import pytest

from failed_tests import FailedTests
from flakes import __main__ as flakes
from flakes.__main__ import Run
from reliability.campaign import Campaign

SUPPORT = Path(__file__).resolve().parents[2] / "support"
CONFTEST = """\
import hypothesis

pytest_plugins = ("failed_tests",)
hypothesis.settings.register_profile("flakes")
"""
TOY = """

from pathlib import Path

def test_right(request):
    with Path("seeds").open("a") as file:
        file.write(f"{request.config.getoption('randomly_seed')} {request.config.getoption('hypothesis_seed')}\\n")

def test_of_one_seed(request):
    assert request.config.getoption("randomly_seed") != 8
"""


def test_each_run_has_a_seed_and_a_test_that_failed_is_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "setup.cfg").write_text(f"[tool:pytest]\npythonpath = {SUPPORT}\naddopts = -p no:randomly\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_toy.py").write_text(TOY)
    results = tmp_path / "flakes.json"
    ours = ["--runs", "2", "--seed", "7", "--results", str(results), "--pytest", "-p no:cacheprovider"]
    monkeypatch.setattr(sys, "argv", ["flakes", *ours, "-k", "of or right"])
    # Only the plugins that it needs, as each takes its time to start.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "_hypothesis_pytestplugin")
    monkeypatch.chdir(tmp_path)
    assert flakes.main() == 1
    assert sorted((tmp_path / "seeds").read_text().splitlines()) == ["7 7", "8 8"]
    assert capfd.readouterr().out.splitlines()[-3:] == [
        "2 runs, 1 tests failed at least once",
        "test_toy.py::test_of_one_seed: failed 1 times, with seed 8",
        "    make flakes RUNS=1 SEED=8 ARGS=test_toy.py",
    ]
    written = Campaign.read(results)
    assert written.command == "make flakes RUNS=2 SEED=7 ARGS='-k '\"'\"'of or right'\"'\"''"
    assert (written.passed, written.figures["runs that failed"], written.figures["tests of a run"]) == (False, 1, 2)


@pytest.mark.parametrize(("status", "seen", "expected"), [
    (0, FailedTests(passed=3), []), (1, FailedTests(failed=["a.py::b"]), ["a.py::b"]),
    (1, FailedTests(broken=["a.py::b"]), ["a.py::b (not collected, or its process crashed)"]),
    (None, FailedTests(failed=["a.py::b"]), ["a.py::b", "the run did not end within 45 minutes"]),
    (3, FailedTests(), ["pytest ended with 3"]),
])  # fmt: skip
def test_whatever_is_no_success_is_a_problem(status: int | None, seen: FailedTests, expected: list[str]) -> None:
    assert list(flakes.problems(status, seen)) == expected


def test_what_failed_most_comes_first() -> None:
    runs = [Run(1, 9, ("a::x",)), Run(2, 9, ("b::y", "a::x")), Run(3, 9, ("b::y",)), Run(4, 9, ("c::z", "b::y"))]
    assert flakes.seeds_of_problems(runs) == {"b::y": [2, 3, 4], "a::x": [1, 2], "c::z": [4]}
    assert not flakes.campaign(runs, "make flakes", minutes=1).passed
    assert flakes.campaign([Run(1, 9, ())], "make flakes", minutes=1).passed
    assert not flakes.campaign([], "make flakes", minutes=0).passed
