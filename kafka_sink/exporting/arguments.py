"""Converts Python's keyword arguments to the sink's options.

Keyword arguments are in snake case, also those that are options. Names in `options` are spelled as in Spark and
docs/options.md, in any case:

    linger_ms=5, bad_rows="drop"                           Kafka's or Spark's name in snake case, without `kafka.`
    options={"kafka.linger.ms": 5, "badRows": "drop"}
    create_topics={"partitions": 12, "retention.ms": 86_400_000}      as partitions=12,retention.ms=86400000

It is an error to give an option twice, even with the same value. This module checks names only. options/config.py
checks the values, as for any write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from kafka_sink.errors import InvalidArgument, UnknownOption
from kafka_sink.options.config import EXACTLY_ONCE
from kafka_sink.options.table import OPTIONS, SPARK_OPTIONS, WRITING
from kafka_sink.spark.validation import option_text


def _snake(name: str) -> str:
    """`checkpointLocation` -> checkpoint_location, `kafka.linger.ms` -> linger_ms."""
    return re.sub("([A-Z])", r"_\1", name.removeprefix("kafka.")).replace(".", "_").lower()


# Arguments that are not options.
ARGUMENTS = ("exactly_once", "co_partition", "order_by", "output_mode")
# A test checks that no two options have the same word.
NAME_OF_WORD = {_snake(name): name for name in (*(option.name for option in OPTIONS), *SPARK_OPTIONS)}
_SPELLING = "As an argument, an option is in snake case, without 'kafka.'"
_SPARKS_OWN = {name.lower(): name for name in SPARK_OPTIONS}


def sink_options(
    topic: str | None, *, exactly_once: bool, options: Mapping[str, object], words: Mapping[str, object]
) -> dict[str, str]:
    """Return the options of a write as texts, by their own names. The value None means "not given".

    Raises InvalidArgument for an option that is given twice or misspelled as an argument, UnknownOption, RefusedOption.
    """
    given: list[tuple[str, object]] = [("topic", topic), ("deliveryGuarantee", EXACTLY_ONCE if exactly_once else None)]
    given += [(_name_of(word), value) for word, value in words.items()]
    given += [(_name(name), value) for name, value in options.items()]
    return dict(_once((name, _text(value)) for name, value in given if value is not None))


def _name_of(word: str) -> str:
    if word in NAME_OF_WORD:
        return NAME_OF_WORD[word]
    if word not in ARGUMENTS and _snake(word) in ARGUMENTS:
        raise InvalidArgument(argument=word, reason=f"it is spelled {_snake(word)}.")
    try:
        name = _name(word)
    except UnknownOption as unknown:
        nearest = get_close_matches(word, (*NAME_OF_WORD, *ARGUMENTS), n=2, cutoff=0.75)
        nearest = nearest or [_snake(each) for each in unknown.nearest]
        raise UnknownOption(option=word, nearest=nearest, spelling=_SPELLING) from None
    raise InvalidArgument(
        argument=word, reason=f"it is spelled {_snake(name)}; options={{{name!r}: ...}} takes the option's own name."
    )


def _name(given: str) -> str:
    """Return the canonical name of an option. Raises UnknownOption, RefusedOption."""
    option = WRITING.named(given)
    return _SPARKS_OWN.get(given.lower(), given) if option is None else option.name


def _text(value: object) -> str:
    """Return the text of a value. A mapping becomes `name=value,...`, for create_topics."""
    if not isinstance(value, Mapping):
        return option_text(value)
    return ",".join(f"{name}={option_text(each)}" for name, each in value.items() if each is not None) or "true"


def _once(given: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    names: set[str] = set()
    for name, text in given:
        if name.lower() in names:
            raise InvalidArgument(argument=name, reason="it is given twice; keep one of the two.")
        names.add(name.lower())
        yield name, text
