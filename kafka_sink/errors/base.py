"""The base class of all errors. An error has facts as fields; this module makes the message from the facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from inspect import Parameter, Signature
from typing import Any, NamedTuple, Self, dataclass_transform

from kafka_sink.errors.wording import DataState, WriteKind, state_of, words
from kafka_sink.text.quoting import escaped, quoted, quoted_tail

# Longest text of one fact. No text that this package writes is as long.
MAX_FACT_CHARACTERS = 4_000
# Commands are never cut: half a command is a different command. `quoting.shell_command` makes them.
_WHOLE = frozenset({"command", "repair"})
# The module that users import, and the prefix of the error's line in Spark's stack traces.
_PUBLIC_MODULE = "kafka_sink.errors"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The three parts of a message, before the wording is applied.

    `data`: the state of the rows; `wording.state_of` adapts it to a transaction. `known`: what this error knows about
    its rows in addition. `advice`: what to do.
    """

    happened: str
    data: DataState
    advice: str = ""
    known: str = ""


class Parts(NamedTuple):
    """A message: the texts of these three parts, in this order."""

    happened: str
    data: str
    advice: str


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class KafkaSinkError(Exception):
    """Base of every error of this package.

    Each error is a dataclass of its facts. Facts are escaped and cut to a maximum length. Errors survive pickling and
    copying with all facts. `write_kind`: the way in which an exactly-once write runs again, None outside a transaction.
    `is_committing`: some of the rows may be visible. `repair`: the command that finishes the write. `principal`: the
    principal that needs the ACL of the advice.
    """

    write_kind: WriteKind | None = None
    is_committing: bool = False
    repair: str = ""
    principal: str | None = None

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
        raise AssertionError(f"{type(self).__name__} is only caught, never raised")

    def parts(self) -> Parts:
        """Return what happened, what it means for the data, and what to do."""
        told = self.explanation()
        state = state_of(told.data, self.write_kind, is_committing=self.is_committing)
        said = words(state, self.write_kind, self.repair)
        # What an error knows of its rows is about rows that are written.
        is_known = self.write_kind is not WriteKind.READ or told.data is DataState.NO_DATA
        known = told.known if is_known else ""
        data, advice = (" ".join(filter(None, both)) for both in ((known, said.data), (told.advice, said.rerun)))
        return Parts(told.happened, data, advice)

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


def sentence(words: str) -> str:
    """Return words that follow a colon elsewhere as a sentence. An option's name at the start is not capitalized."""
    first, blank, rest = words.partition(" ")
    return f"{first.capitalize()}{blank}{rest}" if first.isalpha() and first.islower() else words


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
