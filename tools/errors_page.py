"""Write docs/errors.md from the tree of errors: `python tools/errors_page.py > docs/errors.md`.

Each error has placeholders for its facts, and is shown in the three parts of its message. All facts come from the
messages. A test compares the committed page with the output.
"""

from __future__ import annotations

import inspect
import re

from kafka_sink import errors
from kafka_sink.cli.explain import by_section, example, raised
from kafka_sink.errors import DataState, KafkaSinkError, WriteKind
from kafka_sink.errors.base import words
from kafka_sink.errors.reading import LossCause

_INTRODUCTION = """\
Generated from `kafka_sink/errors/` by `make docs`. All errors are classes of `kafka_sink.errors`, in one tree. Errors
of the local broker are classes of `kafka_sink.broker.errors`.

`kafka_sink.export` and queries of `kafka_sink.to_kafka` raise these errors. For other exceptions of Spark, Spark
Connect or Py4J, and for a failed query, `kafka_sink.error_of(failure)` returns the error, or None. In Spark's stack
trace, look for the line that starts with `kafka_sink.errors.`. The next line has the error's fields in JSON. The fields
are the facts that this page shows as `<name>`. No error shows a payload or a secret. A line behind the fields
names the command that explains the error: `see: pykafka explain TopicNotFound`."""

_WHICH_ROW = """\
A message begins with the row: `row 17 (from 0) of Spark partition 3 for topic 'orders', with a key of 9 bytes: ...`.
The number counts the rows that the task received, after interceptors. No message contains the key itself.

To see the row, if the DataFrame gives the same rows in the same order again: `df.withColumn("at",
F.monotonically_increasing_id()).where("at = 3 * 8589934592 + 17")`. With `badRows=deadLetter` the row is in the dead
letter topic. If only the leader finds that a row is too large, the message names its partition and timestamp."""
# Texts that many messages share are shown once, above the tables.
OFTEN = (
    DataState.NOTHING_SENT,
    DataState.SENT_AGAIN,
    DataState.NOTHING_VISIBLE,
    DataState.OUTCOME_UNKNOWN,
    DataState.RUN_STOPPED,
    DataState.NOT_RECORDED,
)
_KINDS = {
    WriteKind.STREAM: "a stream",
    WriteKind.VERSION: "a batch write with `txnAppId`",
    WriteKind.BATCH: "a batch write without",
}


def page() -> str:
    """Return the whole page in Markdown."""
    parts = ["# Errors", _INTRODUCTION, "## Is the data safe?", _what_is_often_said()]
    for title, classes in by_section():
        parts += [f"## {title}", _table(classes)]
        if issubclass(classes[0], errors.BadRow):
            parts.append(_WHICH_ROW)
        if issubclass(classes[0], errors.ExactlyOnceError):
            parts += [_of_versions(), _of_refusals()]
        if errors.LogBroken in classes:
            parts.append(_of_losses())
    return "\n\n".join(parts) + "\n"


def page_of(cls: type[KafkaSinkError], section: str) -> str:
    """Return the page of one error, which has all that this page says about it."""
    error = example(cls)
    told = error.explanation()
    happened, data, advice = _cells(error)
    if told.data in OFTEN:
        data = "\n\n".join(filter(None, (plain(told.known), _said(told.data))))
    fields = ", ".join(f"`{name}`" for name in inspect.signature(cls).parameters)
    parts = [
        f"# {cls.__name__}",
        f"{_in_words(cls.__name__)}: an error of [{section.lower()}](../errors.md#{_anchor(section)}), "
        f"`{cls.__module__}.{cls.__name__}`.",
        *("## What happened", happened, "## Is the data safe?", data, "## What to do", advice),
        *(("## Fields", f"{fields}.") if fields else ()),
    ]
    return "\n\n".join(parts) + "\n"


