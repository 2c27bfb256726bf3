"""Write docs/options.md from the table of options of a write: `python tools/options_page.py > docs/options.md`, or
docs/reading-options.md from that of a read: `python tools/options_page.py reading > docs/reading-options.md`.

All facts come from the tables. A test compares the committed pages with the output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum

from kafka_sink.options.bounds import EARLIEST, LATEST, AtOffset
from kafka_sink.options.kinds import MIB, REQUIRED, Option, OptionTable, Section
from kafka_sink.options.reading import READING
from kafka_sink.options.table import WRITING

BOUNDS = {EARLIEST: "earliest", LATEST: "latest"}

_INTRODUCTION = """\
Generated from `kafka_sink/options/table.py` by `make docs`. [Rows](rows.md) explains the columns,
[Guarantees](guarantees.md) what the sink guarantees. Reads have [options of their own](reading-options.md).

Options of the Kafka client have Kafka's names with Spark's prefix `kafka.`. Options of the connector are camelCase.
Names are case-insensitive. If an option is not set, the sink uses `spark.pykafka.<option>` of Spark's conf
(`--conf spark.pykafka.kafka.linger.ms=5`), else the default.

A stream uses the conf as it is when the query starts. An unknown name, also in the conf, is an error that suggests the
nearest known name. The sink checks options while Spark plans the write. It checks the conf, missing options, and
contradictions with the conf or with defaults when a task begins, before its first row."""


_OF_READS = """\
Generated from `kafka_sink/options/reading.py` by `make docs`. [Reading](reading.md) explains what a read covers, and
what happens when records are missing.

Names are case-insensitive. An unknown name is an error that suggests the nearest known name. Reads do not look at
Spark's conf, because Spark gives it to no process that plans a read. The source checks options while Spark plans the
read."""


def page() -> str:
    """Return the whole page of a write's options in Markdown."""
    parts = ["# Options", _INTRODUCTION]
    for section in WRITING.sections:
        parts += [f"## {section.title}", section.text, table(section.options)]
    return _joined([*parts, *_not_taken(WRITING, "sink")])


def reading_page() -> str:
    """Return the whole page of a read's options in Markdown."""
    parts = ["# Options of reads", _OF_READS]
    for section in READING.sections:
        parts += [f"## {section.title}", section.text, _of_reads(section)]
    return _joined([*parts, *_not_taken(READING, "source")])


def _of_reads(section: Section) -> str:
    """Return the table of a section, or a link if a write has the same section."""
    if not set(section.options) <= set(WRITING.options):
        return table(section.options)
    names = ", ".join(f"`{option.name}`" for option in section.options)
    anchor = section.title.lower().replace(" ", "-")
    return f"As for writes, with the same defaults: [{section.title}](options.md#{anchor}). These are {names}."


def _not_taken(options: OptionTable, what: str) -> list[str]:
    by_advice: dict[str, list[str]] = {}
    prefixes = {f"{prefix}*": instead for prefix, instead in options.refused_prefixes.items()}
    for name, instead in {**options.refused, **prefixes}.items():
        by_advice.setdefault(instead, []).append(f"`{name}`")
    refused = ((", ".join(names), instead) for instead, names in by_advice.items())
    not_yet = ", ".join(f"`{prefix}*`" for prefix in options.not_yet_prefixes)
    ignored = ", ".join(f"`{name}`" for name in options.sparks)
    return [
        "## Refused",
        _two_columns("Option", "What to do", refused),
        "## Not in this version yet",
        f"Refused until a later version supports them: {not_yet}.",
        "## Spark's own",
        f"Ignored, because Spark passes them to every {what}: {ignored}.",
    ]


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def table(options: Iterable[Option]) -> str:
    rows = (
        f"| `{option.name}` | {_default(option)} | {_cell(option.kind.values)} | {_cell(meaning(option))} |"
        for option in options
    )
    return "\n".join(("| Option | Default | Values | |", "|---|---|---|---|", *rows))


def _two_columns(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join((f"| {left} | {right} |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows)))


def facts(option: Option) -> str:
    """Return the default and the values as a table with one row."""
    row = f"| {_default(option) or 'none'} | {_cell(option.kind.values)} |"
    return "\n".join(("| Default | Values |", "|---|---|", row))


def meaning(option: Option) -> str:
    return f"{option.doc}. No message shows the value" if option.redact else option.doc


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "required"
    if option.default is None or option.default == "":
        return ""
    if isinstance(option.default, Enum):
        return f"`{option.default.name.lower()}`"
    if isinstance(option.default, AtOffset):
        return f"`{BOUNDS[option.default.offset]}`"
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    if isinstance(option.default, int) and option.default >= MIB and option.default % MIB == 0:
        return f"`{option.default}` ({option.default // MIB} MiB)"
    return f"`{option.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    print(reading_page() if sys.argv[1:] == ["reading"] else page(), end="")
