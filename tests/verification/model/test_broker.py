"""One broker and its clients: versions, lagging metadata, throttling, the order of answers."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE, lacking
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE
from model.clients import Answer, client_of_topic, record_batch
from model.settings import RELEASES

NONE, UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER = 0, 3, 5, 6


@pytest.mark.parametrize(
    ("release", "kept"),
    [
        ("2.1.1", {"at-least-once", "idempotence"}),
        ("2.8.2", {"at-least-once", "idempotence"}),
        ("3.0.2", {"at-least-once", "idempotence", "exactly-once"}),
        ("4.3.1", {"at-least-once", "idempotence", "exactly-once"}),
    ],
)
def test_what_a_release_offers_is_enough_for_these_guarantees(release: str, kept: set[str]) -> None:
    ranges = RELEASES[release].api_versions
    guarantees = (AT_LEAST_ONCE, IDEMPOTENCE, EXACTLY_ONCE)
    assert {guarantee.name for guarantee in guarantees if not lacking(ranges, guarantee)} == kept


def test_acks_0_is_not_answered_and_an_error_ends_the_connection() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"a")}, acks=0)
    client.run(100)
    assert (client.answers, client.closed, client.committed()) == ({}, [], [b"a"])
    client.produce(1, {("t", 0): record_batch(b"b")}, acks=0)
    assert (client.answers, client.closed) == ({}, [1])


def test_a_broker_acts_by_the_metadata_it_has() -> None:
    client = client_of_topic(3, 2, metadata_lag_ms=(500, 500))
    client.cluster.elect("t", 0, 1)
    client.run(499)
    # The old leader still answers, the new one does not know yet; what the old one takes now is lost.
    assert client.metadata(2, ["t"]).topics[0].partitions[0].leader_id == 0
    assert client.code(client.produce(1, {("t", 0): record_batch(b"early")}, acks=1)) == NOT_LEADER
    assert client.code(client.produce(0, {("t", 0): record_batch(b"zombie")}, acks=1)) == NONE
    client.run(1)
    assert client.code(client.produce(0, {("t", 0): record_batch(b"late")}, acks=1)) == NOT_LEADER
    assert client.code(client.produce(1, {("t", 0): record_batch(b"right")}, acks=1)) == NONE
    assert client.metadata(2, ["t"]).topics[0].partitions[0].leader_id == 1
    client.run(100)
    assert client.committed() == [b"right"]


def test_a_leader_that_does_not_know_it_was_replaced_commits_nothing() -> None:
    client = client_of_topic(3, 2, metadata_lag_ms=(500, 500))
    client.cluster.isolate(1)
    client.cluster.isolate(2)
    client.cluster.elect("t", 0, 1)
    client.run(499)
    sent = client.produce(0, {("t", 0): record_batch(b"zombie")})
    client.cluster.isolate(1, False)
    client.cluster.isolate(2, False)
    client.run(1_000)
    assert client.code(sent) == NOT_LEADER
    assert client.committed() == []


def test_a_leader_that_does_not_know_it_was_replaced_cannot_shrink_the_isr() -> None:
    client = client_of_topic(3, 2, metadata_lag_ms=(500, 500), replica_lag_time_max_ms=100)
    client.cluster.isolate(1)
    client.cluster.isolate(2)
    client.cluster.elect("t", 0, 1)
    client.produce(0, {("t", 0): record_batch(b"zombie")}, acks=1)
    client.run(400)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)


def test_a_partition_without_a_leader_is_told_so() -> None:
    client = client_of_topic(1, 1, nodes=2)
    client.cluster.crash(0)
    client.run(2_000)
    answer = client.metadata(1, None)
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (NO_LEADER, -1, (0,))
    assert [broker.node_id for broker in answer.brokers] == [1]


def test_a_throttled_connection_is_told_so_and_not_read_until_the_time_is_over() -> None:
    client = client_of_topic(1, 1)
    client.cluster.throttle(0, 300)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.answers[sent].throttle_time.total_seconds() == 0.3
    early = client.produce(0, {("t", 0): record_batch(b"b")})
    client.run(299)
    assert client.produced(early) is None
    assert client.cluster.log_end_offset("t", 0, 0) == 1
    client.run(1)
    assert client.produced(early) == {0: Answer(0, 1)}
    assert client.answers[early].throttle_time.total_seconds() == 0


def test_requests_are_executed_although_their_client_is_gone() -> None:
    client = client_of_topic(3, 2)
    first = client.produce(0, {("t", 0): record_batch(b"a")})
    second = client.produce(0, {("t", 0): record_batch(b"b")})
    client.disconnect(0)
    client.run(200)
    assert client.committed() == [b"a", b"b"]
    assert client.produced(first) is client.produced(second) is None


def test_requests_of_a_connection_are_answered_one_after_the_other() -> None:
    client = client_of_topic(3, 2)
    waiting = client.produce(0, {("t", 0): record_batch(b"a")})
    behind = client.produce(0, {("t", 0): record_batch(b"b")}, acks=1)
    assert client.cluster.log_end_offset("t", 0, 0) == 1
    client.run_until(lambda: client.produced(waiting) is not None)
    assert client.produced(behind) == {0: Answer(0, 1)}
