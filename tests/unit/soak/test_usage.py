"""soak.usage and soak.chart: what processes hold, and when it is said to grow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from soak import usage
from soak.usage import JVM, WORKER, Held, Sample


def life(number: int, held: Sequence[Held], role: str = WORKER) -> list[Sample]:
    return [Sample(2.0 * at, number, {role: each}) for at, each in enumerate(held)]


def test_what_stays_is_flat_however_it_began() -> None:
    warming_up = [Held(10 * at, at, 1) for at in range(10)]
    found = usage.growths(life(1, [*warming_up, *[Held(100, 20, 8)] * 30]))
    assert [(each.before, each.after) for each in found] == [(100, 100), (20, 20), (8, 8)]
    assert all(each.flat for each in found)


@pytest.mark.parametrize("resource", usage.RESOURCES)
def test_what_grows_slowly_grows(resource: str) -> None:
    start = {"memory_mb": 100.0, "descriptors": 20, "threads": 8}
    held = [Held(**start | {resource: start[resource] * (1 + at / 100)}) for at in range(200)]  # type: ignore[arg-type]
    grown = [each.resource for each in usage.growths(life(1, held)) if not each.flat]
    assert grown == [resource]


def test_the_jvm_takes_its_heap_but_keeps_no_descriptors() -> None:
    held = [Held(500 + at, 200 + at, 50) for at in range(400)]
    assert [each.resource for each in usage.growths(life(1, held, JVM)) if not each.flat] == ["descriptors"]


def test_only_the_longest_life_is_judged() -> None:
    short = life(1, [Held(at * 100, 1, 1) for at in range(50)])
    assert all(each.flat for each in usage.growths([*short, *life(2, [Held(5, 1, 1)] * 60)]))


def test_a_life_too_short_to_tell_has_no_verdict() -> None:
    assert usage.growths(life(1, [Held(1, 1, 1)] * (usage.FEWEST_SAMPLES - 1))) == []
    assert usage.growths([]) == []
