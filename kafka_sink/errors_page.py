"""docs/errors.md, from the tree of errors: `python -m kafka_sink.errors_page > docs/errors.md`.

Each error is made with placeholders for its facts, and its own message is taken apart into what happened, what it means
for the data, and what to do. Nothing is said here that a message does not say; a test compares the page with it.

A message is sentences. Those that speak of the data hold one of the phrases of `_OF_DATA`, those that say what to do
begin with one of `_ADVICE`, and the others say what happened.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka_sink import errors
from kafka_sink.errors import (
    NOTHING_SENT,
    NOTHING_VISIBLE,
    REPLAY,
    TRANSACTION_ADVICE,
    UNDECIDED,
    KafkaSinkError,
    WriteKind,
)

_INTRODUCTION = """\
Generated from `kafka_sink/errors.py` by `make docs`. All errors are classes of `kafka_sink.errors`, and one tree.
`kafka_sink.export` and a query of `kafka_sink.to_kafka` raise them. Of any other exception of Spark, Spark Connect or
Py4J, and of a query that has failed, `kafka_sink.error_of(failure)` returns the error, or None. In Spark's stack trace
an error is the line that starts with `kafka_sink.errors.`; its fields hold the facts that are `<so>` here, and are the
line after it, in JSON. None shows a payload or a secret."""

# In the order of the page; the rest of the tree has no base in between.
_SECTIONS = (
    ("Options", errors.ConfigError),
    ("Columns", errors.SchemaError),
    ("Rows", errors.BadRow),
    ("Schema registry", errors.RegistryError),
    ("Cluster", errors.ClusterError),
    ("Delivery", errors.DeliveryError),
    ("Exactly once", errors.ExactlyOnceError),
    ("Other", KafkaSinkError),
    ("The local broker", errors.LocalKafkaError),
)
_WHICH_ROW = """\
A message names the row in front: `row 17 (from 0) of Spark partition 3 for topic 'orders', with a key of 9 bytes: ...`.
It is counted among the rows that the task was given, behind interceptors. The key itself is in no message. To see the
row, when the DataFrame gives the same rows in the same order again: `df.withColumn("at",
F.monotonically_increasing_id()).where("at = 3 * 8589934592 + 17")`; with `badRows=deadLetter` it is in the dead letter
topic. A row that only its leader found too large is named by partition and timestamp."""
# What many messages say alike is said once, above the tables.
OFTEN = (
    ("Nothing sent", NOTHING_SENT),
    ("Sent again", REPLAY),
    ("Nothing visible", NOTHING_VISIBLE),
    ("Undecided", UNDECIDED),
)
_OF_DATA = re.compile(
    r"[Nn]othing is lost|[Nn]o row\b|None of them was sent|will be there twice|is unknown\.|Rows waiting for an answer"
    r"|Neither credentials nor rows|is not sent, not even|Rows sent to the old topic|Its topics are gone"
    r"|Rows that were written before"
    r"|Spark does not record|would leave the micro-batch visible in part"
)
_ADVICE = re.compile(
    r"(Add|Ask|Change|Check|Choose|Correct|Create|Drop|Fold|Free|Go on|If|Install|Look|Make|Name|Never|Or|Put|"
    r"Raise|Read|Register|Rename|Run|Set|Stop|Write with|To go on|To fix it|To write|Use|Exactly-once writes need|"
    r"Idempotent writes need|It holds no records|Options of the Kafka client|This is a defect|They are needed|"
    r"A continuous trigger|set|use|install|try)\b|<(instead|hint|advice)>"
)
_BETWEEN_SENTENCES = re.compile(
    r"(?<=[.?)>])\s+(?=[A-Z'])|(?<=:) (?=(?:set it as|use|install that|try again)\b)|\s+(?=<(?:instead|hint|advice)>)"
)
# What to do where the message need not say it: its facts do, or another run does it by itself.
_NEXT_RUN = "Nothing, unless the stream has stopped: restart it then. Run a batch write that failed again."
TO_DO = {
    "InvalidOption": "Give it a value that is expected.",
    "InvalidArgument": "As the reason says.",
    "RegistryExtraMissing": "That, or send the packages along with the job. If an executor lacks it, the message "
    "says *sent again*.",
    "SchemaUnreadable": "Correct the schema that was given; without one it is derived from the columns.",
    "ReceiptsPathUnusable": "Name a folder that the driver can make.",
    "RecordsUnreadable": "Correct what the reason names.",
    "TopicRecreated": "Write the rows of earlier writes again, if they are needed.",
    "ProducerClosed": "Nothing, if it comes once: the next attempt has a new producer.",
    "CommitOutcomeUnknown": "Restart the stream. A batch write without `txnAppId`: run the command in the message; "
    "a rerun would double its rows.",
    "AttemptFenced": _NEXT_RUN,
    "AbortedRowsOpen": _NEXT_RUN,
    "PreparedRowsGone": _NEXT_RUN,
    "DecisionPending": "Run that command, or start the query or the write.",
    "TransactionRefused": "By the answer, see below.",
    "BrokerDied": "Start it again.",
    "ToolFailed": "Read the end of its output.",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One error's, in Markdown; `often` is the title of what stands above the tables, or empty."""

    name: str
    happened: str
    data: str
    advice: str
    often: str


