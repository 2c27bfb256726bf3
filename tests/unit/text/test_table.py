from __future__ import annotations

import pytest

from kafka_sink.text.source_offsets import kafka_offsets
from kafka_sink.text.table import table

HEADS = ("NAME", "STATE", "READERS SEE NOTHING OF")
ROWS = [("pykafka-4711.12", "Ongoing, prepared", "orders-0 from offset 40, orders-1"), ("b", "hangs", "")]


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    assert table(HEADS, ROWS) == [
        "NAME             STATE              READERS SEE NOTHING OF",
        "pykafka-4711.12  Ongoing, prepared  orders-0 from offset 40, orders-1",
        "b                hangs",
    ]


def test_cells_wrap_to_the_terminal_between_words() -> None:
    assert table(HEADS, ROWS, 50) == [
        "NAME             STATE            READERS SEE",
        "                                  NOTHING OF",
        "pykafka-4711.12  Ongoing,         orders-0 from",
        "                 prepared         offset 40,",
        "                                  orders-1",
        "b                hangs",
    ]


@pytest.mark.parametrize("width", range(8, 80, 3))
def test_no_line_is_wider_than_the_terminal_and_none_is_cut(width: int) -> None:
    lines = table(HEADS, ROWS, width)
    assert max(map(len, lines)) <= width
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(map("".join, (HEADS, *ROWS))).split()))


def test_words_are_broken_only_where_nothing_else_fits_and_newlines_stay() -> None:
    narrow = table(("A", "B"), [("four", "twelve-chars")], 10)
    assert narrow == ["A     B", "four  twel", "      ve-c", "      hars"]
    assert table(("A", "B"), [("x", "found\nto do: y")]) == ["A  B", "x  found", "   to do: y"]


@pytest.mark.parametrize(
    "text", ['{"t":{"0":5,"12":7},"u":{"0":1}}', "{'t': {'0': 5, '12': 7}, 'u': {'0': 1}}"]
)  # fmt: skip
def test_offsets_are_by_topic_and_partition(text: str) -> None:
    assert kafka_offsets(text) == {"t": {0: 5, 12: 7}, "u": {0: 1}}


@pytest.mark.parametrize("text", [
    "", "-", "19", "null", "{}", '{"logOffset":3}', '{"t":{"0":true}}', '{"t":{"0":"5"}}', '{"t":{"-1":5}}',
    '{"t":{"\N{SUPERSCRIPT TWO}":5}}', '{"t":{"a":5}}', "[" * 100_000, "not an offset(",
])  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert kafka_offsets(text) is None
