"""soak.topics: what readers of the written topic must see, and what is counted when they see otherwise."""

from __future__ import annotations

import pytest

from record_digest import Record
from soak.topics import Differences, compared, origin_of, transformed


def placed(partition: int, offset: int, value: str, key: str = "k") -> tuple[int, int, Record]:
    return partition, offset, Record(key.encode(), value.encode(), (), 0)


READ = [placed(0, 0, "k:0"), placed(0, 1, "k:7"), placed(0, 4, "k:2"), placed(1, 0, "k:3"), placed(1, 9, "k:4")]
WRITTEN = [placed(0, 0, "0:0:K:0"), placed(0, 1, "1:0:K:3"), placed(0, 2, "0:4:K:2"), placed(1, 0, "1:9:K:4")]


def differences(*written: tuple[int, int, Record]) -> Differences:
    return compared(transformed(READ), written)


def test_what_the_transformation_makes() -> None:
    assert transformed(READ[:3]) == {(0, 0): (b"k", b"0:0:K:0"), (0, 4): (b"k", b"0:4:K:2")}


def test_each_once_and_in_order() -> None:
    found = differences(*WRITTEN)
    assert found.none
    assert (found.expected, found.found) == (4, 4)


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (WRITTEN[:-1], "lost"),
        ([*WRITTEN, WRITTEN[0]], "doubled"),
        # Aborted in the topic that is read; left out by the transformation; another function; another key; not told.
        ([*WRITTEN, placed(0, 9, "0:3:K:1")], "wrong"),
        ([*WRITTEN, placed(0, 9, "0:1:K:7")], "wrong"),
        ([*WRITTEN, placed(0, 9, "0:0:k:0")], "wrong"),
        ([*WRITTEN, placed(0, 9, "0:0:K:0", key="other")], "wrong"),
        ([*WRITTEN, placed(0, 9, "K:0")], "wrong"),
        ([WRITTEN[2], WRITTEN[1], WRITTEN[0], WRITTEN[3]], "out_of_order"),
    ],
)
def test_anything_else_is_counted(written: list[tuple[int, int, Record]], what: str) -> None:
    found = differences(*written)
    assert not found.none
    assert {name for name in ("lost", "doubled", "wrong", "out_of_order") if getattr(found, name)} == {what}


def test_partitions_of_the_written_topic_have_no_order_among_each_other() -> None:
    assert differences(WRITTEN[3], *WRITTEN[:3]).none


@pytest.mark.parametrize("value", [b"", b"1", b"1:", b":2:x", b"a:1:x", b"-1:2:x"])
def test_a_value_that_names_no_origin(value: bytes) -> None:
    assert origin_of(value) is None
