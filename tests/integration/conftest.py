"""What modules here share: clusters, and sessions."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_reads import add_jvm_source
from kafka_sink.broker import LocalKafka
from secure_kafka import VERSIONS, SecureKafka, secure_kafka
from shipment import Shipment, shipped
from spark_writes import Here


@pytest.fixture
def here(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> Here:
    return Here(spark, kafka, topic, tmp_path)


@pytest.fixture(scope="module")
def shipment(tmp_path_factory: pytest.TempPathFactory) -> Shipment:
    return shipped(tmp_path_factory.mktemp("shipment"))


@pytest.fixture(scope="module", params=VERSIONS)
def secure(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    """A cluster that lets some in and turns others away."""
    with secure_kafka(request.param) as cluster:
        yield cluster


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    """A broker that the test may kill."""
    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> SparkSession:
    """A session that has both sources of Kafka, this package's and Spark's own."""
    add_jvm_source(spark)
    return spark


@pytest.fixture
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session to register data sources in, made the calling thread's, where Spark looks formats up."""
    session = spark.newSession()
    in_jvm = spark.sparkContext._jvm.SparkSession
    in_jvm.setActiveSession(session._jsparkSession)
    try:
        yield session
    finally:
        in_jvm.setActiveSession(spark._jsparkSession)
