"""The bucket on a clock that is a number: never faster, as fast as it may be, and little at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import RateOutlastsTransaction
from kafka_sink.kafka.producer.rate_limit import BURST_MS, OpenTransaction, Rate, RateLimit

RATES = st.floats(0.05, 1e9)
# Rows, bytes, and for how long their source was slow.
SLICES = st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10**7), st.integers(0, 5_000)), min_size=1)


def written(limit: RateLimit, slices: list[tuple[int, int, int]], began_ms: int) -> list[tuple[int, int, int]]:
    """When each slice went, and how many rows and bytes had gone by then, its own included."""
    now_ms, rows, octets, went = began_ms, 0, 0, []
    for row_count, byte_count, slow_ms in slices:
        now_ms = limit.take(row_count, byte_count, now_ms + slow_ms)
        rows, octets = rows + row_count, octets + byte_count
        went.append((now_ms, rows, octets))
    return went


@given(RATES, RATES, SLICES, st.integers(0, 10**9))
def test_it_is_never_faster_than_asked(rows_per_s: float, bytes_per_s: float, slices: list, began_ms: int) -> None:
    limit = RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=began_ms)
    for at_ms, rows, octets in written(limit, slices, began_ms):
        elapsed_s = (at_ms - began_ms) / 1000
        assert rows <= rows_per_s * elapsed_s * (1 + 1e-9) + 1e-6
        assert octets <= bytes_per_s * elapsed_s * (1 + 1e-9) + 1e-6


@given(RATES, SLICES)
def test_a_source_that_is_fast_is_slowed_to_just_the_rate(rows_per_s: float, slices: list) -> None:
    limit = RateLimit(Rate(rows_per_s), now_ms=0)
    at_ms, rows, _ = written(limit, [(row_count, byte_count, 0) for row_count, byte_count, _ in slices], 0)[-1]
    # A millisecond is the clock's.
    assert at_ms <= rows * 1000 / rows_per_s * (1 + 1e-9) + 1


@given(RATES, SLICES)
def test_what_a_slow_source_missed_is_caught_up_with_by_one_burst(rows_per_s: float, slices: list) -> None:
    limit = RateLimit(Rate(rows_per_s), now_ms=0)
    went = [(0, 0, 0), *written(limit, slices, 0)]
    for (at_ms, before, _), (then_ms, after, _) in pairwise(went):
        assert after - before <= rows_per_s * (then_ms - at_ms + BURST_MS + 1) / 1000 * (1 + 1e-9) + 1e-6


@given(RATES, RATES, st.integers(1, 10**6), st.integers(0, 10**12))
def test_a_burst_is_a_tenth_of_a_seconds_worth_or_a_row(
    rows_per_s: float, bytes_per_s: float, row_count: int, byte_count: int
) -> None:
    at_once = RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=0).rows_at_once(row_count, byte_count)
    assert 1 <= at_once <= row_count
    if at_once > 1:
        assert at_once <= rows_per_s * BURST_MS / 1000 + 1e-6
        assert at_once * byte_count / row_count <= bytes_per_s * BURST_MS / 1000 * (1 + 1e-9) + 1e-6


def test_a_row_that_is_more_than_a_burst_waits_until_it_is_paid_for() -> None:
    limit = RateLimit(Rate(bytes_per_s=1_000), now_ms=0)
    assert limit.take(1, 5_000, 0) == 5_000
    assert limit.take(1, 1_000, 5_000) == 6_000


def test_the_slower_of_rows_and_bytes_decides() -> None:
    assert RateLimit(Rate(rows_per_s=10, bytes_per_s=1_000), now_ms=0).take(10, 100, 0) == 1_000
    assert RateLimit(Rate(rows_per_s=10, bytes_per_s=1_000), now_ms=0).take(10, 3_000, 0) == 3_000


def test_a_transaction_that_would_be_outlasted_is_told_before_it_is_waited_for() -> None:
    limit = RateLimit(Rate(rows_per_s=1), now_ms=500, transaction=OpenTransaction("orders.3", 10_000))
    now_ms = 500
    for _ in range(9):
        now_ms = limit.take(1, 0, now_ms)
    with pytest.raises(RateOutlastsTransaction, match=r"'orders\.3'.*ms 10000.*: 9 of them were sent") as raised:
        limit.take(1, 0, now_ms)
    assert (raised.value.timeout_ms, raised.value.row_count, now_ms) == (10_000, 9, 9_500)
