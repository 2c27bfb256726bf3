"""Errors about options, and about arguments of Python calls."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError, WriteKind
from kafka_sink.errors.redaction import redacted

__all__ = [
    "CheckpointUnusable", "ConfigError", "InvalidArgument", "InvalidOption", "MissingOption", "NotPlanned",
    "ReceiptsPathUnusable", "RefusedOption", "UnknownOption",
]  # fmt: skip


class ConfigError(KafkaSinkError):
    """An option is wrong. Raised while Spark plans the write, before any row moves."""

    _data = DataState.NOTHING_SENT


class UnknownOption(ConfigError):
    """`spelling`: a sentence on how option names are spelled in this kind of call."""

    option: str
    nearest: Sequence[str] = ()
    spelling: str = "Options of the Kafka client start with 'kafka.'"

    def __post_init__(self) -> None:
        self.option = redacted(self.option)

    def explanation(self) -> Explanation:
        hint = f" Did you mean {' or '.join(map(repr, self.nearest))}?" if self.nearest else ""
        return self._told(
            f"unknown option {self.option!r}.{hint}",
            f"{self.spelling}; the command `pykafka explain` lists all options.",
        )


class RefusedOption(ConfigError):
    """`instead`: a sentence that says what to do instead."""

    option: str
    instead: str

    def __post_init__(self) -> None:
        self.option = redacted(self.option)

    def explanation(self) -> Explanation:
        happened = f"option {self.option!r} cannot be used with pykafka."
        return self._told(happened, _sentence(self.instead))


def _sentence(words: str) -> str:
    """Return words that follow a colon elsewhere as a sentence. An option's name at the start is not capitalized."""
    first, blank, rest = words.partition(" ")
    return f"{first.capitalize()}{blank}{rest}" if first.isalpha() and first.islower() else words


class MissingOption(ConfigError):
    option: str
    hint: str

    def explanation(self) -> Explanation:
        # Spark hands its conf to writes only.
        or_conf = "" if self.write_kind is WriteKind.READ else f", or spark.pykafka.{self.option} in Spark's conf"
        return self._told(f"option {self.option!r} is required: {self.hint}", f"Set it{or_conf}.")


class InvalidOption(ConfigError):
    """`value` is None if the option's value must not be shown. In other values, parts that look secret are hidden."""

    option: str
    value: str | None
    expected: str

    def __post_init__(self) -> None:
        self.value = None if self.value is None else redacted(self.value)

    def explanation(self) -> Explanation:
        found = "is not usable (its value is not shown)" if self.value is None else f"is {self.value!r}"
        return self._told(
            f"option {self.option!r} {found}; expected {self.expected}.", "Give it a value that is expected."
        )


class InvalidArgument(ConfigError):
    """An argument of `kafka_sink.export` or `to_kafka` that is not a Spark option is wrong."""

    argument: str
    reason: str

    _happened = "argument {argument!r}: {reason}"
    _advice = "Correct the call."


class NotPlanned(ConfigError):
    """Exactly-once is set in Spark's conf, which only tasks can see."""

    option: str

    _happened = "{option} is set in Spark's conf, which the processes that plan and commit a write cannot see."
    _advice = "Remove it there, and set it as an option of the write."


class ReceiptsPathUnusable(ConfigError):
    path: str
    reason: str

    def __post_init__(self) -> None:
        self.path = redacted(self.path)

    _happened = "option 'receiptsPath' is {path!r}, and the driver cannot create this folder: {reason}."
    _advice = "Name a folder that the driver can create."


class CheckpointUnusable(ConfigError):
    """`file`: a file of the stream's checkpoint. The name of the sink is read from it or written to it."""

    file: str
    reason: str

    _happened = (
        "{file!r} cannot be used: {reason}. It is part of the stream's checkpoint, and determines the name under which "
        "an exactly-once stream commits."
    )
    _advice = (
        "Make the folder readable and writable for the user that the driver runs as, or restore the file from a copy "
        "of the checkpoint."
    )
