"""The report: one verdict for each step and place, shown as a table in terminals and notebooks; and the steps.

    VERDICT  STEP      WHERE                 FOUND
    FAILED   tcp       kafka-1:9092          nothing listens there (Connection refused)
                                             to fix it: ...

Pure. The texts never contain the values of secret options.
"""

from __future__ import annotations

import enum
import html
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from kafka_sink.errors.quoting import quoted

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

    def document(self) -> dict[str, str]:
        return {
            "status": self.status.value,
            "step": self.step,
            "where": self.where,
            "seen_from": self.seen_from,
            "found": self.finding.found,
            "remedy": self.finding.remedy,
        }


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
    def counts(self) -> dict[str, int]:
        """The count of verdicts for each status."""
        return {status.value: sum(verdict.status is status for verdict in self.verdicts) for status in Status}

    @property
    def summary(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)

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
        return {"ok": self.ok, "counts": self.counts, "verdicts": [each.document() for each in self.verdicts]}

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


def to_json(verdicts: Iterable[Verdict]) -> str:
    """Return the verdicts for another process, as `from_json` reads them."""
    return json.dumps([asdict(verdict) for verdict in verdicts])


def from_json(text: str, *, seen_from: str) -> tuple[Verdict, ...]:
    """Return the verdicts of another process, with `seen_from` set to its place."""
    return tuple(
        Verdict(
            each["step"],
            each["where"],
            Finding(Status(each["finding"]["status"]), each["finding"]["found"], each["finding"]["remedy"]),
            seen_from,
        )
        for each in json.loads(text)
    )


# --- steps ------------------------------------------------------------------------------------------------------------

# The steps of a connection to one host, up to a first request. ApiVersions comes before SASL (KIP-43).
HOST_STEPS: tuple[str, ...] = ("dns", "tcp", "tls", "api versions", "sasl")

# Each step, in order, with the earlier steps that it needs. Steps of a host need earlier steps at the same host. Steps
# of the cluster need each other, and one bootstrap server that answers.
STEPS: Mapping[str, tuple[str, ...]] = {
    "options": (),
    "columns": (),
    **{name: HOST_STEPS[max(0, place - 1) : place] for place, name in enumerate(HOST_STEPS)},
    "cluster": (),
    "service": ("cluster",),
    # Only where a broker throttles.
    "throttle": ("cluster",),
    "at-least-once": ("cluster",),
    "exactly-once": ("cluster",),
    "reading": ("cluster",),
    "topic": ("cluster",),
    "write acl": ("topic",),
    "leaders": ("topic",),
    "replication": ("topic",),
    "settings": ("topic",),
    "in-sync replicas": ("leaders", "settings"),
    "unclean election": ("settings",),
    "message size": ("settings",),
    "timestamps": ("settings",),
    "acks": (),
    # Only with badRows=deadLetter.
    "dead letter topic": ("cluster",),
    "producer id": ("write acl", "at-least-once"),
    # Reads, and exactly-once writes. A read has a group with groupId.
    "read acl": ("topic",),
    "group acl": ("exactly-once",),
    "commit topic": ("exactly-once",),
    "transactional id acl": ("exactly-once",),
    "transaction timeout": ("exactly-once",),
    "retention of state": ("exactly-once",),
    "topics of state": ("exactly-once",),
}


def because_of(step: str, verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the verdict that blocks `step`: a step that it needs failed or was skipped. None: nothing blocks it.

    The earliest one, so that all steps name the same cause, and one cause gives one failure.
    """
    needs = _all_needs(step)
    blocking = (Status.FAILED, Status.SKIPPED)
    return next((each for each in verdicts if each.step in needs and each.status in blocking), None)


def _all_needs(step: str) -> frozenset[str]:
    """Return the needs of `step`, and the needs of these."""
    return frozenset(STEPS[step]).union(*map(_all_needs, STEPS[step]))


# --- tables as text ---------------------------------------------------------------------------------------------------

GAP = "  "


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, widest: int | None = None
) -> list[str]:
    """Return the lines of the table. `width`: of the terminal; None: any width. `widest`: the widest text of a column,
    if its words allow that. A newline in a cell starts a new line. All other characters must be printable.

    Columns of several words are narrowed first. A word is broken only if nothing else fits.
    """
    cells = [[cell.split("\n") for cell in row] for row in (heads, *rows)]
    widths = _widths(cells, width, widest)
    lines = []
    for row in cells:
        wrapped = [_wrapped(paragraphs, wide) for paragraphs, wide in zip(row, widths, strict=True)]
        for line in zip_longest(*wrapped, fillvalue=""):
            lines.append(GAP.join(text.ljust(wide) for text, wide in zip(line, widths, strict=True)).rstrip())
    return lines


def _wrapped(paragraphs: Sequence[str], wide: int) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, wide, break_on_hyphens=False) or [""]]


def _widths(cells: Sequence[Sequence[Sequence[str]]], width: int | None, widest: int | None) -> list[int]:
    columns = [[text for paragraphs in column for text in paragraphs] for column in zip(*cells, strict=True)]
    natural = [max(map(len, column), default=1) or 1 for column in columns]
    words = [max((len(word) for text in column for word in text.split()), default=1) for column in columns]
    if widest is not None:
        natural = [max(word, min(wide, widest)) for wide, word in zip(natural, words, strict=True)]
    if width is None:
        return natural
    room = width - len(GAP) * (len(columns) - 1)
    return _capped(natural, words, room) or _capped(natural, [1] * len(columns), room) or natural


def _capped(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return the widths with the widest columns cut to one width, as little as `room` requires, and no column below its
    `least`. Return None if that does not fit."""
    for cap in range(max(natural), 0, -1):
        capped = [max(low, min(wide, cap)) for wide, low in zip(natural, least, strict=True)]
        if sum(capped) <= room:
            return capped
    return None
