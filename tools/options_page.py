"""Write docs/options.md from the table of options: `python tools/options_page.py > docs/options.md`.

All facts come from the table. A test compares the committed page with the output.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.options.kinds import MIB
from kafka_sink.options.option import REQUIRED, Option
from kafka_sink.options.table import (
    NOT_YET_PREFIXES,
    REFUSED,
    REFUSED_PREFIXES,
    SECTIONS,
    SPARK_OPTIONS,
)

_INTRODUCTION = """\
Generated from `kafka_sink/options/table.py` by `make docs`. [Rows](rows.md) explains the columns,
[Guarantees](guarantees.md) what the sink guarantees.

Options of the Kafka client have Kafka's names with Spark's prefix `kafka.`. Options of the connector are camelCase.
Names are case-insensitive. If an option is not set, the sink uses `spark.pykafka.<option>` of Spark's conf
(`--conf spark.pykafka.kafka.linger.ms=5`), else the default.

A stream uses the conf as it is when the query starts. An unknown name, also in the conf, is an error that suggests the
nearest known name. The sink checks options while Spark plans the write. It checks the conf, missing options, and
contradictions with the conf or with defaults when a task begins, before its first row."""


def page() -> str:
    """Return the whole page in Markdown."""
    parts = ["# Options", _INTRODUCTION]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.text, table(section.options)]
    refused = [*REFUSED.items(), *((f"{prefix}*", instead) for prefix, instead in REFUSED_PREFIXES.items())]
    parts += ["## Refused", _two_columns("Option", "What to do", refused)]
    not_yet = ", ".join(f"`{prefix}*`" for prefix in NOT_YET_PREFIXES)
    parts += ["## Not in this version yet", f"Refused until a later version supports them: {not_yet}."]
    ignored = ", ".join(f"`{name}`" for name in SPARK_OPTIONS)
    parts += ["## Spark's own", f"Ignored, because Spark passes them to every sink: {ignored}."]
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
    return f"{option.doc}. No message shows the value" if option.redact else option.doc


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
