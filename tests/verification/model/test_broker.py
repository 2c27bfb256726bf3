"""One broker and its clients: versions, broken bytes, one-shot errors, lagging metadata, throttling, topics that
change."""

from __future__ import annotations

import struct

import pytest

from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, EXACTLY_ONCE, IDEMPOTENCE, lacking
from model.byte_client import Answer, client_of, client_of_topic, decode_response, encode_request, record_batch
from model.settings import API_VERSIONS, INIT_PRODUCER_ID, KAFKA_2_1, KAFKA_3_3, METADATA, PRODUCE, RELEASES
from model.wire import kio_module

NONE, UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER = 0, 3, 5, 6
UNSUPPORTED_VERSION, UNKNOWN_TOPIC_ID = 35, 100


def api_versions_frame(version: int) -> bytes:
    kio_version = kio_module(API_VERSIONS, 3, "request")
    message = kio_version.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = encode_request(API_VERSIONS, 3, 9, message)
    return frame[:2] + version.to_bytes(2, "big") + frame[4:]


def test_api_versions_tells_the_generations_ranges() -> None:
    client = client_of(1, generation=KAFKA_3_3)
    client.cluster.receive(0, 1, api_versions_frame(3), 0)
    ((_, _, frame),) = client.cluster.take_outgoing()
    assert frame is not None
    correlation_id, message = decode_response(API_VERSIONS, 3, frame)
    assert correlation_id == 9
    assert {api.api_key: (api.min_version, api.max_version) for api in message.api_keys} == KAFKA_3_3.api_versions


def test_kafka_2_1_names_no_version_of_api_versions() -> None:
    client = client_of(1, generation=KAFKA_2_1)
    client.cluster.receive(0, 1, api_versions_frame(3), 0)
    ((_, _, frame),) = client.cluster.take_outgoing()
    assert frame is not None
    _, message = decode_response(API_VERSIONS, 0, frame)
    assert (message.error_code, message.api_keys) == (UNSUPPORTED_VERSION, ())


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


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"HTTP/1.1 400 Bad Request", struct.pack(">hhi", PRODUCE, 99, 1), struct.pack(">hhi", 1_000, 0, 1),
        struct.pack(">hhi", METADATA, 12, 1) + b"\xff" * 20, api_versions_frame(3) + b"\0",
    ],
    ids=["empty", "http", "version", "api", "garbage", "surplus"],
)  # fmt: skip
def test_what_is_no_request_ends_the_connection(frame: bytes) -> None:
    client = client_of(1)
    client.cluster.receive(0, 1, frame, 0)
    client.cluster.receive(0, 2, api_versions_frame(3), 0)
    assert [(sent.connection_id, sent.frame is None) for sent in client.cluster.take_outgoing()] == [
        (1, True), (2, False)
    ]  # fmt: skip


GOOD = record_batch(b"a", b"b")


def test_an_answer_has_another_order_than_its_request() -> None:
    client = client_of_topic(1, 1, nodes=1, partitions=3)
    sent = client.produce(0, {("t", partition): GOOD for partition in (0, 2, 1)})
    assert client.produced(sent) == {0: Answer(0, 0), 1: Answer(0, 0), 2: Answer(0, 0)}
    (topic,) = client.answers[sent].responses
    assert [partition.index for partition in topic.partition_responses] == [1, 2, 0]


def test_acks_0_is_not_answered_and_an_error_ends_the_connection() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"a")}, acks=0)
    client.run(100)
    assert (client.answers, client.closed, client.committed()) == ({}, [], [b"a"])
    client.produce(1, {("t", 0): record_batch(b"b")}, acks=0)
    assert (client.answers, client.closed) == ({}, [1])


def test_a_request_can_be_refused_once() -> None:
    client = client_of_topic(1, 1)
    for api_key in (PRODUCE, METADATA, INIT_PRODUCER_ID):
        client.cluster.refuse(0, api_key, 29)
    refused = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.produced(refused) == {0: Answer(29, -1)}
    (topic,) = client.metadata(0, ["t"]).topics
    assert (topic.error_code, topic.partitions) == (29, ())
    assert client.init_producer_id(0) == -1
    taken = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.produced(taken) == {0: Answer(0, 0)}
    assert client.metadata(0, ["t"]).topics[0].error_code == NONE
    assert client.init_producer_id(0) >= 0


def test_what_was_not_used_up_can_be_taken_back() -> None:
    client = client_of_topic(1, 1)
    client.cluster.refuse(0, PRODUCE, 29)
    client.cluster.throttle(0, 300)
    client.cluster.forgive(0)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.produced(sent) == {0: Answer(0, 0)}
    assert client.answers[sent].throttle_time.total_seconds() == 0


def test_producer_ids_are_never_given_twice() -> None:
    client = client_of(3)
    given = [client.init_producer_id(number % 3) for number in range(3_100)]
    client.cluster.crash(1)
    client.cluster.restart(1)
    given += [client.init_producer_id(1) for _ in range(10)]
    assert len(set(given)) == len(given)


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


def test_a_broker_that_comes_back_knows_only_what_was_decided() -> None:
    client = client_of_topic(3, 2, metadata_lag_ms=(500, 500))
    client.cluster.elect("t", 0, 1)
    client.run(500)
    client.cluster.elect("t", 0, 0)
    client.run(200)
    client.cluster.crash(0)
    client.cluster.restart(0)
    for _ in range(2):
        assert client.code(client.produce(0, {("t", 0): record_batch(b"a")}, acks=1)) == NOT_LEADER
        client.run(400)


def test_the_new_leader_is_named_to_who_asks_the_wrong_broker() -> None:
    client = client_of_topic(3, 2)
    sent = client.produce(1, {("t", 0): record_batch(b"a")})
    ((partition,),) = [topic.partition_responses for topic in client.answers[sent].responses]
    assert partition.error_code == NOT_LEADER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (0, 0)


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


def test_a_topic_made_again_is_another_by_id_and_the_same_by_name() -> None:
    client = client_of_topic(1, 1)
    topic_id = client.cluster.topic_id("t")
    client.produce(0, {("t", 0): record_batch(b"old")})
    client.cluster.delete_topic("t")
    client.cluster.create_topic("t", 1, 1)
    client.run(100)
    assert client.committed() == []
    assert client.code(client.produce(0, {("t", 0): record_batch(b"a")}, topic_id=topic_id)) == UNKNOWN_TOPIC_ID
    client.produce_version = 12
    assert client.code(client.produce(0, {("t", 0): record_batch(b"b")})) == NONE
    assert client.committed() == [b"b"]


def test_a_topic_grows() -> None:
    client = client_of_topic(1, 1)
    client.cluster.add_partitions("t", 3)
    assert client.code(client.produce(1, {("t", 1): record_batch(b"a")}), 1) == UNKNOWN_TOPIC
    client.run(100)
    assert client.code(client.produce(1, {("t", 1): record_batch(b"a")}), 1) == NONE
    assert len(client.metadata(0, ["t"]).topics[0].partitions) == client.cluster.partition_count("t") == 3
