"""What a write does with the oldest and the newest brokers: at-least-once from Kafka 2.1 on, exactly-once from 3.0 on.

2.1.1 and 2.8.2 refuse exactly-once, 3.0.2 is the first that takes it, and 4.4.0 is the newest. Other clients read back.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import admin, delete_topic, partition_count
from committed_rows import read
from exactly_once_runs import ALL_ONCE, go_on, kill_at
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.errors import BrokerUnsupported, ProduceRejected, TopicRecreated, WriteWouldFail
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import sink_config
from read_back import read_topic
from secure_kafka import MODULE, add_scram_users
from spark_writes import end_offset, finish, pykafka
from waiting import wait_until
from zookeeper_kafka import ZooKeeperKafka, kafka_of

pytestmark = pytest.mark.long

VERSIONS = ("2.1.1", "2.8.2", "3.0.2", "4.4.0")
EXACTLY_ONCE = ("3.0.2", "4.4.0")
AT_LEAST_ONCE_ONLY = ("2.1.1", "2.8.2")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "alice-secret"
DEADLINE_S = 120
ROWS = 20_000
numbers = itertools.count()


def secured() -> dict[str, str]:
    """Settings of a listener for passwords."""
    named = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    }
    return {f"listener.name.bare.{name}": value for name, value in named.items()}


def add_alice(kafka: LocalKafka) -> None:
    """Brokers have a request for it since 2.7 (KIP-554)."""
    if isinstance(kafka, ZooKeeperKafka):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            user = ["--entity-type", "users", "--entity-name", "alice"]
            change = ["--alter", "--add-config", f"{mechanism}=[password={PASSWORD}]"]
            kafka.run_tool("kafka.admin.ConfigCommand", "--zookeeper", kafka.zookeeper_address, *change, *user)
        return
    add_scram_users(admin(kafka), {"alice": PASSWORD})


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with kafka_of(request.param, listeners={"BARE": "SASL_PLAINTEXT"}, config=secured()) as kafka:
        add_alice(kafka)
        yield kafka


with_versions = pytest.mark.parametrize("cluster", VERSIONS, indirect=True)
with_exactly_once = pytest.mark.parametrize("cluster", EXACTLY_ONCE, indirect=True)
without_exactly_once = pytest.mark.parametrize("cluster", AT_LEAST_ONCE_ONLY, indirect=True)


@pytest.fixture
def name() -> str:
    return f"topic-{next(numbers)}"


def rows_of(spark: SparkSession) -> DataFrame:
    """Every second row has no key, every third one has headers."""
    return spark.range(0, ROWS, 1, 3).selectExpr(
        "IF(id % 2 = 0, CAST(id AS STRING), NULL) AS key",
        "CAST(id AS STRING) AS value",
        "IF(id % 3 = 0, array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))), NULL) AS headers",
    )


def assert_rows_in(kafka: LocalKafka, topic: str) -> None:
    expected = {
        (str(n).encode() if n % 2 == 0 else None, str(n).encode(), (("n", str(n).encode()),) if n % 3 == 0 else ())
        for n in range(ROWS)
    }
    found = Counter(
        (record.key, record.value, tuple(record.headers))
        for _, _, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    )
    assert found == Counter(expected)


@with_versions
def test_a_batch_into_a_topic_that_the_write_creates(spark: SparkSession, cluster: LocalKafka, name: str) -> None:
    writer = pykafka(rows_of(spark).write.mode("append"), cluster, name)
    writer.option("createTopics", "partitions=3,replicas=1,retention.ms=86400000").save()
    assert_rows_in(cluster, name)
    assert partition_count(cluster, name) == 3


@with_versions
def test_a_topic_with_the_brokers_own_defaults(spark: SparkSession, cluster: LocalKafka, name: str) -> None:
    writer = pykafka(rows_of(spark).write.mode("append"), cluster, name).option("createTopics", "true")
    if cluster.kafka_version == "2.1.1":  # before KIP-464
        with pytest.raises(PySparkException, match=r"TopicNotCreated.*name both counts, which Kafka before 2\.4 needs"):
            writer.save()
    else:
        writer.save()
        assert_rows_in(cluster, name)


@with_versions
def test_a_stream_that_is_started_twice(spark: SparkSession, cluster: LocalKafka, name: str, tmp_path: Path) -> None:
    cluster.create_topic(name, 2)
    rows_of(spark).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema(rows_of(spark).schema).option("maxFilesPerTrigger", "1")
    for _ in range(2):
        writer = pykafka(source.parquet(str(tmp_path / "in")).writeStream, cluster, name)
        finish(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())
    assert_rows_in(cluster, name)


@with_versions
def test_every_codec_is_read_by_kafka_python(cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, len(CODECS))
    values = [b'{"number": %d, "airport": "AMS"} ' % number * 20 for number in range(1_000)]
    for partition, codec in enumerate(CODECS):
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.compression.type": codec}
        with lease_producer(sink_config(options).producer) as producer:
            write = producer.begin(topic=name)
            column = pa.array([partition] * len(values), pa.int32())
            write.append(pa.record_batch({"value": pa.array(values), "partition": column}))
            write.finish()
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    with closing(consumer):
        for partition in range(len(CODECS)):
            consumer.assign([TopicPartition(name, partition)])
            assert [message.value for message in itertools.islice(consumer, len(values))] == values


@with_versions
def test_a_broker_is_killed_in_the_middle_and_no_row_is_doubled(cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, 1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.linger.ms": "0", "kafka.batch.size": "4096"}
    count = 50
    stop = threading.Event()
    appended = 0
    with lease_producer(sink_config(options).producer) as producer:
        write = producer.begin(topic=name)

        def append() -> None:
            nonlocal appended
            while not stop.is_set() or appended < 200 * count:
                values = [str(number) for number in range(appended, appended + count)]
                write.append(pa.record_batch({"value": pa.array(values)}))
                appended += count

        writing = threading.Thread(target=append)
        writing.start()
        wait_until(lambda: end_offset(cluster, name) > 0, DEADLINE_S, "rows are written")
        cluster.kill(1)
        cluster.start(1)
        stop.set()
        writing.join(DEADLINE_S)
        write.finish()
    found = [int(record.value or b"") for _, _, record in read_topic(cluster.bootstrap_servers, name, DEADLINE_S)]
    assert found == list(range(appended))


@with_versions
def test_a_topic_that_is_deleted_and_created_again_in_the_middle(cluster: LocalKafka, name: str) -> None:
    """Brokers before 2.8 have no topic ids (KIP-516). There the new leader knows nothing of the producer."""
    cluster.create_topic(name, 1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    expected = (
        pytest.raises(ProduceRejected, match=r"UNKNOWN_PRODUCER_ID.*deleted and created again")
        if cluster.kafka_version == "2.1.1"
        else pytest.raises(TopicRecreated)
    )
    with expected, lease_producer(sink_config(options).producer) as producer:
        write = producer.begin(topic=name)
        write.append(pa.record_batch({"value": ["1", "2"]}))
        producer.flush(write.acknowledgements)
        create_again(cluster, name)
        write.append(pa.record_batch({"value": ["3"]}))
        write.finish()


def create_again(kafka: LocalKafka, topic: str) -> None:
    delete_topic(kafka, topic)

    def created() -> bool:
        try:
            kafka.create_topic(topic, 1)
        except LocalKafkaError:  # ZooKeeper may still have the old one
            return False
        return True

    wait_until(created, DEADLINE_S, f"{topic} is created again")


@with_versions
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_with_a_password(spark: SparkSession, cluster: LocalKafka, name: str, mechanism: str) -> None:
    cluster.create_topic(name, 1)
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_username": "alice"}
    servers = cluster.addresses_of("BARE")
    rows = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS value")

    def write(password: str) -> None:
        writer = pykafka(rows.write.mode("append"), servers, name, **options, sasl_password=password)
        writer.option("allowPlaintextCredentials", "true").save()

    write(PASSWORD)
    assert read(cluster, name) == Counter(range(100))
    with pytest.raises(PySparkException, match="AuthenticationFailed") as failure:
        write("wrong-canary")
    said = str(failure.value)
    assert "wrong-canary" not in said


def checked(kafka: LocalKafka, topic: str, *options: str) -> tuple[int, str]:
    arguments = ["--option", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--option", f"topic={topic}"]
    ended = subprocess.run(
        [sys.executable, "-m", "kafka_sink", "check", *arguments, *options], capture_output=True, text=True, timeout=60
    )
    return ended.returncode, ended.stdout + ended.stderr


@with_versions
def test_the_check_finds_nothing_wrong(spark: SparkSession, cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, 2)
    status, said = checked(cluster, name)
    assert status == 0, said
    report = kafka_sink.validate(rows_of(spark), name, bootstrap_servers=cluster.bootstrap_servers)
    assert report.ok, report


@without_exactly_once
def test_the_check_names_what_exactly_once_lacks(spark: SparkSession, cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, 2)
    status, said = checked(cluster, name, "--option", "deliveryGuarantee=exactly-once")
    assert status == 1, said
    assert "ListTransactions" in said
    report = kafka_sink.validate(rows_of(spark), name, bootstrap_servers=cluster.bootstrap_servers, exactly_once=True)
    assert not report.ok
    assert "ListTransactions" in repr(report)


@without_exactly_once
def test_exactly_once_is_refused_by_name_before_the_first_row(
    spark: SparkSession, cluster: LocalKafka, name: str, tmp_path: Path
) -> None:
    cluster.create_topic(name, 1)
    writer = pykafka(rows_of(spark).write.mode("append"), cluster, name).option("deliveryGuarantee", "exactly-once")
    with pytest.raises(PySparkException, match=r"BrokerUnsupported.*ListTransactions.*Kafka 3\.0 or later"):
        writer.save()
    rows_of(spark).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema(rows_of(spark).schema).parquet(str(tmp_path / "in"))
    stream = pykafka(source.writeStream, cluster, name).option("deliveryGuarantee", "exactly-once")
    with pytest.raises(PySparkException, match=r"BrokerUnsupported.*ListTransactions"):
        finish(stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())
    with pytest.raises((BrokerUnsupported, WriteWouldFail), match="ListTransactions"):
        kafka_sink.export(
            rows_of(spark), name, exactly_once=True, bootstrap_servers=cluster.bootstrap_servers, txn_app_id="a",
            txn_version=0,
        )  # fmt: skip
    assert end_offset(cluster, name) == 0


@with_exactly_once
def test_a_batch_is_written_exactly_once(spark: SparkSession, cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, 3)
    rows = spark.range(0, ROWS, 1, 4).selectExpr("CAST(id AS STRING) AS value")
    writer = pykafka(rows.write.mode("append"), cluster, name)
    writer.option("deliveryGuarantee", "exactly-once").save()
    assert read(cluster, name) == Counter(range(ROWS))


@pytest.mark.parametrize(
    ("cluster", "step"),
    [
        ("3.0.2", "after TxnOffsetCommit {sink}.1"),
        ("3.0.2", "before TxnOffsetCommit {sink}.decision"),
        ("3.0.2", "after EndTxn {sink}.0 commit"),
        ("4.4.0", "after EndTxn {sink}.0 commit"),
    ],
    indirect=["cluster"],
)
def test_the_application_is_killed_and_started_again(
    spark: SparkSession, cluster: LocalKafka, name: str, tmp_path: Path, step: str
) -> None:
    cluster.create_topic(name, 3)
    kill_at(step, cluster, name, tmp_path)
    go_on(spark, cluster, name, tmp_path)
    assert read(cluster, name) == ALL_ONCE
