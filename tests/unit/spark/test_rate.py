from __future__ import annotations

import logging

import pytest

from kafka_sink.errors import InvalidOption
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.spark.commit_message import Pace, TaskCommitMessage
from kafka_sink.spark.rate import pace, rate_limit, tell_too_fast


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "localhost:1", "topic": "t", **options})


def test_a_task_takes_its_part_of_a_rate_if_there_is_one() -> None:
    before_ms = monotonic_ms()
    limit = rate_limit(config(maxRowsPerSecond="1000", maxBytesPerSecond="1000000", rateTasks="16"))
    after_ms = monotonic_ms()
    assert limit is not None
    assert before_ms + 500 <= limit.take(1, 62_500, after_ms) <= after_ms + 1_000
    assert limit.rows_at_once(1_000_000, 0) == 6
    assert rate_limit(config()) is None
    assert rate_limit(config(rateTasks="4")) is None


@pytest.mark.parametrize("option", ["maxRowsPerSecond", "maxBytesPerSecond"])
def test_a_rate_needs_to_be_told_by_how_many_tasks_it_is_divided(option: str) -> None:
    with pytest.raises(InvalidOption, match="rateTasks with it"):
        config(**{option: "10"})


@pytest.mark.parametrize(
    ("times", "most"),
    [([(0, 10), (10, 20), (10, 30)], 2), ([(0, 10), (9, 20), (5, 12)], 3), ([(0, 100), (10, 20), (30, 40)], 2)],
)
def test_a_commit_says_that_more_tasks_wrote_at_once_than_were_told(
    times: list[tuple[int, int]], most: int, caplog: pytest.LogCaptureFixture
) -> None:
    for told in (most, most - 1):
        receipts = [TaskCommitMessage(slot, 0, 1, (), pace=Pace(told, *at)) for slot, at in enumerate(times)]
        with caplog.at_level(logging.WARNING):
            tell_too_fast(receipts)
        assert len(caplog.messages) == (told < most)
    assert caplog.messages[0].startswith(f"{most} tasks of this write wrote at once, and rateTasks is {most - 1}")


def test_only_a_write_that_was_to_be_slow_has_a_pace(caplog: pytest.LogCaptureFixture) -> None:
    assert pace(config(rateTasks="1"), 5) is None
    slow = pace(config(maxBytesPerSecond="9", rateTasks="3"), 5)
    assert slow is not None
    assert (slow.rate_tasks, slow.began_ms) == (3, 5)
    tell_too_fast([TaskCommitMessage(slot, 0, 1, ()) for slot in range(9)])
    assert not caplog.messages
