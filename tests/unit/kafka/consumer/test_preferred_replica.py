"""Whom a reader with a rack fetches from: what the leader names, for a while, unless it was in trouble."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.consumer.preferred_replica import PreferredReplica
from kafka_sink.kafka.metadata import NO_LEADER

LEADER, NEARER = 1, 2
MAX_AGE_MS = 1_000


@pytest.fixture
def replica() -> PreferredReplica:
    return PreferredReplica("a", MAX_AGE_MS)


def test_there_is_none_at_first(replica: PreferredReplica) -> None:
    assert (replica.node, replica.rack(0)) == (NO_LEADER, "a")


def test_the_leader_names_one_for_a_while(replica: PreferredReplica) -> None:
    assert replica.named(NEARER, LEADER, 500)
    replica.expire(500 + MAX_AGE_MS - 1)
    assert replica.node == NEARER
    replica.expire(500 + MAX_AGE_MS)
    assert (replica.node, replica.rack(500 + MAX_AGE_MS)) == (NO_LEADER, "a")


def test_after_trouble_it_is_left_alone_for_as_long(replica: PreferredReplica) -> None:
    replica.named(NEARER, LEADER, 0)
    replica.failed(500)
    assert (replica.node, replica.rack(500 + MAX_AGE_MS - 1), replica.rack(500 + MAX_AGE_MS)) == (NO_LEADER, "", "a")


def test_trouble_of_the_leader_is_none_of_a_replica(replica: PreferredReplica) -> None:
    replica.failed(500)
    assert replica.rack(501) == "a"
