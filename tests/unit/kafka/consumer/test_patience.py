"""How long a caller waits: of its own time nothing counts, and of a throttle's only what is beyond measure."""

from __future__ import annotations

from kafka_sink.kafka.consumer.patience import THROTTLED_LIMITS, Patience

LIMIT_MS = 1_000


def test_nobody_waits_at_first_nor_after_a_record_set() -> None:
    patience = Patience(LIMIT_MS)
    assert not patience.is_over(10**6, 0)
    assert patience.throttled_ms(500) == patience.waited_ms(10**6, 500) == 0
    patience.begin(10**6, 0)
    patience.end()
    assert not patience.is_over(10**9, 10**6)


def test_a_wait_begins_once() -> None:
    patience = Patience(LIMIT_MS)
    patience.begin(5_000, 0)
    patience.begin(5_900, 0)
    assert not patience.is_over(5_999, 0)
    assert patience.is_over(6_000, 0)


def test_time_in_which_brokers_throttle_does_not_count() -> None:
    patience = Patience(LIMIT_MS)
    patience.begin(0, 300)
    assert not patience.is_over(LIMIT_MS + 499, 800)
    assert patience.is_over(LIMIT_MS + 500, 800)
    assert patience.throttled_ms(800) == 500


def test_until_it_is_beyond_measure() -> None:
    patience = Patience(LIMIT_MS)
    patience.begin(0, 300)
    longest_ms = THROTTLED_LIMITS * LIMIT_MS
    assert not patience.is_over(longest_ms, 300 + longest_ms - 1)
    assert patience.is_over(longest_ms, 300 + longest_ms)
