"""The clock of a driver is an hour ahead of the brokers', or behind: no age compares two clocks."""

from __future__ import annotations

import pytest

from exchange import Exchange
from kafka_sink.commit import two_phase
from kafka_sink.errors import TransactionTimedOut

HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("skew_ms", [HOUR_MS, 0, -HOUR_MS])
@pytest.mark.parametrize(("open_ms", "is_in_time"), [(0, True), (54_000, True), (55_001, False)])
def test_a_drivers_clock_may_be_an_hour_off(version: int, skew_ms: int, open_ms: int, is_in_time: bool) -> None:
    exchange = Exchange(version)
    exchange.kafka.now_ms = 10 * HOUR_MS
    found, done = exchange.tasks(2)
    exchange.kafka.now_ms += open_ms
    now_ms = exchange.kafka.now_ms + skew_ms
    commit = two_phase.commit(exchange.sink, found, done, micro_batch_id=0, now_ms=now_ms, open_ms=open_ms)
    if is_in_time:
        exchange.run(commit)
        assert exchange.kafka.visible == ["0/0", "0/1"]
        return
    with pytest.raises(TransactionTimedOut) as raised:
        exchange.run(commit)
    assert (raised.value.age_ms, exchange.kafka.visible) == (open_ms, [])


def test_tasks_that_wrote_late_are_in_time_however_long_ago_the_plan_is() -> None:
    """The time since the plan is the most that a transaction can have been open; the brokers know how long it was."""
    exchange = Exchange()
    found, done = exchange.tasks(2)
    exchange.run(
        two_phase.commit(exchange.sink, found, done, micro_batch_id=0, now_ms=10 * HOUR_MS, open_ms=3 * HOUR_MS)
    )
    assert exchange.kafka.visible == ["0/0", "0/1"]


def test_the_age_of_a_transaction_that_is_over_is_no_date() -> None:
    exchange = Exchange()
    found, done = exchange.tasks(2)
    exchange.kafka.time_out("orders.1")
    with pytest.raises(TransactionTimedOut) as raised:
        exchange.run(
            two_phase.commit(exchange.sink, found, done, micro_batch_id=0, now_ms=1_795_737_867_331, open_ms=7)
        )
    assert raised.value.age_ms == 7
