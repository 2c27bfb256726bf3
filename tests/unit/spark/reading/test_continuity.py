"""Whether a log goes on at a stream's position, as a table."""

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.continuity import Break, LogEnd, breaks, of_earlier_leaders, with_newer_leaders
from kafka_sink.spark.reading.positions import checkpointed, positions_of

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
DELETED, RECREATED, TRUNCATED = LossCause.TOPIC_DELETED, LossCause.TOPIC_RECREATED, LossCause.TRUNCATED


@pytest.mark.parametrize(("before", "now", "epoch_end", "found"), [
    # Read up to 10. What was known before, what is there now, where the known epoch ends; cause, where it goes on.
    pytest.param((OLD, 20, 3), (OLD, 20, 3), None, None, id="nothing new"),
    pytest.param((OLD, 10, 3), (OLD, 10, 3), None, None, id="read to its end"),
    pytest.param((OLD, 10, 3), (OLD, 30, 3), None, None, id="grown"),
    pytest.param((OLD, 10, 3), None, None, (DELETED, None), id="deleted"),
    pytest.param(None, None, None, (DELETED, None), id="deleted, seen by a new process"),
    pytest.param((OLD, 10, 3), (NEW, 30, 0), None, (RECREATED, 0), id="made again"),
    pytest.param((OLD, 10, 3), (NEW, 0, 0), None, (RECREATED, 0), id="made again, and empty"),
    pytest.param((None, 10, 3), (None, 30, 2), None, (RECREATED, 0), id="made again, without ids"),
    pytest.param((None, 10, 3), (NEW, 30, 3), None, None, id="brokers that have ids by now"),
    pytest.param((None, 10, -1), (None, 30, -1), None, None, id="without ids and epochs"),
    pytest.param((None, 10, 3), (None, 30, -1), None, None, id="a broker without epochs"),
    pytest.param((OLD, 10, 3), (OLD, 9, 3), None, (TRUNCATED, 9), id="ends before"),
    pytest.param(None, (OLD, 9, 3), None, (TRUNCATED, 9), id="ends before, seen by a new process"),
    pytest.param(None, (OLD, 10, 3), None, None, id="grown again, not seen by a new process"),
    pytest.param((OLD, 10, 3), (OLD, 30, 5), 10, None, id="a new leader with all of it"),
    pytest.param((OLD, 10, 3), (OLD, 30, 5), 25, None, id="a new leader with more of it"),
    pytest.param((OLD, 20, 3), (OLD, 30, 5), 12, None, id="a new leader without what is not read yet"),
    pytest.param((OLD, 10, 3), (OLD, 30, 5), 9, (TRUNCATED, 9), id="truncated, and grown again"),
    pytest.param((OLD, 10, 3), (OLD, 8, 5), 6, (TRUNCATED, 6), id="truncated, and grown a little"),
    pytest.param((OLD, 10, 3), (OLD, 30, 5), -1, (TRUNCATED, 10), id="a new leader without the epoch"),
    pytest.param((OLD, 10, 3), (OLD, 7, 5), -1, (TRUNCATED, 7), id="the same, and shorter"),
    pytest.param((OLD, 10, 3), (OLD, 30, 5), None, None, id="a new leader that cannot tell"),
    pytest.param((OLD, 10, 3), (OLD, 0, 5), 0, (TRUNCATED, 0), id="truncated to nothing"),
])  # fmt: skip
def test_how_a_log_goes_on(before: Any, now: Any, epoch_end: int | None, found: Any) -> None:
    known = {} if before is None else {P: LogEnd(*before)}
    there = {} if now is None else {P: LogEnd(*now)}
    assert breaks({P: 10}, known, there, {P: epoch_end}) == ({} if found is None else {P: Break(10, *found)})


def test_only_what_the_stream_has_read_can_break() -> None:
    assert breaks({P: 10}, {Q: LogEnd(OLD, 5, 0)}, {P: LogEnd(OLD, 10, 0)}, {}) == {}
    assert breaks({P: 10, Q: 5}, {}, {P: LogEnd(OLD, 10, 0)}, {}) == {Q: Break(5, DELETED, None)}


@pytest.mark.parametrize(("before", "now", "is_newer", "is_earlier"), [
    ((OLD, 3), (OLD, 3), False, False), ((OLD, 3), (OLD, 4), True, False), ((OLD, 0), (OLD, 1), True, False),
    ((OLD, 3), (OLD, 2), False, True), ((OLD, 3), (OLD, 0), False, True), ((OLD, 3), (OLD, -1), False, False),
    ((OLD, -1), (OLD, 4), False, False), ((OLD, 3), None, False, False), (None, (OLD, 4), False, False),
    # Another topic has epochs of its own; without ids it may be another.
    ((OLD, 3), (NEW, 2), False, False), ((OLD, 3), (NEW, 4), False, False), ((OLD, 3), (None, 4), True, False),
    ((None, 3), (None, 2), False, False), ((None, 3), (None, 4), True, False),
])  # fmt: skip
def test_whose_log_is_compared_and_whose_answer_never_counts(
    before: Any, now: Any, is_newer: bool, is_earlier: bool
) -> None:
    known, there = ({P: LogEnd(of[0], 10, of[1])} if of else {} for of in (before, now))
    assert list(with_newer_leaders({P: 10}, known, there)) == [P] * is_newer
    assert of_earlier_leaders(known, there) == ({P} if is_earlier else set())


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "ä.b-c_d"]), st.integers(0, 200))


def test_they_are_those_of_sparks_source() -> None:
    positions = {TopicPartition("orders", 1): 5, TopicPartition("orders", 0): 23, TopicPartition("a", 0): 0}
    assert json.dumps(checkpointed(positions)) == '{"a": {"0": 0}, "orders": {"0": 23, "1": 5}}'
    assert positions_of({"orders": {"0": 23, "1": 5}, "a": {"0": 0}}) == positions


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=30))
def test_they_come_back_from_a_checkpoint(positions: dict[TopicPartition, int]) -> None:
    assert positions_of(json.loads(json.dumps(checkpointed(positions)))) == positions
