"""The seam: bytes in, bytes out, time from outside, and nothing left to chance but the seed."""

from __future__ import annotations

import random
import uuid

import pytest

from kafka_sink.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest, ProduceResponse
from kafka_sink.kafka.protocol.requests import Request, Response, decode_response, encode_request, select_version
from model.broker import Outgoing
from model.byte_client import Answer, ByteClient, client_of, client_of_topic, record_batch
from model.cluster import Cluster
from model.settings import (
    API_VERSIONS,
    KAFKA_2_1,
    KAFKA_2_8,
    KAFKA_3_3,
    KAFKA_4,
    METADATA,
    PRODUCE,
    ClusterSettings,
    Generation,
)


def test_what_is_produced_is_committed_and_acknowledged_with_its_offset() -> None:
    client = client_of_topic(3, 2)
    ids = {"producer_id": client.init_producer_id(0), "producer_epoch": 0}
    first = client.produce(0, {("t", 0): record_batch(b"a", b"b", base_sequence=0, **ids)})
    assert client.produced(first) is None
    client.run(100)
    second = client.produce(0, {("t", 0): record_batch(b"c", base_sequence=2, **ids)})
    client.run(100)
    assert client.produced(first) == {0: Answer(0, 0)}
    assert client.produced(second) == {0: Answer(0, 2)}
    assert client.committed() == [b"a", b"b", b"c"]


def test_a_cluster_at_rest_plans_nothing() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.cluster.next_event_ms() is not None
    client.run(100)
    assert client.cluster.next_event_ms() is None


def history(seed: int) -> tuple[list[Outgoing], list[bytes]]:
    """Everything that a cluster sends and keeps in some seconds with faults."""
    client = client_of_topic(3, 2, seed=seed, partitions=2)
    sent: list[Outgoing] = []
    take_outgoing = client.cluster.take_outgoing

    def recorded() -> list[Outgoing]:
        taken = take_outgoing()
        sent.extend(taken)
        return taken

    client.cluster.take_outgoing = recorded  # type: ignore[method-assign]
    for number in range(20):
        client.produce(number % 3, {("t", 0): record_batch(b"%d" % number), ("t", 1): record_batch(b"x")})
        client.run(3)
        if number == 5:
            client.cluster.crash(0)
        if number == 10:
            client.run(1_000)
            client.cluster.restart(0)
    client.run(1_000)
    replica = client.cluster.replica("t", 0, 1)
    assert replica is not None
    return sent, [batch.data for batch in replica.log.batches]


def test_a_seed_decides_every_byte() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)


@pytest.mark.parametrize(("generation", "highest"), [(KAFKA_2_1, 7), (KAFKA_2_8, 9), (KAFKA_3_3, 9), (KAFKA_4, 13)])
def test_the_clients_own_bytes_are_understood_and_it_understands_the_answers(
    generation: Generation, highest: int
) -> None:
    cluster = Cluster(node_ids=(0,), rng=random.Random(1), settings=ClusterSettings(generation=generation))
    topic_id = cluster.create_topic("t", 1, 1)
    cluster.advance(1_000)

    def ask(request: Request, version: int) -> Response:
        frame = b"".join(encode_request(request, version=version, correlation_id=5, client_id="me"))[4:]
        cluster.receive(0, 1, frame, cluster.now_ms)
        cluster.advance(cluster.now_ms + 100)
        (outgoing,) = cluster.take_outgoing()
        assert outgoing.frame is not None
        assert outgoing.frame[:4] == (5).to_bytes(4, "big")
        return decode_response(request, version, outgoing.frame)

    versions = ask(ApiVersionsRequest("kafka-sink", "1.0"), min(3, generation.api_versions[API_VERSIONS][1]))
    assert isinstance(versions, ApiVersionsResponse)
    produce = ProduceRequest(-1, 1_000, (ProducePartition("t", 0, topic_id, record_batch(b"a", b"b")),))
    metadata = MetadataRequest(("t", "absent"), allow_auto_topic_creation=False)
    init = InitProducerIdRequest(60_000)
    selected = {request: select_version(request, versions.ranges) for request in (produce, metadata, init)}
    assert selected[produce] == highest
    answers = [ask(request, version) for request, version in selected.items() if version is not None]
    assert [type(answer).__name__ for answer in answers] == [
        "ProduceResponse", "MetadataResponse", "InitProducerIdResponse"
    ]  # fmt: skip
    produced, told, got = answers
    assert isinstance(produced, ProduceResponse)
    assert [(result.error_code, result.base_offset) for result in produced.partitions] == [(0, 0)]
    assert isinstance(told, MetadataResponse)
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in told.topics] == [
        ("t", 0, topic_id if generation.has_topic_ids else None), ("absent", 3, None)
    ]  # fmt: skip
    assert [broker.node_id for broker in told.brokers] == [0]
    assert isinstance(got, InitProducerIdResponse)
    assert (got.error_code, got.producer_epoch) == (0, 0)


