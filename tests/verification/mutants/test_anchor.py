"""A mutant finds its place after a refactoring; no place and two places are errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mutants.anchor import Module, MutantBroken, modules, mutated
from mutants.mutant import Mutant

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


def test_only_the_mistake_is_changed() -> None:
    result = mutated((OTHER, QUEUE), MUTANT)
    assert result.path == QUEUE.path
    assert result.text == QUEUE.text.replace("self._batches and self._is_ready(now_ms)", "self._batches")


def test_private_names_and_local_variables_may_be_renamed() -> None:
    renamed = QUEUE.text.replace("_is_ready", "_may_go").replace("_batches", "_waiting").replace("now_ms", "clock_ms")
    result = mutated((Module(QUEUE.path, renamed),), MUTANT)
    assert result.text == renamed.replace("self._waiting and self._may_go(clock_ms)", "self._waiting")


@pytest.mark.parametrize(
    ("pattern", "times"),
    [("$X.append($Y)", "2 times, package/queue.py:6, package/other.py:2"), ("$X.extend($Y)", "0 times$")],
)
def test_two_places_or_none_are_an_error(pattern: str, times: str) -> None:
    with pytest.raises(MutantBroken, match=times):
        mutated((QUEUE, OTHER), replace(MUTANT, pattern=pattern))


@pytest.mark.parametrize("within", ["Queue", "Queue.put", "class $CLASS:\n    $$$BODY"])
def test_what_is_around_it_tells_places_apart(within: str) -> None:
    mutant = replace(MUTANT, pattern="$X.append($Y)", replacement="pass", within=within)
    assert mutated((QUEUE, OTHER), mutant).text == QUEUE.text.replace("self._batches.append(batch)", "pass")


def test_a_name_stands_for_a_whole_name() -> None:
    with pytest.raises(MutantBroken, match="0 times"):
        mutated((QUEUE, OTHER), replace(MUTANT, pattern="$X.append($Y)", within="Que"))


def test_statements_that_follow_one_another_whatever_comments_are_between() -> None:
    mutant = replace(
        MUTANT,
        pattern=("$BATCH = self.$BATCHES.popleft()", "self.$TAKEN.add($BATCH)"),
        replacement="while self.$TAKEN:\n    $BATCH = self.$BATCHES.popleft()",
    )
    assert mutated((QUEUE,), mutant).text == QUEUE.text.replace(
        "            batch = self._batches.popleft()  # the oldest\n            self._taken.add(batch)\n",
        "            while self._taken:\n                batch = self._batches.popleft()\n",
    )


def test_a_block_keeps_its_shape_at_another_depth() -> None:
    mutant = replace(
        MUTANT,
        pattern="if self.$BATCHES and $READY:\n    $$$TAKEN",
        replacement="while True:\n    if $READY:\n        $$$TAKEN",
    )
    assert mutated((QUEUE,), mutant).text == QUEUE.text.replace(
        """\
        if self._batches and self._is_ready(now_ms):
            batch = self._batches.popleft()  # the oldest
            self._taken.add(batch)
            return batch
""",
        """\
        while True:
            if self._is_ready(now_ms):
                batch = self._batches.popleft()  # the oldest
                self._taken.add(batch)
                return batch
""",
    )


def test_a_private_name_that_only_the_mistake_uses_is_given() -> None:
    mutant = replace(
        MUTANT,
        pattern="$NOW_MS >= self.$AT_MS",
        replacement="$NOW_MS >= self.$AT_MS or self.$TAKEN",
        given=("self.$TAKEN.add($BATCH)",),
    )
    assert "now_ms >= self._ready_at_ms or self._taken\n" in mutated((OTHER, QUEUE), mutant).text
    with pytest.raises(MutantBroken, match=r"self\.\$TAKEN\.add.* is found 0 times"):
        mutated((Module(QUEUE.path, QUEUE.text.replace("_taken.add", "_taken.append")),), mutant)


@pytest.mark.parametrize(
    ("pattern", "replacement", "reason"),
    [
        (MUTANT.pattern, "self.$BATCHES and", "no Python"),
        (MUTANT.pattern, "self.$NOBODY", r"nothing is captured for \$NOBODY"),
        ("return 1\nreturn 2", "return 3", "no pattern"),
    ],
)
def test_what_cannot_be_put_in_is_broken(pattern: str, replacement: str, reason: str) -> None:
    with pytest.raises(MutantBroken, match=reason):
        mutated((QUEUE,), replace(MUTANT, pattern=pattern, replacement=replacement))


def test_c_is_searched_apart_from_python(tmp_path: Path) -> None:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "one.py").write_text("length = -1\n")
    (tmp_path / "package" / "inner" / "two.c").write_text("int f(int is_null) { return is_null ? -1 : 0; }\n")
    sources = modules(tmp_path, "package")
    assert [str(module.path) for module in sources] == ["package/inner/two.c", "package/one.py"]
    mutant = replace(MUTANT, language="c", pattern="$NULL ? -1 : $LENGTH", replacement="$LENGTH")
    assert mutated(sources, mutant).text == "int f(int is_null) { return 0; }\n"
