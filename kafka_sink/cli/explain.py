"""Explains an option or an error, from the tables of this version of the sink. It needs no network.

NAME is a name or a part of a name, in any case. For an error it prints the message with placeholders such as `<topic>`,
and what to do. Without a NAME it lists all names.

examples:
    pykafka explain
    pykafka explain kafka.linger.ms
    pykafka explain timeout TornBatch

exit status: 0 done; 1 a name was not found; 2 wrong usage
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_sink import errors
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.command_line import parser_of, say, tell
from kafka_sink.errors import KafkaSinkError
from kafka_sink.options.kinds import REQUIRED, Option
from kafka_sink.options.reading import READING
from kafka_sink.options.table import REFUSED, WRITING

OK, NOT_FOUND = 0, 1
WIDTH = 100


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if not args.names:
        tell(*all_names())
        return OK
    status = OK
    for name in args.names:
        found = list(matching(name))
        tell(*(line for entry in found for line in (*entry, "")))
        if not found:
            status = say(f"{name!r} is neither an option nor an error; `pykafka explain` lists all names", NOT_FOUND)
    return status


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka explain")
    made.add_argument("names", nargs="*", metavar="NAME", help="an option or an error, or a part of its name")
    return made


def all_names() -> Iterator[str]:
    for title, table in (("OPTIONS", WRITING), ("OPTIONS OF READS", READING)):
        yield title
        for section in table.sections:
            yield from _wrapped(f"{section.title}: " + ", ".join(option.name for option in section.options))
        yield ""
    yield "ERRORS"
    for title, classes in by_section():
        yield from _wrapped(f"{title}: " + ", ".join(cls.__name__ for cls in classes))


def matching(name: str) -> Iterator[list[str]]:
    """Yield the lines of each entry whose name contains `name`. An exact match is the only one yielded."""
    entries = list(_entries())
    folded = name.lower()
    exact = [lines for each, lines in entries if each.lower() == folded or _is_prefix(each, folded)]
    yield from exact or (lines for each, lines in entries if folded in each.lower())


def _entries() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each entry. An option that reads have in another way has two."""
    yield from ((option.name, _option(option)) for option in WRITING.options)
    yield from ((each.name, _option(each, "of reads, ")) for each in READING.options if each not in WRITING.options)
    known = {option.name for option in (*WRITING.options, *READING.options)}
    of_reads = {each: instead for each, instead in READING.refused.items() if each not in known}
    prefixes = {f"{prefix}*": instead for prefix, instead in WRITING.refused_prefixes.items()}
    for each, instead in {**of_reads, **REFUSED, **prefixes}.items():
        yield each, [f"{each}  ({'refused by writes' if each in known else 'refused'})", *_wrapped(instead)]
    yield from ((each, _error(cls)) for each, cls in ERRORS.items())


def _is_prefix(entry: str, name: str) -> bool:
    return entry.endswith("*") and name.startswith(entry[:-1])


def _option(option: Option, of: str = "") -> list[str]:
    default = "required" if option.default is REQUIRED else f"default {_text(option.default)}"
    return [f"{option.name}  ({of}{default})", *_wrapped(f"{option.kind.values}. {option.doc}.")]


def _text(default: object) -> str:
    if default is None or default == "":
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _error(cls: type[KafkaSinkError]) -> list[str]:
    return [cls.__name__, *_wrapped(str(example(cls)))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


# --- all errors, and an example of each -------------------------------------------------------------------------------

# In the order of the page. "Other" has the errors that are direct subclasses of KafkaSinkError.
_SECTIONS = (
    ("Options", errors.ConfigError),
    ("Columns", errors.SchemaError),
    ("Rows", errors.BadRow),
    ("Schema registry", errors.RegistryError),
    ("Cluster", errors.ClusterError),
    ("Delivery", errors.DeliveryError),
    ("Exactly once", errors.ExactlyOnceError),
    ("Reads", errors.ReadError),
    ("Other", KafkaSinkError),
    ("The local broker", LocalKafkaError),
)
# The sink handles these internally, and never raises them to a user.
_INSIDE = errors.ProtocolError


def by_section() -> list[tuple[str, list[type[KafkaSinkError]]]]:
    """Return the errors that the sink raises, grouped by heading."""
    return [(title, list(raised(base))) for title, base in _SECTIONS]


def raised(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    """Yield the leaves of the tree below `base`, without the leaves of other sections."""
    elsewhere = {_INSIDE, *(of for _, of in _SECTIONS if of is not base)}
    for cls in base.__subclasses__():
        if cls not in elsewhere:
            yield from raised(cls) if cls.__subclasses__() else (cls,)


ERRORS = {cls.__name__: cls for _, classes in by_section() for cls in classes}


class _Number(int):
    """A number that prints as its name. Messages may compute with it."""

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
    "Sequence[tuple[int | None, int]]": lambda name: [f"<{name}>"],
    "int": _Number,
    "float": _Number,
}


def example(cls: type[KafkaSinkError]) -> KafkaSinkError:
    """Return an instance with placeholders for the facts. Parameters with a default keep it."""
    facts: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is parameter.empty:
            annotation = str(parameter.annotation).removesuffix(" | None")
            facts[name] = _MADE_UP.get(annotation, "<{}>".format)(name)
    return cls(**facts)
