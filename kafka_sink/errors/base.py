"""The base class of all errors. An error has facts as fields; this module makes the message from the facts, and from a
table of what a failure means for the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from functools import cached_property
from inspect import Parameter, Signature
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from kafka_sink.errors.quoting import escaped, quoted, quoted_tail

__all__ = ["DataState", "Explanation", "KafkaSinkError", "Parts", "WriteKind", "named_principal"]

# Longest text of one fact. No text that this package writes is as long.
MAX_FACT_CHARACTERS = 4_000
# Commands are never cut: half a command is a different command. `quoting.shell_command` makes them.
_WHOLE = frozenset({"command", "repair"})
# The page of an error. It is the command until the site of tools/site_pages.py is published.
EXPLAINED_BY = "pykafka explain {}"
# The module that users import, and the prefix of the error's line in Spark's stack traces.
_PUBLIC_MODULE = "kafka_sink.errors"


class WriteKind(Enum):
    """The way in which a failed write, or a read, runs again. Exactly-once recognizes a write only if it runs under the
    same name."""

    STREAM = "the same micro-batch, when the query restarts"
    VERSION = "the same txnAppId and txnVersion, when its user runs the batch write again"
    BATCH = "another write, with another name"
    READ = "the same range of offsets, when Spark runs the task again"


class DataState(Enum):
    """The state of the rows of a failed write. The values are the names in docs/errors.md."""

    NO_DATA = "No data"
    NOTHING_SENT = "Nothing sent"
    SENT_AGAIN = "Sent again"
    WRITTEN = "Written"
    NOTHING_VISIBLE = "Nothing visible"
    RUN_STOPPED = "Run stopped"
    STAYS_INVISIBLE = "Stays invisible"
    OUTCOME_UNKNOWN = "Outcome unknown"
    DECIDED = "Decided"
    PARTLY_VISIBLE = "Partly visible"
    NOT_RECORDED = "Not recorded"
    NOT_BEGUN = "Not begun"
    NOT_PROVEN = "Not proven"
    NOT_READ = "Not read"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The three parts of a message. `data`: the state of the rows; `state_of` adapts it to the kind of write. `known`:
    what this error knows about its rows in addition."""

    happened: str
    data: DataState
    advice: str = ""
    known: str = ""


class Parts(NamedTuple):
    """A message: the texts of these three parts, in this order."""

    happened: str
    data: str
    advice: str


