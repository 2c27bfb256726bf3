"""The README's table: written between its marks, by the row."""

from pathlib import Path

from matrix.__main__ import BEGIN, END, PYARROWS, PYSPARKS, Row, columns, table

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_has_a_row_for_each_environment() -> None:
    made = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made]
    assert f"| {' | '.join(cells[0])} |" == table([Row("", "", dict.fromkeys(columns(), "yes"))]).splitlines()[0]
    assert [row[0].startswith(f"{pyspark}.") for row, pyspark in zip(cells[2::2], PYSPARKS, strict=True)] == [
        True
    ] * len(PYSPARKS)
    assert len(cells) - 2 == len(PYSPARKS) * len(PYARROWS)
