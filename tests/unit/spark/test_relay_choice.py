from __future__ import annotations

import pytest

from kafka_sink.spark import relay_choice


@pytest.mark.parametrize(
    ("choice", "is_possible", "expected"),
    [("on", True, True), ("on", False, False), ("off", True, False), (None, True, False)],
)
def test_who_asks_for_the_relay_gets_it_where_the_system_can(
    choice: str | None, is_possible: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYKAFKA_RELAY", raising=False)
    if choice is not None:
        monkeypatch.setenv("PYKAFKA_RELAY", choice)
    monkeypatch.setattr(relay_choice, "is_possible", lambda: is_possible)
    assert relay_choice.is_wanted() is expected
