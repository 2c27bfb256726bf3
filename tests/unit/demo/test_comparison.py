from __future__ import annotations

from dataclasses import replace

import pytest

from comparison import Comparison
from record_digest import Record

A, B, C, D = (Record(key, b"value of " + key, (("h", None),), 1) for key in (b"a", b"b", b"c", b"d"))


def compared(seen: list[tuple[int, Record]]) -> Comparison:
    """Two sources, A B C and D, against `seen` as (partition, record)."""
    comparison = Comparison()
    comparison.expect([A, B, C])
    comparison.expect([D])
    for offset, (partition, record) in enumerate(seen):
        comparison.see(partition, offset, record)
    return comparison


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([(0, A), (0, B), (0, C), (0, D)], id="as written"),
        pytest.param([(0, D), (0, A), (0, B), (0, C)], id="sources in another order"),
        pytest.param([(0, A), (0, D), (0, B), (0, C)], id="sources interleaved"),
        pytest.param([(1, C), (0, A), (0, B), (2, D)], id="partitions read in another order"),
    ],
)
def test_no_difference(seen: list[tuple[int, Record]]) -> None:
    comparison = compared(seen)
    assert comparison.differences() == []
    assert str(comparison.expected_checksum) == str(comparison.seen_checksum)


@pytest.mark.parametrize(
    ("seen", "differences"),
    [
        pytest.param([], ["4 missing from the topic", "checksums differ"], id="nothing arrived"),
        pytest.param([(0, A), (0, B), (0, C)], ["1 missing from the topic", "checksums differ"], id="lost"),
        pytest.param(
            [(0, A), (0, B), (0, C), (0, D), (0, D)],
            ["1 in the topic more than once", "checksums differ"],
            id="doubled",
        ),
        pytest.param([(0, B), (0, A), (0, C), (0, D)], ["1 out of order"], id="swapped in a partition"),
        pytest.param(
            [(0, A), (0, B), (0, C), (0, replace(D, value=b""))],
            ["1 missing from the topic", "1 in the topic and not in the source", "checksums differ"],
            id="changed",
        ),
        pytest.param(
            [(0, A), (0, A), (0, B), (0, C)],
            ["1 missing from the topic", "1 in the topic more than once", "checksums differ"],
            id="lost and doubled, so that the count is right",
        ),
        pytest.param(
            [(0, A), (0, B), (0, C), (0, D), (1, replace(D, value=b"", key=b"a"))],
            ["1 in the topic and not in the source", "1 keys in more than one partition", "checksums differ"],
            id="a key in two partitions",
        ),
    ],
)
def test_a_difference_is_found(seen: list[tuple[int, Record]], differences: list[str]) -> None:
    assert compared(seen).differences() == differences


def test_rows_that_are_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="row 1 of source 0"):
        Comparison().expect([A, A])