class _Facts(dict[str, Any]):
    """The attributes of an error, for `str.format_map`."""

    def __init__(self, error: KafkaSinkError) -> None:
        self._error = error

    def __missing__(self, name: str) -> Any:
        return getattr(self._error, name)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class KafkaSinkError(Exception):
    """Base of every error of this package.

    Each error is a dataclass of its facts. The texts of its message name them: `topic {topic!r} does not exist`. An
    error whose texts depend on facts in another way overrides `explanation`.

    Facts are escaped and cut to a maximum length. Errors survive pickling and
    copying with all facts. `write_kind`: the way in which an exactly-once write runs again, None outside a transaction.
    `is_committing`: some of the rows may be visible. `repair`: the command that finishes the write. `principal`: the
    principal that needs the ACL of the advice.

    Examples:
        >>> try:
        ...     kafka_sink.export(spark.range(3), "ordres", value="json", bootstrap_servers=servers, validate=False)
        ... except kafka_sink.errors.TopicNotFound as error:
        ...     print(error.topic)
        ordres
    """

    write_kind: WriteKind | None = None
    is_committing: bool = False
    repair: str = ""
    principal: str | None = None

    # The parts of `explanation`.
    _happened: ClassVar[str]
    _data: ClassVar[DataState]
    _advice: ClassVar[str] = ""
    _known: ClassVar[str] = ""
    # A traceback names the page behind the message.
    _has_page: ClassVar[bool] = True

    __signature__ = Signature()

    def __init__(self, *args: Any, **facts: Any) -> None:
        super().__init__()
        given = self.__signature__.bind(*args, **facts)
        given.apply_defaults()
        for name, fact in given.arguments.items():
            setattr(self, name, fact)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Subclasses change their facts here, as in a dataclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # One `__init__` for all classes: compiling one for each takes 10 ms at every start of a worker.
        dataclass(init=False, kw_only=True, eq=False, repr=False)(cls)
        cls.__signature__ = _signature(cls)
        if cls.__module__.startswith(f"{_PUBLIC_MODULE}."):
            cls.__module__ = _PUBLIC_MODULE

    def __setattr__(self, name: str, fact: Any) -> None:
        """Escape and cut every fact that is set, so that subclasses need not do it."""
        super().__setattr__(name, fact if name.startswith("_") or name == "args" else _shown(name, fact))

    def __str__(self) -> str:
        """Return Spark's text if the error was read from it, or the text made of the facts."""
        return str(self.args[0]) if self.args else " ".join(filter(None, self.parts()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def explanation(self) -> Explanation:
        happened, advice, known = (
            text.format_map(_Facts(self)) for text in (self._happened, self._advice, self._known)
        )
        return self._told(happened, advice, known=known)

    def _told(self, happened: str, advice: str = "", *, data: DataState | None = None, known: str = "") -> Explanation:
        return Explanation(happened, data or self._data, advice, known)

    def parts(self) -> Parts:
        """Return what happened, what it means for the data, and what to do."""
        explained = self.explanation()
        state = state_of(explained.data, self.write_kind, is_committing=self.is_committing)
        texts = words(state, self.write_kind, self.repair)
        # What an error knows of its rows is about rows that are written.
        is_known = self.write_kind is not WriteKind.READ or explained.data is DataState.NO_DATA
        known = explained.known if is_known else ""
        data, advice = (" ".join(filter(None, both)) for both in ((known, texts.data), (explained.advice, texts.rerun)))
        return Parts(explained.happened, data, advice)

    def in_transaction(
        self, *, committing: bool = False, write_kind: WriteKind = WriteKind.STREAM, repair: str = ""
    ) -> Self:
        """Mark this error as one of a transactional write, and return it."""
        self.write_kind, self.is_committing, self.repair = write_kind, committing, repair
        return self

    def of_read(self) -> Self:
        """Mark this error as one of a read, and return it."""
        self.write_kind = WriteKind.READ
        return self

    def of_principal(self, principal: str | None) -> Self:
        """Set the principal that needs an ACL, and return the error. None: the options do not name it."""
        if principal is not None:
            self.principal = principal
        return self

    @cached_property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        """The lines that a traceback prints behind the message."""
        return [f"see: {EXPLAINED_BY.format(type(self).__name__)}"] if self._has_page else []

    @property
    def _whom(self) -> str:
        return named_principal(self.principal)


KafkaSinkError.__module__ = _PUBLIC_MODULE


def _signature(cls: type[KafkaSinkError]) -> Signature:
    return Signature([
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=each.type,
        )
        for each in fields(cls)  # type: ignore[arg-type]
        if each.init
    ])  # fmt: skip


def named_principal(principal: str | None) -> str:
    """Return the words for the principal that needs an ACL."""
    return "this principal" if principal is None else f"principal {principal}"


def _shown(name: str, fact: Any) -> Any:
    """Return the fact, escaped and cut to MAX_FACT_CHARACTERS."""
    match fact:
        case str() if name in _WHOLE:
            return escaped(fact)
        case str() if name.endswith("_tail"):
            return quoted_tail(fact)
        case str():
            return quoted(fact, MAX_FACT_CHARACTERS)
        case tuple() | list():
            return tuple(_shown(name, each) for each in fact)
        case Mapping():
            return {_shown(name, key): each for key, each in fact.items()}
    return fact


def _rebuild(cls: type[KafkaSinkError], args: tuple[Any, ...], fields: dict[str, Any]) -> KafkaSinkError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


# --- the words for the state of the data ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """`rerun`: how to run the write again. It depends on the kind of write, which the error's own advice cannot
    know."""

    data: str
    rerun: str = ""


def state_of(state: DataState, kind: WriteKind | None, *, is_committing: bool) -> DataState:
    """Return the state that is true for this kind of write.

    `kind`: None outside a transaction. `is_committing`: some of the rows may be visible.
    """
    if kind is WriteKind.READ:
        return state if state in (DataState.NO_DATA, DataState.GONE) else DataState.NOT_READ
    match state:
        case DataState.SENT_AGAIN if kind is not None:
            return DataState.OUTCOME_UNKNOWN if is_committing else DataState.NOTHING_VISIBLE
        case DataState.OUTCOME_UNKNOWN if kind is WriteKind.BATCH and not is_committing:
            # Before the commit nothing is decided, and no earlier write had this name.
            return DataState.NOTHING_VISIBLE
        case DataState.NOT_RECORDED if kind is not None and not is_committing:
            # This run was checking for hanging transactions of the run before, and has not begun itself.
            return DataState.NOT_BEGUN
    return state


def words(state: DataState, kind: WriteKind | None, repair: str = "") -> Words:
    """Return the texts for a state. `repair`: the command that finishes a batch write without txnAppId."""
    found = _WORDS[state] if kind is None else _OF_KIND.get((state, kind), _WORDS[state])
    return Words(found.data, found.rerun.replace("{repair}", repair))


_INVISIBLE = (
    "Nothing is lost: no row of this attempt is visible to read_committed readers, and none becomes visible later"
)
_UNKNOWN = "Whether the last request was carried out is unknown. Nothing is lost:"
_UNTIL_THE_NEXT_RUN = (
    f"{_UNKNOWN} transactions that are open stay invisible to read_committed readers until the next run of the write "
    "ends them."
)
_NEVER_SEEN = "No row of this run becomes visible."
_NOT_WRITTEN = "No row is lost, and none of this run was written."
_RESTART = "Restart the query if it has stopped."
_IF_THE_JOB_FAILS = "Spark runs a failed task again; if the job fails, run the write again"

_WORDS = {
    DataState.NO_DATA: Words(""),
    DataState.NOTHING_SENT: Words("No row of this write was sent."),
    DataState.SENT_AGAIN: Words(
        "The write fails, so Spark does not record it as done. Acknowledged rows are in the topic, others may be "
        "missing until the write runs again. Spark runs a failed task again, and a restarted query runs its "
        "micro-batch again; run a failed batch write again yourself. Then all its rows are sent again. Nothing is "
        "lost, and those that are in the topic now will be in the topic twice."
    ),
    DataState.WRITTEN: Words(
        "Nothing is lost: all other rows of the write are in Kafka, and its dead letters. But for Spark it has failed, "
        "and when it runs again they will be there twice."
    ),
    DataState.NOTHING_VISIBLE: Words(f"{_INVISIBLE}; the micro-batch runs again and is written once.", _RESTART),
    DataState.RUN_STOPPED: Words("No row of this run becomes visible, and the query's offsets do not advance."),
    DataState.STAYS_INVISIBLE: Words(
        "Nothing is lost: rows that were not committed before stay invisible to read_committed readers."
    ),
    DataState.OUTCOME_UNKNOWN: Words(_UNTIL_THE_NEXT_RUN, "Then run again."),
    DataState.DECIDED: Words(
        "Nothing is lost; the next start of the query, or of the write under its txnAppId, commits them."
    ),
    DataState.PARTLY_VISIBLE: Words(
        "Spark does not record the micro-batch. Nothing is lost.",
        "Restart the query: that commits the slots that still can be committed, and writes the missing slots again if "
        "their rows are the same.",
    ),
    DataState.NOT_RECORDED: Words(
        "No row is lost; Spark does not record the micro-batch, and its replay writes nothing again."
    ),
    DataState.NOT_BEGUN: Words(_NOT_WRITTEN, "Once that is fixed, run the write again."),
    DataState.NOT_READ: Words(
        "Nothing is lost: the records stay in Kafka. No row is left out silently: the read fails instead.",
        "Then run the query again.",
    ),
    DataState.GONE: Words("Records are missing. No row is left out silently: the query fails instead."),
    DataState.NOT_PROVEN: Words("Nothing is lost, but the rows that were not read are not verified."),
}
# These texts replace those of `_WORDS` for a kind of write.
_OF_KIND = {
    (DataState.OUTCOME_UNKNOWN, WriteKind.STREAM): Words(_UNTIL_THE_NEXT_RUN, _RESTART),
    (DataState.NOT_BEGUN, WriteKind.STREAM): Words(_NOT_WRITTEN, "Once that is fixed, restart the query."),
    (DataState.NOTHING_VISIBLE, WriteKind.VERSION): Words(
        f"{_INVISIBLE}.", f"{_IF_THE_JOB_FAILS} with the same txnAppId and txnVersion: it is written once."
    ),
    (DataState.NOTHING_VISIBLE, WriteKind.BATCH): Words(
        f"{_INVISIBLE}.", f"{_IF_THE_JOB_FAILS}: nothing of this one will be in the topic twice."
    ),
    (DataState.RUN_STOPPED, WriteKind.VERSION): Words(_NEVER_SEEN),
    (DataState.RUN_STOPPED, WriteKind.BATCH): Words(_NEVER_SEEN),
    (DataState.OUTCOME_UNKNOWN, WriteKind.VERSION): Words(
        _UNTIL_THE_NEXT_RUN, "Run the write again with the same txnAppId and txnVersion: it is written once."
    ),
    (DataState.OUTCOME_UNKNOWN, WriteKind.BATCH): Words(
        f"{_UNKNOWN} the write is visible to read_committed readers, or can be made visible, or no row of it is.",
        "Do not run the write again before you know: that would be another write. This command finishes the write if "
        "it was decided, and reports if it was not: `{repair}`.",
    ),
    (DataState.PARTLY_VISIBLE, WriteKind.VERSION): Words(
        "The write is not done. Nothing is lost.",
        "Run the write again under its txnAppId and txnVersion: it commits the slots that still can be committed, and "
        "writes the missing slots again if their rows are the same.",
    ),
    (DataState.PARTLY_VISIBLE, WriteKind.BATCH): Words(
        "For Spark the write has failed. Nothing is lost that can still be committed.",
        "Do not run the write again: that would be another write, and duplicate the visible rows. This command commits "
        "the slots that still can be committed: `{repair}`. Write the rows of slots that stay missing separately.",
    ),
    (DataState.NOT_RECORDED, WriteKind.VERSION): Words(
        "No row is lost; for Spark the write has failed.",
        "Once that is fixed, run the write again with the same txnAppId and txnVersion, which writes nothing again.",
    ),
    (DataState.NOT_RECORDED, WriteKind.BATCH): Words(
        "No row is lost, though for Spark the write has failed.",
        "Do not run the write again: that would be another write, and duplicate every row. This command ends the "
        "transaction that hides its rows: `{repair}`.",
    ),
    (DataState.NOT_BEGUN, WriteKind.VERSION): Words(
        "No row is lost, and none of this version was written.",
        "Once that is fixed, run the write again with the same txnAppId and txnVersion.",
    ),
}
