"""Batch writes with real Spark to a real broker, of each guarantee, while a proxy between them cuts, delays, half-sends
and swallows requests and answers: every row is there once, and nothing is ended for it.

`test_streams_under_faults.py` does more of it, with three brokers of each version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from chaos.proxy import Address, Direction, Kind, Proxies, Schedule
from chaos.streams import EXACTLY_ONCE, GUARANTEES
from committed_rows import open_transactions, read
from kafka_sink.broker import LocalKafka
from spark_writes import pykafka

pytestmark = pytest.mark.long

LISTENER = "PROXIED"
ROWS = 10_000
# With leading zeros, for size: a task takes some requests.
NUMBER = "lpad(CAST(id AS STRING), 100, '0')"
# What is swallowed costs a request's time.
OPTIONS = {"request_timeout_ms": "1000", "batch_size": "16384", "linger_ms": "0", "compression_type": "none"}
MOST_WRITES = 10
HARM = Schedule(1, {(direction, kind): 8 for direction in Direction for kind in Kind})


@contextmanager
def broker_behind_a_proxy() -> Iterator[tuple[LocalKafka, Proxies]]:
    def address_of(_: int) -> Address:
        host, port = kafka.addresses_of(LISTENER).split(":")
        return host, int(port)

    with Proxies((1,), address_of) as proxies:
        kafka = LocalKafka(listeners={LISTENER: "PLAINTEXT"}, advertised={LISTENER: proxies.ports})
        with kafka:
            yield kafka, proxies


def test_every_row_is_there_once_whatever_happens_to_messages(spark: SparkSession) -> None:
    with broker_behind_a_proxy() as (kafka, proxies):
        for guarantee in GUARANTEES:
            kafka.create_topic(guarantee, 3)
        writes = 0
        with proxies.harm(HARM):
            # Until each thing has happened.
            while len(proxies.happened) < len(HARM.per_thousand):
                assert writes < MOST_WRITES, proxies.happened
                rows = spark.range(writes * ROWS, (writes + 1) * ROWS, 1, 2).selectExpr(f"{NUMBER} AS value")
                for guarantee in GUARANTEES:
                    writer = pykafka(rows.write.mode("append"), proxies.bootstrap_servers, guarantee, **OPTIONS)
                    writer.option("deliveryGuarantee", guarantee).option("transactionalIdPrefix", guarantee).save()
                writes += 1
        for guarantee in GUARANTEES:
            assert read(kafka, guarantee) == Counter(range(writes * ROWS))
        assert open_transactions(kafka, EXACTLY_ONCE) == []
