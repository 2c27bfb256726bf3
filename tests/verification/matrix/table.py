"""The table of what was tried, and its place in a text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# As pymdownx.snippets marks a section, so that a page of the site can show it.
BEGIN = "<!-- --8<-- [start:compatibility] -->"
END = "<!-- --8<-- [end:compatibility] -->"
TITLES = {"classic": "Kafka {}", "connect": "Kafka {}, Spark Connect"}


@dataclass(frozen=True, slots=True)
class Row:
    """`outcomes`: by session ("classic", "connect") and Kafka version; "yes", or what went wrong."""

    pyspark: str
    pyarrow: str
    outcomes: Mapping[tuple[str, str], str]

    def cells(self) -> Iterator[str]:
        yield self.pyspark
        yield self.pyarrow
        yield from self.outcomes.values()


def table(rows: Sequence[Row]) -> str:
    """Markdown. All rows have the same columns, in the same order."""
    titles = ["pyspark", "pyarrow", *(TITLES[session].format(kafka) for session, kafka in rows[0].outcomes)]
    lines = [titles, ["---"] * len(titles), *(list(row.cells()) for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', ' ') for cell in line)} |" for line in lines)


def with_table(text: str, made: str) -> str:
    """`text` with `made` between the marks. Raises ValueError where it has not both."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"
