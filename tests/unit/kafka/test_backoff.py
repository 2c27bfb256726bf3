from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.backoff import backoff_ms


@given(st.integers(1, 10_000), st.integers(0, 2**31 - 1))
def test_within_jitter_of_the_exponential_and_never_over_the_maximum(attempts: int, seed: int) -> None:
    wait = backoff_ms(attempts, 100, 1_000, random.Random(seed))
    exponential = 100 * 2 ** min(attempts - 1, 20)
    assert int(min(exponential * 0.8, 1_000)) <= wait <= min(exponential * 1.2, 1_000)


def test_two_producers_do_not_retry_in_step() -> None:
    assert len({backoff_ms(2, 100, 10_000, random.Random(seed)) for seed in range(50)}) > 20