def test_a_broker_that_is_down_closes_what_comes() -> None:
    client = client_of_topic(3, 2)
    client.cluster.crash(0)
    assert not client.cluster.is_alive(0)
    client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.closed == [0]


def test_requests_are_executed_although_their_client_is_gone() -> None:
    client = client_of_topic(3, 2)
    first = client.produce(0, {("t", 0): record_batch(b"a")})
    second = client.produce(0, {("t", 0): record_batch(b"b")})
    client.disconnect(0)
    client.run(200)
    assert client.committed() == [b"a", b"b"]
    assert client.produced(first) is client.produced(second) is None


def test_any_number_of_requests_may_wait_behind_one() -> None:
    client = client_of_topic(3, 1)
    client.cluster.create_topic("alone", 1, 1)
    client.run(100)
    waiting = client.produce(0, {("t", 0): record_batch(b"a")})
    behind = [client.produce(0, {("alone", 0): record_batch(b"b")}) for _ in range(2_000)]
    client.run_until(lambda: client.produced(waiting) is not None)
    assert [client.produced(sent) for sent in behind] == [{0: Answer(0, offset)} for offset in range(2_000)]


def test_requests_of_a_connection_are_answered_one_after_the_other() -> None:
    client = client_of_topic(3, 2)
    waiting = client.produce(0, {("t", 0): record_batch(b"a")})
    behind = client.produce(0, {("t", 0): record_batch(b"b")}, acks=1)
    assert client.cluster.log_end_offset("t", 0, 0) == 1
    client.run_until(lambda: client.produced(waiting) is not None)
    assert client.produced(behind) == {0: Answer(0, 1)}


def test_a_topic_has_an_id_of_its_own_each_time() -> None:
    client = client_of(1)
    first = client.cluster.create_topic("t", 1, 1)
    client.cluster.delete_topic("t")
    second = client.cluster.create_topic("t", 1, 1)
    assert isinstance(first, uuid.UUID)
    assert first != second == client.cluster.topic_id("t")


def test_a_topic_gets_its_id_when_brokers_are_upgraded() -> None:
    client = client_of_topic(2, 1, nodes=2, generation=KAFKA_2_1, metadata_lag_ms=(50, 50))
    assert append_to(client, KAFKA_2_1) == 0

    def told(node_id: int) -> uuid.UUID | None:
        version = client.cluster.replicas[node_id].generation.api_versions[METADATA][1]
        return getattr(client.metadata(node_id, ["t"], version=version).topics[0], "topic_id", None)

    client.cluster.crash(0)
    client.cluster.install(0, KAFKA_2_8)
    client.run(2_000)
    client.cluster.restart(0)
    assert told(0) is None
    client.cluster.assign_topic_ids()
    assert told(0) is None  # it has not heard of it yet
    client.run(50)
    assert told(0) == client.cluster.topic_id("t")
    assert told(1) is None
    client.run(2_000)
    client.cluster.elect("t", 0, 0)
    client.run(1_000)
    # What the older leader wrote is there, and what it knew of its producer.
    assert append_to(client, KAFKA_2_8) == 1


def append_to(client: ByteClient, generation: Generation) -> int:
    """The offset of the producer's next batch, at the leader."""
    leader = client.cluster.leader("t", 0)
    assert leader is not None
    sequence = client.cluster.log_end_offset("t", 0, leader)
    client.produce_version = generation.api_versions[PRODUCE][1]
    sent = client.produce(
        leader, {("t", 0): record_batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)}
    )
    client.run(100)
    answer = client.produced(sent)
    assert answer is not None
    assert answer[0].code == 0
    return answer[0].base_offset
