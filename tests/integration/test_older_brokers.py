"""The oldest and the newest brokers: writes at-least-once from Kafka 2.1 on, exactly-once from 3.0 on, reads from 2.3.

2.1.1 and 2.8.2 refuse exactly-once, 3.0.2 is the first that takes it, and 4.4.0 is the newest. Other clients read back.
"""

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import admin, delete_topic, partition_count, produce, read
from exactly_once_runs import ALL_ONCE, go_on, kill_at
from kafka_reads import offsets_read, reader_of
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.errors import BrokerUnsupported, MessageFormatTooOld, ProduceRejected, TopicRecreated, WriteWouldFail
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_producer
from read_back import read_topic
from secure_kafka import add_scram_users, sasl_settings
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
    return {f"listener.name.bare.{name}": value for name, value in sasl_settings({"alice": PASSWORD}).items()}


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
    # With the brokers' own defaults.
    name = f"{name}-defaults"
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
def test_every_codec_is_written_and_read(cluster: LocalKafka, name: str) -> None:
    """Before 2.3 a read is refused."""
    cluster.create_topic(name, len(CODECS))
    values = [b'{"number": %d, "airport": "AMS"} ' % number * 20 for number in range(1_000)]
    for partition, codec in enumerate(CODECS):
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.compression.type": codec}
        with lease_producer(sink_config(options).producer) as producer:
            write = Write(producer, topic=name)
            column = pa.array([partition] * len(values), pa.int32())
            write.append(pa.record_batch({"value": pa.array(values), "partition": column}))
            write.finish()
    found = list(read_topic(cluster.bootstrap_servers, name, DEADLINE_S))
    for partition in range(len(CODECS)):
        assert [record.value for number, _, record in found if number == partition] == values
    if cluster.kafka_version == "2.1.1":
        with pytest.raises(BrokerUnsupported, match="Fetch"):
            reader_of(cluster, "offset", subscribe=name).partitions()
        return
    for codec in CODECS:  # by librdkafka
        produce(cluster, name, 100, **{"compression.type": codec})
    expected = [*range(1_000 + 100 * len(CODECS)), *list(range(1_000)) * (len(CODECS) - 1)]
    for isolation in ("read_uncommitted", "read_committed"):
        options = {"subscribe": name, "kafka.isolation.level": isolation}
        assert offsets_read(reader_of(cluster, "offset", **options)) == expected


@pytest.mark.parametrize("cluster", ["2.8.2"], indirect=True)
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(("message_format", "magic"), [("0.10.2", 1), ("0.9.0", 0)])
def test_a_topic_in_an_old_format_is_not_read(
    cluster: LocalKafka, name: str, message_format: str, magic: int, codec: str
) -> None:
    """The broker converts what is written; compressed batches too."""
    cluster.create_topic(name, 1, config={"message.format.version": message_format})
    produce(cluster, name, 10, **{"compression.type": codec})
    for lenient in ("true", "false"):
        with pytest.raises(MessageFormatTooOld, match="format") as failure:
            offsets_read(reader_of(cluster, "offset", subscribe=name, failOnDataLoss=lenient))
        assert (failure.value.topic, failure.value.magic) == (name, magic)


@with_versions
def test_a_broker_is_killed_in_the_middle_and_no_row_is_doubled(cluster: LocalKafka, name: str) -> None:
    cluster.create_topic(name, 1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.linger.ms": "0", "kafka.batch.size": "4096"}
    count = 50
    stop = threading.Event()
    appended = 0
    with lease_producer(sink_config(options).producer) as producer:
        write = Write(producer, topic=name)

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
        write = Write(producer, topic=name)
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
    assert "wrong-canary" not in str(failure.value)


def checked(kafka: LocalKafka, topic: str, *options: str) -> tuple[int, str]:
    arguments = ["--option", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--option", f"topic={topic}"]
    ended = subprocess.run(
        [sys.executable, "-m", "kafka_sink", "check", *arguments, *options], capture_output=True, text=True, timeout=60
    )
    return ended.returncode, ended.stdout + ended.stderr


@with_versions
def test_the_check_names_what_exactly_once_lacks_and_nothing_else(
    spark: SparkSession, cluster: LocalKafka, name: str
) -> None:
    cluster.create_topic(name, 2)
    for guarantee in ("at-least-once", "exactly-once"):
        lacks = guarantee == "exactly-once" and cluster.kafka_version in AT_LEAST_ONCE_ONLY
        status, said = checked(cluster, name, "--option", f"deliveryGuarantee={guarantee}")
        assert status == int(lacks) and (not lacks or "ListTransactions" in said), said
        given = {"bootstrap_servers": cluster.bootstrap_servers, "exactly_once": guarantee == "exactly-once"}
        report = kafka_sink.validate(rows_of(spark), name, **given)
        assert report.ok is not lacks and (not lacks or "ListTransactions" in repr(report)), report


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
