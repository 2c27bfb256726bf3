"""A partition of a topic by the topic's name, and topic ids (KIP-516)."""

from __future__ import annotations

from typing import NamedTuple, TypeVar


class TopicPartition(NamedTuple):
    topic: str
    partition: int


Id = TypeVar("Id")


def ids_differ(first: Id | None, second: Id | None) -> bool:
    """Return True if both ids are known and differ: the topic was deleted and created again.

    Brokers before Kafka 2.8 have no ids, also while a cluster is upgraded. So an unknown id says nothing about the
    topic."""
    return first is not None and second is not None and first != second
