"""When a topic counts as gone: two answers that miss it, of requests that are far enough apart, and none between."""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import Any

import pytest

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.topic_watch import TopicWatch, missing
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, MetadataSnapshot, TopicSnapshot

ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
RANGE = FetchRange("orders", ORDERS, 2, 100, 200, leader_epoch=7)


def snapshot(topic_id: uuid.UUID | None = ORDERS, partitions: int = 3, **errors: int) -> MetadataSnapshot:
    topic = TopicSnapshot("orders", topic_id, (1,) * partitions, (7,) * partitions)
    return MetadataSnapshot(topics=MappingProxyType({"orders": topic}), errors=MappingProxyType(errors))


THERE, ABSENT = snapshot(), snapshot(orders=3)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (THERE, None),
        (snapshot(topic_id=None), None),
        (snapshot(payments=3), None),
        (snapshot(orders=5), None),
        (MetadataSnapshot(), None),
        (ABSENT, LossCause.TOPIC_DELETED),
        (snapshot(partitions=2), LossCause.TOPIC_DELETED),
        (snapshot(topic_id=OTHER), LossCause.TOPIC_RECREATED),
    ],
)
def test_what_an_answer_misses(answer: MetadataSnapshot, cause: LossCause | None) -> None:
    assert missing(RANGE, answer) is cause


# Each answer, when its request was sent, and when it came.
FIRST = (ABSENT, 0, 10)
LATER = ABSENT_PATIENCE_MS + 10


@pytest.mark.parametrize(
    ("answers", "is_gone"),
    [
        ([FIRST, (ABSENT, LATER, LATER + 5)], True),
        ([FIRST, (ABSENT, 50, 60), (ABSENT, LATER, LATER)], True),
        ([(ABSENT, 0, 90_000)], False),
        ([FIRST, (ABSENT, LATER - 1, LATER + 60_000)], False),
        ([FIRST, (THERE, 1_000, 1_001), (ABSENT, LATER, LATER)], False),
    ],
    ids=["twice", "and once more", "once, and late", "asked too early", "seen in between"],
)
def test_when_it_is_gone(answers: list[Any], is_gone: bool) -> None:
    watch = TopicWatch(RANGE)
    *before, last = [watch.answered(*each) for each in answers]
    assert before == [None] * len(before)
    assert (last is LossCause.TOPIC_DELETED) == is_gone
