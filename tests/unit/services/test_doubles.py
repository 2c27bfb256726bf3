"""The doubles of services: other clients can write to them, and they refuse codecs that the services refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from certificates import Authority
from kafka_services import EVENT_HUBS_PREMIUM, EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM, Service, ServiceDouble

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


OPEN = {service.name: replace(service, username=None) for service in EVERY_SERVICE}


@pytest.fixture(params=EVERY_SERVICE, ids=lambda service: service.name)
def served(request: pytest.FixtureRequest) -> Iterator[ServiceDouble]:
    with ServiceDouble(OPEN[request.param.name]) as running:
        yield running
