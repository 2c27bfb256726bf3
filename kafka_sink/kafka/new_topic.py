"""A topic as given in the option createTopics, as text and as value:

    partitions=12,replicas=3,retention.ms=86400000,cleanup.policy=compact,delete

Settings have Kafka's own names, and the brokers check them. Text after a comma without `name=` continues the value
before it. Pure.

Source: `kafka-topics.sh --create`, KIP-464 (the brokers' defaults).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.errors.redaction import redacted

BROKERS_DEFAULT = -1
MAX_PARTITIONS = 2**31 - 1
MAX_REPLICAS = 2**15 - 1
EXAMPLE = "partitions=12,replicas=3,retention.ms=86400000"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
# Names in kafka-topics.sh, the broker settings and the AdminClient -> the name here.
_OTHER_NAMES = {
    **dict.fromkeys(("partition", "num.partitions", "num_partitions", "numpartitions"), "partitions"),
    **dict.fromkeys(
        ("replica", "replication-factor", "replication.factor", "replication_factor", "replicationfactor"), "replicas"
    ),
}


class NewTopicProblem(ValueError):
    """What is wrong, for a message: it quotes names and no values."""


@dataclass(frozen=True, slots=True, repr=False)
class NewTopic:
    """`partitions`, `replicas`: a count or BROKERS_DEFAULT. `settings`: (name, value) pairs. A value may be any text
    that a user wrote."""

    partitions: int = BROKERS_DEFAULT
    replicas: int = BROKERS_DEFAULT
    settings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """The text as a user writes it, or `true` if everything is left to the brokers."""
        counts = (("partitions", self.partitions), ("replicas", self.replicas))
        asked = [(name, str(count)) for name, count in counts if count != BROKERS_DEFAULT]
        return ",".join(f"{name}={value}" for name, value in (*asked, *self.settings)) or "true"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown})"

    @property
    def shown(self) -> str:
        """The text that messages may show, without secrets."""
        return redacted(str(self))


def parse_new_topic(text: str) -> NewTopic:
    """Return the parsed `text`. Raises NewTopicProblem."""
    given: dict[str, str] = {}
    name = ""
    for part in text.split(","):
        word, separator, value = (each.strip() for each in part.partition("="))
        if separator:
            name = _checked(word, given)
            given[name] = value
        elif name:
            given[name] += f",{word}"
        else:
            raise NewTopicProblem(f"it begins with no name=value, as {EXAMPLE} does")
    for name, value in given.items():
        if not value.strip(","):
            raise NewTopicProblem(f"{name} has no value")
    partitions = _count("partitions", given.pop("partitions", None), MAX_PARTITIONS)
    replicas = _count("replicas", given.pop("replicas", None), MAX_REPLICAS)
    return NewTopic(partitions, replicas, tuple(given.items()))


def _checked(name: str, given: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        raise NewTopicProblem(f"a name before = is none of a topic's settings; write {EXAMPLE}")
    ours = _OTHER_NAMES.get(name.lower())
    if ours is not None:
        raise NewTopicProblem(f"{name} is called {ours} here")
    if name in given:
        raise NewTopicProblem(f"{name} is given twice")
    return name


def _count(name: str, text: str | None, most: int) -> int:
    if text is None:
        return BROKERS_DEFAULT
    if not re.fullmatch("[0-9]{1,10}", text) or not 1 <= int(text) <= most:
        raise NewTopicProblem(f"{name} is a whole number from 1 to {most}, as {name}=3")
    return int(text)
