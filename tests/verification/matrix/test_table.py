"""The README's table: written between its marks, by the row."""

from pathlib import Path

from matrix.__main__ import BEGIN, END, THIS_PYTHON, Row, columns, table, trials

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_has_a_row_for_each_environment_that_could_be_had() -> None:
    made = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made]
    assert f"| {' | '.join(cells[0])} |" == table([Row("", "", "", dict.fromkeys(columns(), "yes"))]).splitlines()[0]
    found = [tuple(minor(cell) for cell in row[:2]) for row in cells[2:]]
    wanted = [(trial.python, trial.pyspark) for trial in trials()]
    # A Python that could not be had has no row.
    assert found == [row for row in wanted if row[0] == THIS_PYTHON or row in found]


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
