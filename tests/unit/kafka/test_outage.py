"""The policy: how long a client waits while no broker answers, and what it logs meanwhile."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.waits import (
    FIRST_LOG_MS,
    FIRST_MS,
    FIRST_PATIENCE_MS,
    FIRST_SILENCE_MS,
    LOG_AGAIN_MS,
    Contact,
    FirstWait,
    Outage,
    backoff_ms,
    first_patience_ms,
    time_of_day,
)

REACHED = Contact(is_reached=True, began_ms=0)
REFUSED = Contact(began_ms=0, away_since_ms=0, is_refused=True, is_unanswered=True)
# The last attempt at one of the servers was refused, another hung up.
HUNG_UP = Contact(began_ms=0, away_since_ms=0, is_unanswered=True)
# A third one took the connection and is silent.
SILENT = Contact(began_ms=0, away_since_ms=0, is_unanswered=True, is_silent=True)
# A server has not been tried, or an attempt to connect is not over.
TRYING = Contact(began_ms=0, away_since_ms=0)
# A bootstrap server has answered; the brokers that it names have not.
NAMED = Contact(began_ms=0)

AS_ITS_OPTION_SAYS = None


@pytest.mark.parametrize(("has_worked", "contact", "of_a_plan", "of_a_task"), [
    *(
        (True, each, AS_ITS_OPTION_SAYS, AS_ITS_OPTION_SAYS)
        for each in (REFUSED, HUNG_UP, SILENT, TRYING, NAMED, REACHED)
    ),
    (False, REFUSED, FIRST_MS, FIRST_MS),
    (False, HUNG_UP, FIRST_MS, FIRST_PATIENCE_MS),
    (False, SILENT, FIRST_SILENCE_MS, FIRST_PATIENCE_MS),
    (False, TRYING, FIRST_PATIENCE_MS, FIRST_PATIENCE_MS),
    (False, NAMED, FIRST_PATIENCE_MS, FIRST_PATIENCE_MS),
    (False, REACHED, AS_ITS_OPTION_SAYS, AS_ITS_OPTION_SAYS),
])  # fmt: skip
def test_what_has_worked_is_waited_for_and_what_never_has_fails_early(
    has_worked: bool, contact: Contact, of_a_plan: int | None, of_a_task: int | None
) -> None:
    for asks_alone, expected in ((True, of_a_plan), (False, of_a_task)):
        assert first_patience_ms(contact, has_worked=has_worked, asks_alone=asks_alone) == expected
        outage = Outage(asks_alone=asks_alone, has_worked=has_worked)
        limit_ms = 10**9 if expected is None else expected
        last, over = outage.first_wait(contact, limit_ms - 1), outage.first_wait(contact, limit_ms)
        assert (last, over) == (None, None) if expected is None else (
            FirstWait(expected - 1, 1), FirstWait(expected, 0)
        )  # fmt: skip


def test_a_first_failure_comes_within_ten_seconds() -> None:
    """With the examination of the hosts, which takes up to four seconds for a silent one."""
    assert 5_000 <= FIRST_MS <= 6_000 < FIRST_LOG_MS


def test_a_broker_that_was_reached_has_worked() -> None:
    outage = Outage(asks_alone=True)
    assert outage.first_wait(REACHED, 0) is None
    assert outage.has_worked
    assert outage.first_wait(REFUSED, 10**9) is None

    # Time without an attempt does not count.
    assert Outage(asks_alone=True).first_wait(Contact(), 10**9) == FirstWait(0, FIRST_PATIENCE_MS)


def test_a_wait_is_told_once_and_another_one_later() -> None:
    outage = Outage(asks_alone=True)
    assert not outage.is_log_due(FIRST_LOG_MS - 1, 100_000)
    assert outage.is_log_due(FIRST_LOG_MS, 100_000)
    assert not any(outage.is_log_due(FIRST_LOG_MS + more_ms, 100_000 + more_ms) for more_ms in (1, 500, 10**6))
    assert not outage.is_log_due(FIRST_LOG_MS, 100_000 + 2 * FIRST_LOG_MS)
    assert outage.is_log_due(FIRST_LOG_MS, 100_000 + LOG_AGAIN_MS)
    assert time_of_day(1_700_000_000_000) == "22:13:20 UTC"


@given(st.integers(1, 10_000), st.integers(0, 2**31 - 1))
def test_a_backoff_is_within_jitter_of_the_exponential_and_never_over_the_maximum(attempts: int, seed: int) -> None:
    wait = backoff_ms(attempts, 100, 1_000, random.Random(seed))
    exponential = 100 * 2 ** min(attempts - 1, 20)
    assert int(min(exponential * 0.8, 1_000)) <= wait <= min(exponential * 1.2, 1_000)
    # Two clients do not retry in step.
    assert len({backoff_ms(2, 100, 10_000, random.Random(seed + n)) for n in range(50)}) > 20
