"""docs/options.md, from the table of options: `python tools/options_page.py > docs/options.md`.

Nothing is said here that the table does not say; a test compares the page with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.options.kinds import MIB
from kafka_sink.options.table import (
    NOT_YET_PREFIXES,
    REFUSED,
    REFUSED_PREFIXES,
    REQUIRED,
    SECTIONS,
    SPARK_OPTIONS,
    Option,
)

_INTRODUCTION = """\
Generated from `kafka_sink/options/table.py` by `make docs`. Columns are in [Rows](rows.md), what is promised is in
[Guarantees](guarantees.md).

Options of the Kafka client have Kafka's names behind Spark's `kafka.` prefix, those of the connector are camelCase.
Case does not matter. What is not set as an option is taken from Spark's conf, where it is called
`spark.pykafka.<option>` (`--conf spark.pykafka.kafka.linger.ms=5`), and else is the default.

A stream takes the conf as it is when the query starts. A name that is not below is an error with the nearest one that
is, in the conf too. What options say is checked while the write is planned; what the conf says, what is missing in
both, and contradictions with either or with a default, when a task begins, before its first row."""


def page() -> str:
    """The whole page, Markdown."""
    parts = ["# Options", _INTRODUCTION]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.text, table(section.options)]
    refused = [*REFUSED.items(), *((f"{prefix}*", instead) for prefix, instead in REFUSED_PREFIXES.items())]
    parts += ["## Refused", _two_columns("Option", "What to do", refused)]
    not_yet = ", ".join(f"`{prefix}*`" for prefix in NOT_YET_PREFIXES)
    parts += ["## Not in this version yet", f"Refused until then: {not_yet}."]
    ignored = ", ".join(f"`{name}`" for name in SPARK_OPTIONS)
    parts += ["## Spark's own", f"Passed over, because Spark hands them to every sink: {ignored}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(options: Iterable[Option]) -> str:
    rows = (
        f"| `{option.name}` | {_default(option)} | {_cell(option.kind.values)} | {_cell(_meaning(option))} |"
        for option in options
    )
    return "\n".join(("| Option | Default | Values | |", "|---|---|---|---|", *rows))


def _two_columns(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join((f"| {left} | {right} |", "|---|---|", *(f"| `{name}` | {_cell(text)} |" for name, text in rows)))


def _meaning(option: Option) -> str:
    return f"{option.doc}. No message shows its value" if option.redact else option.doc


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "required"
    if option.default is None or option.default == "":
        return ""
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    if isinstance(option.default, int) and option.default >= MIB and option.default % MIB == 0:
        return f"`{option.default}` ({option.default // MIB} MiB)"
    return f"`{option.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")
