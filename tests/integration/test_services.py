"""Spark writes to the doubles of services that are no Apache Kafka; kafka-python reads what they stored.

At-least-once works with the options of docs/compatibility.md. Exactly-once works where the APIs are there, and is
refused by the name of the one that is missing where they are not, before any row is sent.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from certificates import Authority
from code_blocks import ROOT, run_python
from effort import variants
from kafka_services import EVENT_HUBS_PREMIUM, EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM, Service, ServiceDouble
from kafka_sink.command_line import preset
from model.settings import PRODUCE
from spark_writes import finish, start
from waiting import wait_until

CA = Authority()
CONNECTION_STRING = "Endpoint=sb://demo.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0PQ=="
EVENT_HUBS = ROOT / "conf" / "event-hubs.conf"
NONE, GZIP, ZSTD = 0, 1, 4
TOPIC = "orders"
ROWS = 2_000
DEADLINE_S = 30


@contextmanager
def served(service: Service, *, partitions: int = 2) -> Iterator[ServiceDouble]:
    secured: dict[str, Any] = (
        {"identity": CA.issue("broker"), "password": CONNECTION_STRING} if service.username else {}
    )
    with ServiceDouble(service, **secured) as double:
        if partitions:
            double.create_topic(TOPIC, partitions)
        yield double


def options(double: ServiceDouble, **more: str) -> dict[str, str]:
    """What docs/compatibility.md says for the service, and `more` with underscores for dots."""
    given = {"kafka.bootstrap.servers": double.bootstrap_servers, "topic": TOPIC}
    if double.service.username:
        trust = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": CA.certificate}
        given |= preset(str(EVENT_HUBS)) | {"kafka.sasl.password": CONNECTION_STRING} | trust
    return given | {name.replace("_", "."): value for name, value in more.items()}


def write(frame: DataFrame, given: dict[str, str]) -> None:
    frame.write.format("pykafka").mode("append").options(**given).save()


def exactly_once(version: int) -> dict[str, str]:
    return {"deliveryGuarantee": "exactly-once", "txnAppId": "orders", "txnVersion": str(version)}


def rows_of(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(count).selectExpr("CAST(id AS STRING) AS key", "concat('row ', id) AS value")


def expected(count: int = ROWS) -> Counter[tuple[bytes, bytes]]:
    return Counter((str(number).encode(), f"row {number}".encode()) for number in range(count))


def stored(double: ServiceDouble) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((record.key, record.value) for record in double.records(TOPIC))


@pytest.mark.parametrize(
    ("service", "more", "codec"),
    [
        (EVENT_HUBS_STANDARD, {}, NONE),
        pytest.param(EVENT_HUBS_PREMIUM, {"kafka_compression_type": "gzip"}, GZIP, marks=pytest.mark.long),
        (REDPANDA, {}, ZSTD),
        (WARPSTREAM, {}, ZSTD),
    ],
    ids=lambda value: value.name if isinstance(value, Service) else None,
)
def test_every_row_is_stored_once(spark: SparkSession, service: Service, more: dict[str, str], codec: int) -> None:
    with served(service) as double:
        write(rows_of(spark), options(double, **more))
        assert stored(double) == expected()
        assert double.codecs(TOPIC) == {codec}
        assert double.hung_up == []


def large_rows(spark: SparkSession) -> tuple[DataFrame, list[bytes]]:
    """Rows that do not compress, of up to 900 kB, 12 MB together. The small ones fill a batch to its last bytes."""
    random_bytes = random.Random(1).randbytes
    values = [random_bytes(size) for size in [900_000] * 4 + [10_000] * 240 + [1_000] * 6_000]
    return spark.createDataFrame([(value,) for value in values], "value BINARY"), values


@pytest.mark.long
def test_large_rows_stay_below_the_limit_of_event_hubs(spark: SparkSession) -> None:
    frame, values = large_rows(spark)
    with served(EVENT_HUBS_STANDARD) as double:
        write(frame, options(double))
        assert Counter(record.value for record in double.records(TOPIC)) == Counter(values)
        assert double.hung_up == []


@pytest.mark.long
def test_the_defaults_exceed_the_limit_of_event_hubs(spark: SparkSession) -> None:
    """Which is why the preset is there."""
    frame, _ = large_rows(spark)
    defaults = {"kafka_max_request_size": "1048576", "kafka_batch_size": "1048576"}
    short = {"kafka_request_timeout_ms": "1000", "kafka_delivery_timeout_ms": "3000"}
    with served(EVENT_HUBS_STANDARD) as double:
        with pytest.raises(PySparkException, match=r"kafka_sink\.errors\."):
            write(frame, options(double, **defaults, **short))
        assert any(why.startswith("a request of 10") for why in double.hung_up)


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "codec"), [(EVENT_HUBS_STANDARD, "gzip"), (EVENT_HUBS_PREMIUM, "zstd")], ids=["Standard", "Premium"]
)
def test_a_codec_that_event_hubs_does_not_take(spark: SparkSession, service: Service, codec: str) -> None:
    with served(service) as double:
        with pytest.raises(PySparkException, match=r"ProduceRejected(.|\n)*Set kafka\.compression\.type=none"):
            write(rows_of(spark), options(double, kafka_compression_type=codec))
        assert double.records(TOPIC) == []


@pytest.mark.long
def test_event_hubs_closes_idle_connections_between_two_writes(spark: SparkSession) -> None:
    """Also when the client did not close them before, as the preset has it do."""
    with served(replace(EVENT_HUBS_STANDARD, idle_ms=300)) as double:
        write(rows_of(spark), options(double))
        opened = double.connections
        wait_until(lambda: len(double.hung_up) >= 1, DEADLINE_S, "a connection was idle for too long")
        write(rows_of(spark), options(double))
        assert double.connections > opened
        assert stored(double) == Counter(dict.fromkeys(expected(), 2))


@pytest.mark.parametrize(
    "service", variants(EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM), ids=lambda service: service.name
)
def test_a_missing_topic_is_created(spark: SparkSession, service: Service) -> None:
    with served(service, partitions=0) as double:
        write(rows_of(spark), options(double, createTopics="partitions=3,replicas=1"))
        assert stored(double) == expected()
        assert double.look(lambda cluster: cluster.partition_count(TOPIC)) == 3


@pytest.mark.parametrize(
    ("service", "missing"),
    [
        (EVENT_HUBS_STANDARD, "AddPartitionsToTxn"),
        pytest.param(EVENT_HUBS_PREMIUM, "ListTransactions", marks=pytest.mark.long),
        pytest.param(WARPSTREAM, "DescribeProducers", marks=pytest.mark.long),
    ],
    ids=lambda value: value.name if isinstance(value, Service) else None,
)
def test_exactly_once_is_refused_by_the_missing_api(spark: SparkSession, service: Service, missing: str) -> None:
    with served(service) as double:
        with pytest.raises(
            PySparkException, match=rf"BrokerUnsupported(.|\n)*{missing}(.|\n)*deliveryGuarantee=at-least-once"
        ):
            write(rows_of(spark), options(double, **exactly_once(0)))
        assert PRODUCE not in {api_key for api_key, _ in double.requests}


def test_exactly_once_on_redpanda(spark: SparkSession) -> None:
    with served(REDPANDA) as double:
        write(rows_of(spark), options(double, **exactly_once(0)))
        wait_until(lambda: stored(double) == expected(), DEADLINE_S, "every row can be read")
        # The same version again writes nothing.
        write(rows_of(spark), options(double, **exactly_once(0)))
        assert stored(double) == expected()
        assert double.hung_up == []


@pytest.mark.parametrize(
    ("service", "guarantee"), [(EVENT_HUBS_STANDARD, "at-least-once"), (REDPANDA, "exactly-once")],
    ids=["Event Hubs", "Redpanda"],
)  # fmt: skip
def test_a_stream_is_stored_once(spark: SparkSession, tmp_path: Path, service: Service, guarantee: str) -> None:
    rows_of(spark).repartition(3).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("key STRING, value STRING").option("maxFilesPerTrigger", 1)
    with served(service) as double:
        rows = source.parquet(str(tmp_path / "in"))
        finish(start(rows, "", None, tmp_path, options(double, deliveryGuarantee=guarantee)))
        wait_until(lambda: stored(double) == expected(), DEADLINE_S, "every row can be read")
        assert double.hung_up == []


def test_the_lines_for_event_hubs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION_STRING", CONNECTION_STRING)
    with served(EVENT_HUBS_STANDARD) as double:
        trust = f'"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": {CA.certificate!r},'
        replaced = {
            "NAMESPACE.servicebus.windows.net:9093": double.bootstrap_servers,
            '"kafka.security.protocol": "SASL_SSL",': f'"kafka.security.protocol": "SASL_SSL", {trust}',
        }
        run_python("docs/platforms.md", "Azure Event Hubs", 0, replaced, {"df": rows_of(spark)})
        assert stored(double) == expected()
