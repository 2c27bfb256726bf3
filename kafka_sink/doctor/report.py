"""The report: one verdict for each step and place, shown as a table in terminals and notebooks.

    VERDICT  STEP      WHERE                 FOUND
    FAILED   tcp       kafka-1:9092          nothing listens there (Connection refused)
                                             to fix it: ...

Pure. The texts never contain the values of secret options.
"""

from __future__ import annotations

import enum
import html
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from kafka_sink.text.quoting import quoted
from kafka_sink.text.table import table

DRIVER = "driver"
MAX_WHERE_CHARACTERS = 300
MAX_REMEDY_CHARACTERS = 4_000
# Width of the column FOUND, so that the table fits a terminal and a log.
TEXT_CHARACTERS = 88
_HEADS = ("VERDICT", "STEP", "WHERE", "FOUND")


class Status(enum.StrEnum):
    OK = "OK"
    WARNING = "WARNING"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found` is the observation, `remedy` how to fix it ("": nothing to do). Unprintable characters are escaped."""

    status: Status
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", quoted(self.found))
        # A remedy may contain a command, which must not be cut. From peers it contains names only.
        object.__setattr__(self, "remedy", quoted(self.remedy, MAX_REMEDY_CHARACTERS))


def ok(found: str) -> Finding:
    return Finding(Status.OK, found)


def warning(found: str, remedy: str) -> Finding:
    return Finding(Status.WARNING, found, remedy)


def failed(found: str, remedy: str) -> Finding:
    return Finding(Status.FAILED, found, remedy)


def skipped(found: str, remedy: str = "") -> Finding:
    return Finding(Status.SKIPPED, found, remedy)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding at one step. `where` is an address, a topic or the cluster. `seen_from` is the driver, or an
    executor's host."""

    step: str
    where: str
    finding: Finding
    seen_from: str = DRIVER

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", quoted(self.where, MAX_WHERE_CHARACTERS))
        object.__setattr__(self, "seen_from", quoted(self.seen_from, MAX_WHERE_CHARACTERS))

    @property
    def status(self) -> Status:
        return self.finding.status


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """All verdicts, in the order of the steps. Its repr is a table; notebooks show it as HTML."""

    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """True if no step failed. There may be warnings and skipped steps."""
        return not self.failures

    @property
    def failures(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.FAILED)

    @property
    def summary(self) -> str:
        """The count of verdicts for each status, in one line."""
        counts = [(status, sum(verdict.status is status for verdict in self.verdicts)) for status in Status]
        return ", ".join(f"{count} {status}" for status, count in counts if count)

    def __add__(self, other: Report) -> Report:
        return Report(self.verdicts + other.verdicts)

    def __repr__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """Return the table and the summary. `width` is the terminal's, None: unlimited."""
        heads, rows = self._cells()
        for row, verdict in zip(rows, self.verdicts, strict=True):
            if verdict.finding.remedy:
                row[-1] += f"\nto fix it: {verdict.finding.remedy}"
        return "\n".join([*table(heads, rows, width, TEXT_CHARACTERS), "", self.summary])

    def document(self) -> dict[str, Any]:
        """Return the whole report as a JSON document, for scripts."""
        return {
            "ok": self.ok,
            "counts": {status.value: sum(each.status is status for each in self.verdicts) for status in Status},
            "verdicts": [
                {
                    "status": each.status.value,
                    "step": each.step,
                    "where": each.where,
                    "seen_from": each.seen_from,
                    "found": each.finding.found,
                    "remedy": each.finding.remedy,
                }
                for each in self.verdicts
            ],
        }

    def _repr_html_(self) -> str:
        heads, rows = self._cells()
        head = "".join(f"<th>{head}</th>" for head in (*heads, "TO FIX IT"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (*row, verdict.finding.remedy)) + "</tr>"
            for row, verdict in zip(rows, self.verdicts, strict=True)
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self.summary)}</p>"

    def _cells(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the heads and rows of the table. The column FROM is there only if executors took steps too."""
        several = any(verdict.seen_from != DRIVER for verdict in self.verdicts)
        heads = (_HEADS[0], "FROM", *_HEADS[1:]) if several else _HEADS
        rows = []
        for each in self.verdicts:
            seen_from = (each.seen_from,) if several else ()
            rows.append([each.status.value, *seen_from, each.step, each.where, each.finding.found])
        return heads, rows


# --- from an executor to the driver -----------------------------------------------------------------------------------


def to_json(verdicts: Iterable[Verdict]) -> str:
    return json.dumps([asdict(verdict) for verdict in verdicts])


def from_json(text: str, *, seen_from: str) -> tuple[Verdict, ...]:
    """Return the verdicts of another process, with `seen_from` set to its place."""
    return tuple(
        replace(
            Verdict(
                each["step"],
                each["where"],
                Finding(Status(each["finding"]["status"]), each["finding"]["found"], each["finding"]["remedy"]),
            ),
            seen_from=seen_from,
        )
        for each in json.loads(text)
    )
