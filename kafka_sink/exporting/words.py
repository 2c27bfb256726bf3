"""From Python's keyword arguments to the sink's options.

A keyword argument cannot have a dot in it, so an option may be said in either of two ways:

    options={"kafka.linger.ms": 5, "badRows": "drop"}      the names of docs/options.md, in any case
    linger_ms=5, bad_rows="drop"                           Kafka's or Spark's name in snake case, without `kafka.`
    badRows="drop"                                         a name without dots, as it is

An option that is said twice is an error, whether or not the two agree. Nothing here is read but names: values are
judged where those of any write are (config.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kafka_sink.config import EXACTLY_ONCE
from kafka_sink.errors import InvalidArgument
from kafka_sink.options import OPTIONS, SPARK_OPTIONS, option_named
from kafka_sink.spark.validation import option_text


def _snake(name: str) -> str:
    """`checkpointLocation` -> checkpoint_location, `kafka.linger.ms` -> linger_ms."""
    return re.sub("([A-Z])", r"_\1", name.removeprefix("kafka.")).replace(".", "_").lower()


# Arguments of Spark's spelling, which are no options.
ARGUMENTS = ("exactlyOnce", "coPartition", "orderBy", "outputMode")
# test_words.py: no two options have the same word.
NAME_OF_WORD = {_snake(name): name for name in (*(option.name for option in OPTIONS), *SPARK_OPTIONS)}


def sink_options(
    topic: str | None, *, exactly_once: bool, options: Mapping[str, object], words: Mapping[str, object]
) -> dict[str, str]:
    """The options of a write, by their own names, as texts. None in place of a value: not said.

    Raises InvalidArgument for one that is said twice, UnknownOption, RefusedOption.
    """
    said: list[tuple[str, object]] = [("topic", topic), ("deliveryGuarantee", EXACTLY_ONCE if exactly_once else None)]
    said += [(_name(word), value) for word, value in words.items()]
    said += [(_name(name), value) for name, value in options.items()]
    return dict(_once((name, option_text(value)) for name, value in said if value is not None))


def _name(said: str) -> str:
    for argument in ARGUMENTS:
        if said == _snake(argument):
            raise InvalidArgument(argument=said, reason=f"it is spelled {argument}.")
    name = NAME_OF_WORD.get(said, said)
    option = option_named(name)
    return name if option is None else option.name


def _once(said: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    names: set[str] = set()
    for name, text in said:
        if name.lower() in names:
            raise InvalidArgument(argument=name, reason="it is given twice; keep one of the two.")
        names.add(name.lower())
        yield name, text