def page() -> str:
    """The whole page, Markdown."""
    parts = ["# Errors", _INTRODUCTION, "## Is the data safe?", _what_is_often_said()]
    for title, classes in by_section():
        parts += [f"## {title}", _table(classes)]
        if issubclass(classes[0], errors.BadRow):
            parts.append(_WHICH_ROW)
        if issubclass(classes[0], errors.ExactlyOnceError):
            parts += [_of_batch_writes(), _of_refusals()]
    return "\n\n".join(parts) + "\n"


def by_section() -> list[tuple[str, list[type[KafkaSinkError]]]]:
    """Every error that is raised as it is, under its heading."""
    return [(title, list(_raised(base))) for title, base in _SECTIONS]


def advice_on(name: str) -> str:
    """What to do about an error whose message does not say it; else empty."""
    return TO_DO.get(name, "")


def _what_is_often_said() -> str:
    lines = [
        "Most errors say one of four things of the data. The tables name them.",
        *(f"### {title}\n\n{plain(text)}" for title, text in OFTEN),
        "An error that says *sent again* of an at-least-once write says *nothing visible* of an exactly-once one, or "
        "*undecided* while it is being committed. Of a batch write, in place of its micro-batch, a message says "
        "whether to run it again, and as what.",
    ]
    return "\n\n".join(lines)


def _raised(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    """What is raised as it is, in the order of the module: of `base`, or of no section's base."""
    bases = tuple(of for _, of in _SECTIONS if of is not KafkaSinkError)
    for cls in vars(errors).values():
        if not inspect.isclass(cls) or not issubclass(cls, base) or cls.__subclasses__() or _is_handled_inside(cls):
            continue
        if base is not KafkaSinkError or not issubclass(cls, bases):
            yield cls


def _is_handled_inside(cls: type[KafkaSinkError]) -> bool:
    return issubclass(cls, errors.ProtocolError)


def _table(classes: list[type[KafkaSinkError]]) -> str:
    rows = []
    for message in (taken_apart(example(cls)) for cls in classes):
        often = f"[{message.often}](#{message.often.lower().replace(' ', '-')})." if message.often else ""
        data = " ".join(filter(None, (message.data, often))) or "No data of yours is in it."
        rows.append(f"| `{message.name}` | {message.happened} | {data} | {message.advice or TO_DO[message.name]} |")
    return "\n".join(("| Error | What happened | Is the data safe? | What to do |", "|---|---|---|---|", *rows))


def _of_batch_writes() -> str:
    """What a write with txnAppId is told where a stream is told of its checkpoint or query."""
    versioned = [cls for cls in _raised(errors.ExactlyOnceError) if "versioned" in inspect.signature(cls).parameters]
    rows = []
    for cls in versioned:
        message = str(example(cls, versioned=True).in_transaction(committing=True, write_kind=WriteKind.VERSION))
        rows.append(f"| `{cls.__name__}` | {plain(message)} |")
    text = "A batch write with `txnAppId` and `txnVersion` is told of its version:"
    return "\n".join((text, "", "| Error | What the message says |", "|---|---|", *rows))


def _of_refusals() -> str:
    text = "What `TransactionRefused` says to do, by the broker's answer:"
    rows = (f"| `{answer}` | {plain(advice)} |" for answer, advice in TRANSACTION_ADVICE.items())
    return "\n".join((text, "", "| Answer | What to do |", "|---|---|", *rows))


def taken_apart(error: KafkaSinkError) -> Message:
    text, often = str(error), ""
    for title, said in OFTEN:
        if said in text:
            text, often = text.replace(said, ""), title
    happened, data, advice = list[str](), list[str](), list[str]()
    for sentence in filter(None, _BETWEEN_SENTENCES.split(" ".join(text.split()))):
        if _OF_DATA.search(sentence):
            data.append(sentence)
        elif advice or _ADVICE.match(sentence):
            # Behind an advice comes what explains it.
            advice.append(sentence)
        else:
            happened.append(sentence)
    cells = [plain(" ".join(part)) for part in (happened, data, advice)]
    return Message(type(error).__name__, cells[0], cells[1], cells[2], often)


def plain(text: str) -> str:
    """As a cell of a table: nothing in it is Markdown, but that placeholders are code."""
    text = text.strip().rstrip(":").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
    return re.sub(r"'?<([\w\\ .-]+)>'?", lambda match: "`<" + match[1].replace("\\", "") + ">`", text)


# --- an error without facts -------------------------------------------------------------------------------------------


class _Number(int):
    """A fact that is computed with, shown as its name."""

    def __new__(cls, name: str) -> _Number:
        made = super().__new__(cls, 7)
        made.name = name
        return made

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __sub__(self, other: int) -> _Number:
        return _Number(f"{self.name} - {other}")

    def __radd__(self, _: int) -> _Number:
        return self


_MADE_UP = {
    "Mapping[str, int]": lambda name: {name: _Number("count")},
    "Sequence[int]": lambda name: [_Number(name)],
    "Sequence[str]": lambda name: [f"<{name}>"],
    "Sequence[tuple[int, int]]": lambda name: [f"<{name}>"],
    "int": _Number,
    "float": _Number,
}


def example(cls: type[KafkaSinkError], *, versioned: bool = False) -> KafkaSinkError:
    """An instance whose facts are placeholders; what has a default, with that."""
    facts: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if name == "versioned":
            facts[name] = versioned
        elif parameter.default is parameter.empty:
            annotation = str(parameter.annotation).removesuffix(" | None")
            facts[name] = _MADE_UP.get(annotation, "<{}>".format)(name)
    return cls(**facts)


if __name__ == "__main__":
    print(page(), end="")
