"""The model of Kafka answers a trace of Produce requests as a real broker does: code by code, offset by offset."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from fidelity.kinds import DEADLINE_S, Ask, BrokerConnection, address_of
from kafka_sink.broker import LocalKafka
from model.byte_client import decode_response, encode_request
from model.cluster import Cluster
from model.produce_trace import MAX_MESSAGE_BYTES, Step, broken_batches, run
from model.settings import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, ClusterSettings
from model.wire import build, kio_module
from waiting import wait_until


def ask_model(cluster: Cluster) -> Ask:
    connections = iter(range(10**6))

    def ask(frame: bytes) -> bytes | None:
        cluster.receive(0, next(connections), frame, cluster.now_ms)
        while not (outgoing := cluster.take_outgoing()):
            due_ms = cluster.next_event_ms()
            assert due_ms is not None
            cluster.advance(due_ms)
        return outgoing[0].frame

    return ask


def call(ask: Ask, api_key: int, version: int, message: Any) -> Any:
    frame = ask(encode_request(api_key, version, 1, message))
    return decode_response(api_key, version, frame)[1] if frame is not None else None


def init_producer_id(ask: Ask) -> int:
    kio_version = kio_module(INIT_PRODUCER_ID, 4, "request")
    message = build(kio_version.InitProducerIdRequest, transactional_id=None, transaction_timeout=timedelta(seconds=60))
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        answer = call(ask, INIT_PRODUCER_ID, 4, message)
        # A broker that just started waits for its first block of ids (COORDINATOR_LOAD_IN_PROGRESS).
        if answer.error_code == 0:
            return int(answer.producer_id)
    raise AssertionError(f"no producer id, but error code {answer.error_code}")


def topic_id_of(ask: Ask, topic: str) -> uuid.UUID | None:
    kio_version = kio_module(METADATA, 12, "request")
    asked = (kio_version.MetadataRequestTopic(topic_id=None, name=topic),)
    message = kio_version.MetadataRequest(
        topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    found: uuid.UUID | None = call(ask, METADATA, 12, message).topics[0].topic_id
    return found


def sender(ask: Ask, version: int, topic: str, topic_id: uuid.UUID | None) -> Callable[[Step], tuple[int, int] | None]:
    kio_version = kio_module(PRODUCE, version, "request")

    def send(step: Step) -> tuple[int, int] | None:
        data = kio_version.PartitionProduceData(index=step.partition, records=step.records)
        topic_data = build(kio_version.TopicProduceData, name=topic, topic_id=topic_id, partition_data=(data,))
        message = kio_version.ProduceRequest(
            transactional_id=None, acks=step.acks, timeout=timedelta(seconds=10), topic_data=(topic_data,)
        )
        answer = call(ask, PRODUCE, version, message)
        if answer is None:
            return None
        ((partition,),) = [found.partition_responses for found in answer.responses]
        return int(partition.error_code), partition.base_offset

    return send


def answers(ask: Ask, version: int, topic: str) -> dict[str, tuple[int, int] | None]:
    send = sender(ask, version, topic, topic_id_of(ask, topic))
    refused = next(broken_batches())
    # A new topic's leader does not know at once that it is: NOT_LEADER_OR_FOLLOWER.
    wait_until(lambda: (answer := send(refused)) and answer[0] != 6, DEADLINE_S, "a broker leads the topic")
    answered = run(send, init_producer_id(ask), init_producer_id(ask))
    stranger = sender(ask, version, "nobody-made-this", uuid.UUID(int=4711))
    answered["unknown topic"] = stranger(Step("unknown topic", b""))
    return answered


@pytest.fixture
def ask_broker(kafka: LocalKafka) -> Iterator[Ask]:
    connection = BrokerConnection(address_of(kafka))
    yield connection
    connection.close()


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_trace_of_produce_requests_is_answered_alike(
    ask_broker: Ask, topic: Callable[..., str], version: int
) -> None:
    name = topic(config={"max.message.bytes": str(MAX_MESSAGE_BYTES)})
    cluster = Cluster(node_ids=(0,), rng=random.Random(1), settings=ClusterSettings())
    cluster.create_topic(name, 1, 1, max_message_bytes=MAX_MESSAGE_BYTES)
    cluster.advance(1_000)
    real = answers(ask_broker, version, name)
    assert {answer[0] for answer in real.values() if answer is not None} >= {0, 2, 3, 10, 21, 45, 47, 87}
    assert answers(ask_model(cluster), version, name) == real


def test_what_is_no_request_is_met_alike(ask_broker: Ask) -> None:
    kio_version = kio_module(API_VERSIONS, 3, "request")
    message = kio_version.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    good = encode_request(API_VERSIONS, 3, 1, message)
    frames = [good[:2] + (99).to_bytes(2, "big") + good[4:], good[:1], b"\x03\xe8" + good[2:], good[:9] + b"\xff" * 9]
    cluster = Cluster(node_ids=(0,), rng=random.Random(1), settings=ClusterSettings())
    for frame in frames:
        real, modelled = ask_broker(frame), ask_model(cluster)(frame)
        assert (real is None) == (modelled is None)
        if real is not None and modelled is not None:
            # Correlation id, error code, and the one API that the client may go on with.
            assert decode_response(API_VERSIONS, 0, real)[1].error_code == 35
            assert modelled == real
