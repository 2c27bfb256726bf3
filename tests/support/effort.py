"""How many examples and cases a test runs. `make unit` runs a tenth of the examples of each property."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import hypothesis
import pytest

T = TypeVar("T")


def examples(count: int) -> int:
    """Return `count` for runs with 100 examples a property, and in proportion for other runs."""
    return max(1, count * hypothesis.settings().max_examples // 100)


def some(cases: Sequence[T], key: str) -> Sequence[T]:
    """Return all `cases`; in `make unit` a few of them, which differ for each `key`."""
    count = examples(len(cases))
    if count >= len(cases):
        return cases
    first = sum(key.encode()) % len(cases)
    return [cases[(first + i) % len(cases)] for i in range(count)]


def each(name: str, cases: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`pytest.mark.parametrize` as one test, for cases that take less time than pytest needs for a test (4 ms).

    All cases run. The error of the first that fails is raised, with a note that lists the failing ones. Fixtures are
    shared by the cases.
    """
    cases = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(*arguments: Any, **fixtures: Any) -> None:
            failed: list[object] = []
            first: Exception | None = None
            for case in cases:
                try:
                    test(*arguments, **fixtures, **{name: case})
                except Exception as error:
                    failed.append(case)
                    first = first or error
            if first is not None:
                first.add_note(f"fails for {len(failed)} of {len(cases)} {name}s: {', '.join(map(repr, failed[:20]))}")
                raise first

        # What pytest reads: the fixtures that are left.
        left = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        del run.__wrapped__
        return run

    return decorate


def variants(first: Any, *others: Any) -> list[Any]:
    """Return the values of one argument for `pytest.mark.parametrize`."""
    return [first, *(pytest.param(each, marks=pytest.mark.long) for each in others)]