def _in_words(name: str) -> str:
    """Return `Topic not found` for TopicNotFound: readers may look for that, too."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).capitalize()


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


# --- what it means for the data ---------------------------------------------------------------------------------------


def _what_is_often_said() -> str:
    lines = [
        "Most messages have one of six texts about the data. The tables refer to them.",
        *(f"### {state.value}\n\n{_said(state)}" for state in OFTEN),
        "Where this page says *sent again*, an exactly-once write says *nothing visible*, or *outcome unknown* while "
        "it commits.",
    ]
    return "\n\n".join(lines)


def _said(state: DataState) -> str:
    """Return the text, by the kind of write if the texts differ."""
    by_kind = {kind: _words(state, kind) for kind in _KINDS}
    if state is DataState.SENT_AGAIN or len(set(by_kind.values())) == 1:
        return plain(_words(state, None))
    rows = (f"| {_KINDS[kind]} | {text} |" for kind, text in by_kind.items())
    return "\n".join(("| Of | A message says |", "|---|---|", *rows))


def _words(state: DataState, kind: WriteKind | None) -> str:
    said = words(state, kind, "<command>")
    return plain(f"{said.data} {said.rerun}")


# --- the tables -------------------------------------------------------------------------------------------------------


def _table(classes: list[type[KafkaSinkError]]) -> str:
    rows = (f"| `{cls.__name__}` | {' | '.join(_cells(example(cls)))} |" for cls in classes)
    return "\n".join(("| Error | What happened | Is the data safe? | What to do |", "|---|---|---|---|", *rows))


def _cells(error: KafkaSinkError) -> tuple[str, str, str]:
    told = error.explanation()
    happened, data, advice = map(plain, error.parts())
    if told.data in OFTEN:
        title = told.data.value
        data = " ".join(filter(None, (plain(told.known), f"[{title}](#{_anchor(title)}).")))
        # The shared text already says how to run the write again.
        advice = plain(told.advice) or advice
    return happened, data or "No data of yours is in it.", advice


def _of_versions() -> str:
    """Return the table of messages that differ between a stream and a write with txnAppId."""
    rows = []
    for cls in raised(errors.ExactlyOnceError):
        of_stream, of_version = (_told(cls, kind) for kind in (WriteKind.STREAM, WriteKind.VERSION))
        if of_version != of_stream:
            rows.append(f"| `{cls.__name__}` | {' | '.join(of_version)} |")
    text = "For a batch write with `txnAppId` and `txnVersion` these messages name its version:"
    return "\n".join((text, "", "| Error | What happened | What to do |", "|---|---|---|", *rows))


def _told(cls: type[KafkaSinkError], kind: WriteKind) -> tuple[str, str]:
    happened, _, advice = _cells(example(cls).in_transaction(committing=True, write_kind=kind))
    return happened, advice


def _of_refusals() -> str:
    text = "The advice of `TransactionRefused`, by the broker's answer:"
    rows = (f"| `{answer}` | {plain(errors.advice_on_refusal(answer))} |" for answer in errors.REFUSALS)
    return "\n".join((text, "", "| Answer | What to do |", "|---|---|", *rows))


def _of_losses() -> str:
    """The advice of errors that have a cause. A record that was deleted is not a log that broke, and so on."""
    text = "The advice of `OffsetsLost` and `LogBroken`, by the cause:"
    rows = []
    for cls, never in ((errors.OffsetsLost, LossCause.RESTORED), (errors.LogBroken, LossCause.DELETED)):
        for cause in LossCause:
            if cause is not never:
                error = example(cls)
                error.cause = cause
                rows.append(f"| `{cls.__name__}` | {cause.replace('_', ' ')} | {plain(error.explanation().advice)} |")
    return "\n".join((text, "", "| Error | Cause | What to do |", "|---|---|---|", *rows))


def plain(text: str) -> str:
    """Return the text for a cell of a table: Markdown is escaped, and placeholders are code."""
    text = " ".join(text.split()).replace("`<", "<").replace(">`", ">")
    text = text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
    return re.sub(r"'?<([\w\\ .-]+)>'?", lambda match: "`<" + match[1].replace("\\", "") + ">`", text)


if __name__ == "__main__":
    print(page(), end="")
