"""The doubles of services: other clients can write to them, and they refuse what the services refuse."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from certificates import Authority
from kafka_services import EVENT_HUBS_PREMIUM, EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM, Service, ServiceDouble
from model.byte_client import decode_response, encode_request, record_batch
from model.settings import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
)
from model.wire import build, kio_module

CA = Authority()
PASSWORD = "Endpoint=sb://demo.servicebus.windows.net/;SharedAccessKey=c2VjcmV0"
EVERY_SERVICE = (EVENT_HUBS_STANDARD, EVENT_HUBS_PREMIUM, REDPANDA, WARPSTREAM)
UNSUPPORTED_VERSION, UNSUPPORTED_FOR_MESSAGE_FORMAT = 35, 43
DEADLINE_S = 10


@contextmanager
def double(service: Service) -> Iterator[ServiceDouble]:
    secured: dict[str, Any] = {"identity": CA.issue("broker"), "password": PASSWORD} if service.username else {}
    with ServiceDouble(service, **secured) as served:
        yield served


def settings(served: ServiceDouble, **more: Any) -> dict[str, Any]:
    """Of librdkafka."""
    given = {"bootstrap.servers": served.bootstrap_servers, "message.timeout.ms": 1_000 * DEADLINE_S, "log_level": 0}
    if served.service.username:
        given |= {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": served.service.username,
            "sasl.password": PASSWORD, "ssl.ca.pem": CA.certificate,
        }  # fmt: skip
    return given | {name.replace("_", "."): value for name, value in more.items()}


def produce(producer: Producer, *values: bytes) -> list[Any]:
    """Return the error of each delivery, None for one that succeeded."""
    errors: list[Any] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return errors


@pytest.mark.parametrize("service", EVERY_SERVICE, ids=lambda service: service.name)
def test_another_client_writes_to_it(service: Service) -> None:
    with double(service) as served:
        served.create_topic("t", 2)
        values = [str(number).encode() for number in range(100)]
        assert produce(Producer(settings(served, enable_idempotence=True)), *values) == [None] * 100
        assert sorted(record.value or b"" for record in served.records("t")) == sorted(values)
        assert served.hung_up == []


@pytest.mark.parametrize(("service", "refused", "taken"), [
    (EVENT_HUBS_PREMIUM, "lz4", {"gzip"}), (EVENT_HUBS_STANDARD, "gzip", set()),
])  # fmt: skip
def test_it_refuses_another_codec(service: Service, refused: str, taken: set[str]) -> None:
    with double(service) as served:
        served.create_topic("t")
        (error,) = produce(Producer(settings(served, compression_type=refused)), b"z" * 1_000)
        assert error.code() == UNSUPPORTED_FOR_MESSAGE_FORMAT
        for codec in taken:
            assert produce(Producer(settings(served, compression_type=codec)), b"z" * 1_000) == [None]
        assert served.codecs("t") == {1} if taken else served.records("t") == []


class Talk:
    """One connection without TLS."""

    def __init__(self, served: ServiceDouble) -> None:
        host, port = served.bootstrap_servers.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> bytes | None:
        """Return the answer without its size; None if the service closes the connection."""
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self.receive()

    def receive(self) -> bytes | None:
        size = int.from_bytes(self._read(4), "big")
        return self._read(size) if size else None

    def begin(self, size: int) -> bytes:
        """Announce a request of this size; return what comes before the end of the connection."""
        self._socket.sendall(size.to_bytes(4, "big"))
        return self._read(1)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self._socket.recv(count - len(data))):
            data += more
        return data


def a_request(api_key: int, version: int, name: str, **fields: Any) -> bytes:
    kio_version = kio_module(api_key, version, "request")
    return encode_request(api_key, version, 7, build(getattr(kio_version, f"{name}Request"), **fields))


def which_versions(version: int) -> bytes:
    return a_request(API_VERSIONS, version, "ApiVersions", client_software_name="test", client_software_version="1")


OPEN = {service.name: replace(service, username=None) for service in EVERY_SERVICE}


@pytest.fixture(params=EVERY_SERVICE, ids=lambda service: service.name)
def served(request: pytest.FixtureRequest) -> Iterator[ServiceDouble]:
    with ServiceDouble(OPEN[request.param.name]) as running:
        yield running


def test_it_lists_its_ranges_and_no_others(served: ServiceDouble) -> None:
    with Talk(served) as talk:
        _, message = decode_response(API_VERSIONS, 3, talk.send(which_versions(3)) or b"")
    listed = {api.api_key: (api.min_version, api.max_version) for api in message.api_keys}
    assert listed == served.service.api_versions
    assert message.finalized_features == ()


def test_a_version_above_the_range_closes_the_connection(served: ServiceDouble) -> None:
    _, highest = served.service.api_versions[METADATA]
    metadata = a_request(
        METADATA, highest + 1, "Metadata", topics=(), allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
    )  # fmt: skip
    with Talk(served) as talk:
        assert talk.send(metadata) is None
    assert served.hung_up == [f"API 3 version {highest + 1} is not offered"]


@pytest.mark.parametrize(
    ("name", "listed"), [("WarpStream", 1), ("Redpanda", len(REDPANDA.api_versions)), (EVENT_HUBS_STANDARD.name, None)]
)
def test_a_too_new_api_versions_is_answered_in_version_0_or_ends_the_connection(name: str, listed: int | None) -> None:
    too_new = API_VERSIONS.to_bytes(2, "big") + (9).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff\0"
    with ServiceDouble(OPEN[name]) as served, Talk(served) as talk:
        answer = talk.send(too_new)
        if listed is None:
            assert answer is None
            return
        correlation_id, message = decode_response(API_VERSIONS, 0, answer or b"")
        assert (correlation_id, int(message.error_code)) == (7, UNSUPPORTED_VERSION)
        assert len(message.api_keys) == listed
        # The client asks again over the same connection.
        assert talk.send(which_versions(3)) is not None


def test_a_request_above_the_limit_closes_the_connection(served: ServiceDouble) -> None:
    limit = served.service.max_request_bytes
    with Talk(served) as talk:
        assert talk.begin(limit + 1) == b""
    assert served.hung_up == [f"a request of {limit + 1} bytes"]


def _produce(value: bytes) -> bytes:
    kio_version = kio_module(PRODUCE, 7, "request")
    data = kio_version.PartitionProduceData(index=0, records=record_batch(value))
    topic = kio_version.TopicProduceData(name="t", partition_data=(data,))
    message = kio_version.ProduceRequest(
        transactional_id=None, acks=-1, timeout=timedelta(seconds=5), topic_data=(topic,)
    )
    return encode_request(PRODUCE, 7, 7, message)


@pytest.mark.parametrize("handshake", [None, 0])
def test_nothing_is_executed_before_the_login(handshake: int | None) -> None:
    """After a handshake of version 0 a token has no header."""
    with ServiceDouble(EVENT_HUBS_STANDARD, password=PASSWORD) as served, Talk(served) as talk:
        served.create_topic("t")
        assert talk.send(which_versions(3)) is not None
        if handshake is not None:
            talk.send(a_request(SASL_HANDSHAKE, handshake, "SaslHandshake", mechanism="PLAIN"))
            assert talk.send(f"\0$ConnectionString\0{PASSWORD}".encode()) is None  # an answer without bytes
        assert (talk.send(_produce(b"v")) is None) is (handshake is None)
        assert len(served.records("t")) == (handshake is not None)
