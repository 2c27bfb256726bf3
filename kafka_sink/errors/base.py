"""The root of all errors: facts as fields, and the one place where a text is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from inspect import Parameter, Signature
from typing import Any, NamedTuple, Self, dataclass_transform

from kafka_sink.errors.wording import DataState, WriteKind, state_of, words
from kafka_sink.text.quoting import escaped, quoted, quoted_tail

# Of one fact: beyond what any text of this package's own takes.
MAX_FACT_CHARACTERS = 4_000
# Commands: half of one would be another one. `quoting.shell_command` has made them.
_WHOLE = frozenset({"command", "repair"})
# What users import, and what the lines of Spark's stack traces begin with.
_PUBLIC_MODULE = "kafka_sink.errors"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What an error's facts come to. `data`: what became of the rows; in a transaction the wording makes of it what is
    true there. `known`: what this error knows of its rows beyond that. `advice`: what to do."""

    happened: str
    data: DataState
    advice: str = ""
    known: str = ""


class Parts(NamedTuple):
    """A message, whose text is these three, in this order."""

    happened: str
    data: str
    advice: str


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class KafkaSinkError(Exception):
    """Base of every error of this package. Each is a dataclass of its facts, which are printable and cut, whoever said
    them, and survives pickling and copying with all of them. `write_kind`, of exactly-once writes: as what the write is
    run again. `is_committing`: its rows may have become visible, in part. `repair`: the command that finishes it.
    `principal`: who needs an ACL that the advice asks for.
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
        """As of a dataclass: what a class does with its facts."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # One `__init__` for all: to compile one for each would take 10 ms whenever a worker starts.
        dataclass(init=False, kw_only=True, eq=False, repr=False)(cls)
        cls.__signature__ = _signature(cls)
        if cls.__module__.startswith(f"{_PUBLIC_MODULE}."):
            cls.__module__ = _PUBLIC_MODULE

    def __setattr__(self, name: str, fact: Any) -> None:
        """Whoever says a fact, and whenever: no error has to think of it."""
        super().__setattr__(name, fact if name.startswith("_") or name == "args" else _shown(name, fact))

    def __str__(self) -> str:
        """As Spark told it, where the error was read from Spark's text; else made of the facts."""
        return str(self.args[0]) if self.args else " ".join(filter(None, self.parts()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def explanation(self) -> Explanation:
        raise AssertionError(f"{type(self).__name__} is only caught, never raised")

    def parts(self) -> Parts:
        """What happened, what it means for the data, and what to do."""
        told = self.explanation()
        state = state_of(told.data, self.write_kind, is_committing=self.is_committing)
        said = words(state, self.write_kind, self.repair)
        data, advice = (" ".join(filter(None, both)) for both in ((told.known, said.data), (told.advice, said.rerun)))
        return Parts(told.happened, data, advice)

    def in_transaction(
        self, *, committing: bool = False, write_kind: WriteKind = WriteKind.STREAM, repair: str = ""
    ) -> Self:
        """The same error, of a write whose rows nobody sees unless they are committed."""
        self.write_kind, self.is_committing, self.repair = write_kind, committing, repair
        return self

    def of_principal(self, principal: str | None) -> Self:
        """The same error, where it asks for an ACL for whom. None: the options do not tell."""
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
    """For whom an ACL is asked."""
    return "this principal" if principal is None else f"principal {principal}"


def sentence(words: str) -> str:
    """What stands behind a colon elsewhere, as a sentence of its own; the name of an option stays as it is."""
    first, blank, rest = words.partition(" ")
    return f"{first.capitalize()}{blank}{rest}" if first.isalpha() and first.islower() else words


def _shown(name: str, fact: Any) -> Any:
    """Printable, and not longer than a message may be."""
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
