"""Quotas of connections (KIP-612): producers that start at once wait for their turn, however often they are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pytest

from committed_rows import read_values
from kafka_sink.kafka.client import Producer
from kafka_sink.options.config import sink_config
from secure_kafka import SecureKafka

pytestmark = pytest.mark.long

PRODUCERS = 30
# Brokers let ten seconds' worth pass before they refuse (quota.window.num). Ten more producers need 10 s, in which the
# last is refused more often than a TLS client was once willing to bear.
PER_S = 2


def limit(secure: SecureKafka, *change: str) -> None:
    secure.kafka.run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", secure.kafka.bootstrap_servers, "--alter", *change
    )


@pytest.fixture
def limited(secure: SecureKafka) -> Iterator[SecureKafka]:
    host = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    limit(secure, *host, "--add-config", f"connection_creation_rate={PER_S}")
    yield secure
    limit(secure, *host, "--delete-config", "connection_creation_rate")


@pytest.mark.parametrize("tls", [pytest.param(False, marks=pytest.mark.long), True], ids=["plaintext", "tls"])
def test_producers_that_start_at_once(limited: SecureKafka, tls: bool) -> None:
    topic = f"quota-{tls}"
    limited.kafka.create_topic(topic, 1)
    options = limited.tls() if tls else {"kafka.bootstrap.servers": limited.kafka.bootstrap_servers}

    def write(number: int) -> None:
        with closing(Producer(sink_config(options).producer)) as producer:
            write = producer.begin(topic=topic)
            write.append(pa.record_batch({"value": [b"%d" % number]}))
            write.finish()

    began = time.monotonic()
    with ThreadPoolExecutor(PRODUCERS) as threads:
        list(threads.map(write, range(PRODUCERS)))
    assert time.monotonic() - began > 5
    assert read_values(limited.kafka, topic).keys() == {b"%d" % number for number in range(PRODUCERS)}
