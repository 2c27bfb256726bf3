"""The README's table: written between its marks, by the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.__main__ import PYARROWS, PYSPARKS, columns, expected
from matrix.table import BEGIN, END, Row, table, with_table

README = Path(__file__).resolve().parents[3] / "README.md"


def test_a_table_has_a_column_for_each_kafka_and_session() -> None:
    outcomes = {column: expected(column[1]) for column in columns()} | {("connect", "4.3.1"): "batch: a | b"}
    head, _, row = table([Row("4.1.4", "18.1.0", outcomes)]).splitlines()
    kafkas = " | ".join(f"Kafka {version}" for version in ("2.1.1", "3.0.2", "3.9.2", "4.3.1", "4.4.0"))
    assert head == f"| pyspark | pyarrow | {kafkas} | Kafka 4.3.1, Spark Connect |"
    refused = "exactly-once is refused, reading is refused"
    assert row == f"| 4.1.4 | 18.1.0 | {refused} | yes | yes | yes | yes | batch: a   b |"


def test_it_is_written_between_the_marks_and_nothing_else_is() -> None:
    once = with_table(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert with_table(once, "new") == once
    with pytest.raises(ValueError, match="has no"):
        with_table(f"before\n{BEGIN}\n", "new")


def test_the_readme_has_a_row_for_each_environment() -> None:
    made = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made]
    assert f"| {' | '.join(cells[0])} |" == table([Row("", "", dict.fromkeys(columns(), "yes"))]).splitlines()[0]
    assert [row[0].startswith(f"{pyspark}.") for row, pyspark in zip(cells[2::2], PYSPARKS, strict=True)] == [
        True
    ] * len(PYSPARKS)
    assert len(cells) - 2 == len(PYSPARKS) * len(PYARROWS)
