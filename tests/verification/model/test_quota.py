"""A broker's quota: a first window passes, then no more than the quota over any length of time."""

from __future__ import annotations

from model.quota import Quota


def test_the_first_window_passes_and_then_the_excess_is_waited_for() -> None:
    quota = Quota(1_000)
    assert [quota.throttle_time_ms(5_000, 0) for _ in range(3)] == [0, 0, 5_000]


def test_over_time_it_is_the_rate() -> None:
    quota, now_ms, taken_bytes = Quota(1_000), 0, 0
    while now_ms < 1_000_000:
        taken_bytes += 4_000
        now_ms += max(1, quota.throttle_time_ms(4_000, now_ms))
    assert 950_000 <= taken_bytes <= 1_050_000


def test_one_large_request_is_waited_for_without_a_bound() -> None:
    assert Quota(1_000).throttle_time_ms(1_000_000, 0) == 990_000


def test_an_answer_over_the_quota_does_not_count() -> None:
    quota = Quota(1_000)
    assert quota.throttle_time_or_take_ms(10_000, 0) == 0
    assert [quota.throttle_time_or_take_ms(5_000, 0) for _ in range(3)] == [5_000] * 3
