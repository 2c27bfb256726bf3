"""A partition of a topic, by the topic's name."""

from __future__ import annotations

from typing import NamedTuple, TypeVar


class TopicPartition(NamedTuple):
    topic: str
    partition: int


# --- topic ids --------------------------------------------------------------------------------------------------------
# Topic ids (KIP-516): a topic that is deleted and created again has the same name and another id.
#
# Brokers before Kafka 2.8 have no ids. While a cluster is upgraded from there, a topic gets an id, and a broker that is
# not upgraded yet still names none. So an unknown id says nothing about the topic.

Id = TypeVar("Id")


def ids_differ(first: Id | None, second: Id | None) -> bool:
    """Return True if both ids are known and differ: the second is of another topic."""
    return first is not None and second is not None and first != second
