"""What a fetcher decides by: error codes, how long a caller waits, whom to ask, and when a topic is gone."""

import uuid
from types import MappingProxyType
from typing import Any

import pytest

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_policy import (
    THROTTLED_LIMITS,
    Action,
    Patience,
    PreferredReplica,
    TopicWatch,
    missing,
    on_read_error,
)
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, NO_LEADER, MetadataSnapshot, TopicSnapshot
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# By number, as brokers send them to readers.
EXPECTED = {
    Action.TAKE: {0},
    Action.LOOK_FOR_BOUNDS: {1},
    Action.DENIED: {29},
    Action.REFRESH_AND_RETRY: {3, 5, 6, 9, 56, 74, 75, 100, 103},
    Action.RETRY: {-1, 7, 70, 71, 78, 89, 106},
    Action.FAIL: {2, 31, 35, 42, 43, 76, 136, 500, -2},
}


def test_a_code_of_readers() -> None:
    found = {action: {code for code in codes if on_read_error(code) is action} for action, codes in EXPECTED.items()}
    assert found == EXPECTED
    assert [code for code in ErrorCode if on_read_error(code) is Action.TAKE] == [ErrorCode.NONE]


LIMIT_MS = 1_000


def test_nobody_waits_at_first_nor_after_a_record_set_and_a_wait_begins_once() -> None:
    patience = Patience(LIMIT_MS)
    assert not patience.is_over(10**6, 0)
    assert patience.throttled_ms(500) == patience.waited_ms(10**6, 500) == 0
    patience.begin(10**6, 0)
    patience.end()
    assert not patience.is_over(10**9, 10**6)
    patience.begin(5_000, 0)
    patience.begin(5_900, 0)
    assert [patience.is_over(now_ms, 0) for now_ms in (5_999, 6_000)] == [False, True]


def test_time_in_which_brokers_throttle_does_not_count_until_it_is_beyond_measure() -> None:
    patience = Patience(LIMIT_MS)
    patience.begin(0, 300)
    assert [patience.is_over(LIMIT_MS + more, 800) for more in (499, 500)] == [False, True]
    assert patience.throttled_ms(800) == 500
    longest_ms = THROTTLED_LIMITS * LIMIT_MS
    assert [patience.is_over(longest_ms, 300 + longest_ms - less) for less in (1, 0)] == [False, True]


LEADER, NEARER = 1, 2
MAX_AGE_MS = 1_000


def test_the_leader_names_a_replica_for_a_while() -> None:
    replica = PreferredReplica("a", MAX_AGE_MS)
    assert (replica.node, replica.rack(0)) == (NO_LEADER, "a")
    assert replica.named(NEARER, LEADER, 500)
    replica.expire(500 + MAX_AGE_MS - 1)
    assert replica.node == NEARER
    replica.expire(500 + MAX_AGE_MS)
    assert (replica.node, replica.rack(500 + MAX_AGE_MS)) == (NO_LEADER, "a")


def test_after_trouble_a_replica_is_left_alone_and_trouble_of_the_leader_is_none() -> None:
    replica = PreferredReplica("a", MAX_AGE_MS)
    replica.failed(500)
    assert replica.rack(501) == "a"
    replica.named(NEARER, LEADER, 0)
    replica.failed(500)
    assert (replica.node, replica.rack(500 + MAX_AGE_MS - 1), replica.rack(500 + MAX_AGE_MS)) == (NO_LEADER, "", "a")


ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
RANGE = FetchRange("orders", ORDERS, 2, 100, 200, leader_epoch=7)


def snapshot(topic_id: uuid.UUID | None = ORDERS, partitions: int = 3, **errors: int) -> MetadataSnapshot:
    topic = TopicSnapshot("orders", topic_id, (1,) * partitions, (7,) * partitions)
    return MetadataSnapshot(topics=MappingProxyType({"orders": topic}), errors=MappingProxyType(errors))


THERE, ABSENT = snapshot(), snapshot(orders=3)


def test_what_an_answer_misses() -> None:
    there = THERE, snapshot(topic_id=None), snapshot(payments=3), snapshot(orders=5), MetadataSnapshot()
    assert [missing(RANGE, answer) for answer in there] == [None] * len(there)
    assert [missing(RANGE, answer) for answer in (ABSENT, snapshot(partitions=2))] == [LossCause.TOPIC_DELETED] * 2
    assert missing(RANGE, snapshot(topic_id=OTHER)) is LossCause.TOPIC_RECREATED


# Each answer, when its request was sent, and when it came.
FIRST = (ABSENT, 0, 10)
LATER = ABSENT_PATIENCE_MS + 10


@pytest.mark.parametrize(("answers", "is_gone"), [
    pytest.param([FIRST, (ABSENT, LATER, LATER + 5)], True, id="twice"),
    pytest.param([FIRST, (ABSENT, 50, 60), (ABSENT, LATER, LATER)], True, id="and once more"),
    pytest.param([(ABSENT, 0, 90_000)], False, id="once, and late"),
    pytest.param([FIRST, (ABSENT, LATER - 1, LATER + 60_000)], False, id="asked too early"),
    pytest.param([FIRST, (THERE, 1_000, 1_001), (ABSENT, LATER, LATER)], False, id="seen in between"),
])  # fmt: skip
def test_when_it_is_gone(answers: list[Any], is_gone: bool) -> None:
    watch = TopicWatch(RANGE)
    *before, last = [watch.answered(*each) for each in answers]
    assert before == [None] * len(before)
    assert (last is LossCause.TOPIC_DELETED) == is_gone
