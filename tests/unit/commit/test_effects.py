"""Steps that run side by side."""

from __future__ import annotations

import pytest

from kafka_sink.commit.effects import Pause, Steps, at_once


def test_steps_side_by_side_ask_together_and_the_first_that_raises_ends_all() -> None:
    ended = []

    def asks(name: str, times: int, fails: bool = False) -> Steps[str]:
        try:
            for number in range(times):
                assert (yield [Pause(number), Pause(number)]) == [f"{name}{number}", f"{name}{number}"]
            if fails:
                raise ValueError(name)
            return name
        finally:
            ended.append(name)

    steps = at_once(asks("a", 2), asks("b", 0), asks("c", 1))
    assert next(steps) == [Pause(0)] * 4
    assert steps.send(["a0", "a0", "c0", "c0"]) == [Pause(1)] * 2
    with pytest.raises(StopIteration) as end:
        steps.send(["a1", "a1"])
    assert end.value.value == ["a", "b", "c"]
    assert ended == ["b", "c", "a"]
    ended.clear()
    steps = at_once(asks("a", 2), asks("b", 1, fails=True))
    next(steps)
    with pytest.raises(ValueError, match="b"):
        steps.send(["a0", "a0", "b0", "b0"])
    assert ended == ["b", "a"]
