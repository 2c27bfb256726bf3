"""The offsets that a read asks for, and those that its log has."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import OffsetNotWritten, OffsetsLost, ReadError
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.clip import Offsets, clipped

PARTITION = TopicPartition("orders", 3)
THERE = Offsets(10, 20)


def clip(first: int, end: int, *, fail: bool) -> Offsets:
    return clipped(PARTITION, Offsets(first, end), THERE, fail_on_data_loss=fail)


@pytest.mark.parametrize(
    ("asked", "lost", "left"), [((5, 15), (5, 10), (10, 15)), ((0, 20), (0, 10), (10, 20)), ((3, 7), (3, 7), (10, 10))]
)
def test_deleted_offsets_are_lost_and_told_which(
    asked: tuple[int, int], lost: tuple[int, int], left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetsLost, match=rf"offsets {lost[0]} to {lost[1] - 1} of orders-3.*retention") as failure:
        clip(*asked, fail=True)
    assert (failure.value.first, failure.value.end) == lost
    with caplog.at_level(logging.WARNING):
        assert clip(*asked, fail=False) == Offsets(*left)
    (told,) = caplog.messages
    assert told.startswith(f"orders-3 has the offsets 10 to 19, and the read asks for {asked[0]} to {asked[1] - 1}")


@pytest.mark.parametrize(
    ("asked", "option", "left"),
    [
        ((10, 21), "endingOffsets names offset 21", (10, 20)),
        ((21, 25), "startingOffsets names offset 21", (20, 20)),
        ((25, 20), "startingOffsets names offset 25", (20, 20)),
    ],
)
def test_offsets_that_are_not_written_are_told_with_where_the_log_ends(
    asked: tuple[int, int], option: str, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetNotWritten, match=rf"{option} of orders-3, which ends at 20"):
        clip(*asked, fail=True)
    with caplog.at_level(logging.WARNING):
        assert clip(*asked, fail=False) == Offsets(*left)
    assert len(caplog.messages) == 1


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_it_reads_what_is_asked_and_there_or_fails_for_what_is_not(a: int, b: int, c: int, d: int) -> None:
    (first, end), (earliest, latest) = sorted((a, b)), sorted((c, d))
    there, asked = set(range(earliest, latest)), set(range(first, end))
    log = Offsets(earliest, latest)
    found = clipped(PARTITION, Offsets(first, end), log, fail_on_data_loss=False)
    assert set(range(found.first, found.end)) == asked & there
    assert earliest <= found.first <= found.end <= latest
    try:
        strict = clipped(PARTITION, Offsets(first, end), log, fail_on_data_loss=True)
    except ReadError:
        assert asked - there or first > latest
    else:
        assert strict == found
        assert asked <= there
