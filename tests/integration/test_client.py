"""Clients without Spark against real brokers: writes through what happens to brokers, what Java reads of each codec,
and connections: one to each broker that is used, none to a bootstrap server, and no more than a quota allows."""

import base64
import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from broker_admin import read_values
from comparison import Record
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import FetchSettings
from kafka_sink.kafka.producer import sender
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.batch_split import split
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.protocol.apis.transaction_state import ListTransactionsRequest
from kafka_sink.kafka.reader import Reader
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.kept_clients import lease_producer
from open_connections import opened_since, own_connections
from producer_core import watch_senders
from read_back import read_topic
from secure_kafka import SecureKafka
from spark_writes import end_offset
from waiting import wait_until

DEADLINE_S = 60
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def config(kafka: LocalKafka, **options: object) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "10000"}).producer
    return replace(made, **options)  # type: ignore[arg-type]


def rows(values: list[bytes], **columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **{k: pa.array(v) for k, v in columns.items()}})


def numbered(start: int, count: int, size: int = 8) -> pa.RecordBatch:
    """Rows "00000000", "00000001", ... padded to `size` bytes, keyed by the number's last two digits."""
    numbers = range(start, start + count)
    return rows([b"%08d" % n + bytes(size - 8) for n in numbers], key=[b"%02d" % (n % 100) for n in numbers])


def write(producer: Producer, topic: str, *batches: pa.RecordBatch) -> tuple[PartitionOffsets, ...]:
    rows = Write(producer, topic=topic)
    for batch in batches:
        rows.append(batch)
    return tuple(rows.finish())


def read(kafka: LocalKafka, topic: str) -> dict[int, list[Record]]:
    """The records of each partition, in order."""
    got: dict[int, list[Record]] = {}
    for partition, _, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S):
        got.setdefault(partition, []).append(record)
    return got


def assert_each_number_once_in_order(got: dict[int, list[Record]], count: int) -> None:
    by_partition = [[int((record.value or b"")[:8]) for record in records] for records in got.values()]
    assert sorted(number for numbers in by_partition for number in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in by_partition)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_delivers_every_row_to_a_healthy_broker(
    kafka: LocalKafka, topic: Callable[..., str], acks: str
) -> None:
    name, count, first = topic(3), 20_000, 300
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.acks": acks, "kafka.batch.size": "16384"}
    settings = sink_config(options).producer
    assert settings.enable_idempotence == (acks == "all")
    # For a moment the leaders of a new topic may refuse batches (error 6). A retry may reorder rows without sequence
    # numbers, so the leaders of all partitions take rows with them first.
    with lease_producer(config(kafka)) as producer:
        assert len(write(producer, name, numbered(0, first, size=100))) == 3
    with lease_producer(settings) as producer:
        receipts = write(producer, name, numbered(first, count - first, size=100))
        if acks == "0":
            # Nothing else says when the broker has written what it found in its socket.
            written = lambda: sum(end_offset(kafka, name, partition) for partition in range(3))  # noqa: E731
            wait_until(lambda: written() >= count, DEADLINE_S, "all rows are in the topic")
    assert sum(receipt.record_count for receipt in receipts) == count - first
    assert all((receipt.last_offset is None) == (acks == "0") for receipt in receipts)
    assert_each_number_once_in_order(read(kafka, name), count)


def java_reads(kafka: LocalKafka, topic: str, count: int, *properties: str) -> list[str]:
    """What Kafka's console consumer prints of the first records."""
    printed = kafka.run_tool(
        CONSOLE_CONSUMER, "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--from-beginning",
        "--max-messages", str(count), "--timeout-ms", "30000",
        *(word for each in properties for word in ("--formatter-property", each)),
    )  # fmt: skip
    return printed.splitlines()


def test_java_reads_keys_headers_and_nulls(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "i", "value": None}]] * 3,
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    columns = {"key": pa.array([b"a", None, b"c"]), "value": pa.array([b"x", b"", None]), "headers": headers}
    with lease_producer(config(kafka)) as producer:
        (receipt,) = write(producer, name, pa.record_batch(columns))
    assert receipt.record_count == 3
    printed = java_reads(kafka, name, 3, "print.key=true", "print.headers=true")
    assert printed == ["h:1,i:null\ta\tx", "h:1,i:null\tnull\t", "h:1,i:null\tc\tnull"]


# --- codecs: batches that are small, over 64 KB and over 1 MB, in one topic, a partition a codec --------------------

MIB = 1024 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def text(number: int) -> bytes:
    return b'{"number": %d, "event": "departed", "airport": "AMS"} ' % number * 20


def noise(number: int) -> bytes:
    """1,000 characters in which no codec finds a repetition, printable for the console's sake."""
    return base64.b64encode(random.Random(number).randbytes(750))


# The values of each record batch.
BATCHES = (
    [b"a"],
    [text(n) for n in range(100)],
    [text(n) for n in range(3_000)],
    # Blocks of both kinds, also within one stream; all codecs still make the batch smaller.
    [noise(n) if n // 300 % 2 else text(n) for n in range(3_000)],
    # What snappy and lz4 cannot make smaller goes uncompressed; gzip and zstd find the 64 characters.
    [noise(n) for n in range(3_000)],
)
VALUES = Counter(value for values in BATCHES for value in values)


@pytest.fixture(scope="module")
def codecs(kafka: LocalKafka) -> str:
    """The topic: partition p holds all of BATCHES as CODECS[p] made them."""
    kafka.create_topic("every-codec", len(CODECS), config={"max.message.bytes": 8 * MIB})
    sizes = {"kafka.batch.size": str(4 * MIB), "kafka.max.request.size": str(8 * MIB), "kafka.linger.ms": "60000"}
    for partition, codec in enumerate(CODECS):
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **sizes, "kafka.compression.type": codec}
        with lease_producer(sink_config(options).producer) as producer:
            for values in BATCHES:
                column = pa.array([partition] * len(values), pa.int32())
                made = pa.record_batch({"value": pa.array(values), "partition": column})
                (receipt,) = write(producer, "every-codec", made)
                assert (receipt.partition, receipt.batch_count, receipt.record_count) == (partition, 1, len(values))
    return "every-codec"


def test_javas_log_dump_decompresses_every_batch(kafka: LocalKafka, codecs: str) -> None:
    for partition, codec in enumerate(CODECS):
        (segment,) = kafka.dir.glob(f"node-*/data/{codecs}-{partition}/*.log")
        dumped = kafka.run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", str(segment))
        batches = re.findall(
            r"baseOffset: \d+ .* count: (\d+) .* size: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)", dumped
        )
        assert [int(count) for count, _, _, _ in batches] == [len(values) for values in BATCHES]
        assert {valid for _, _, _, valid in batches} == {"true"}
        assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == VALUES.total()
        # One row, and for these two noise, only grow.
        grows = {0, 4} if codec in ("snappy", "lz4") else {0}
        assert [used for _, _, used, _ in batches] == ["none" if at in grows else codec for at in range(len(BATCHES))]
        if codec != "none":
            assert all(int(batches[at][1]) < sum(map(len, BATCHES[at])) for at in (1, 2, 3))


def test_java_and_librdkafka_read_every_value_of_every_codec(kafka: LocalKafka, codecs: str) -> None:
    printed = java_reads(kafka, codecs, VALUES.total() * len(CODECS))
    assert Counter(map(str.encode, printed)) == Counter({value: n * len(CODECS) for value, n in VALUES.items()})
    found = {partition: Counter(each.value for each in records) for partition, records in read(kafka, codecs).items()}
    assert found == dict.fromkeys(range(len(CODECS)), VALUES)


# --- writes that things happen to -----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_batches_over_a_topics_limit_are_split_until_they_fit_and_then_made_to_fit(
    kafka: LocalKafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    name, count, senders = topic(1, config={"max.message.bytes": "20000"}), 30_000, watch_senders(monkeypatch)
    split_counts: list[int] = []
    monkeypatch.setattr(sender, "split", lambda batch, **options: _counted(split_counts, split(batch, **options)))
    noise = [b"%08d" % n + random.Random(n).randbytes(50).hex().encode() for n in range(2 * count)]
    settings = config(kafka, client_id="split", compression_type=compression, batch_size=1024 * 1024)
    with lease_producer(settings) as producer:
        (receipt,) = write(producer, name, rows(noise[:count]))
        # Four batches of up to 1 MiB. Six halvings of the first (five with zstd) lead to what fits; then each half that
        # was left on the way, and each other batch, is cut to that size at once.
        assert 5 <= len(split_counts) <= 6 + 6 + 4
        assert receipt.batch_count <= 4 * 64
        split_counts.clear()
        (receipt,) = write(producer, name, rows(noise[count:]))
        assert split_counts == []
    got = read(kafka, name)[0]
    assert [record.value for record in got] == noise
    assert (receipt.record_count, receipt.last_offset) == (count, 2 * count - 1)
    assert senders[-1].accumulator.pool.available_bytes == producer.config.buffer_memory


def _counted(counts: list[int], parts: list[ProducerBatch]) -> list[ProducerBatch]:
    counts.append(len(parts))
    return parts


def test_the_first_batches_of_a_new_producer_to_a_new_topic_arrive_in_order(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """A leader that is not ready yet refuses the first batch, and knows too little of the producer to refuse the
    second."""
    for _ in range(12):
        name = topic(4)
        with closing(Producer(config(kafka, linger_ms=0, batch_size=16_384))) as producer:
            write(producer, name, numbered(0, 20_000, size=100))
        assert_each_number_once_in_order(read(kafka, name), 20_000)


def test_a_broker_that_restarts_in_mid_write_costs_time_and_no_row(own_kafka: LocalKafka) -> None:
    own_kafka.create_topic("t", 3)
    count = 60_000
    with lease_producer(config(own_kafka, batch_size=16_384, linger_ms=0)) as producer:
        rows = Write(producer, topic="t")
        rows.append(numbered(0, count // 2, size=100))
        own_kafka.kill(1)
        restart = threading.Thread(target=own_kafka.start, args=(1,))
        restart.start()
        rows.append(numbered(count // 2, count // 2, size=100))
        receipts = rows.finish()
        restart.join()
    assert sum(receipt.record_count for receipt in receipts) == count
    assert_each_number_once_in_order(read(own_kafka, "t"), count)


# --- connections ----------------------------------------------------------------------------------------------------

PARTITIONS = 6


def ports(servers: str) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in servers.split(",")]


def at(servers: str) -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": servers}).producer


def write_to_each(producer: Producer, topic: str) -> None:
    receipts = write(producer, topic, rows([b"v"] * PARTITIONS, partition=[*range(PARTITIONS)]))
    assert [receipt.record_count for receipt in receipts] == [1] * PARTITIONS


def connections_of_writes(servers: str, topic: str) -> list[Counter[int]]:
    """Remote port -> open connections of a producer after each of two writes."""
    before, found = own_connections(servers), []
    with closing(Producer(at(servers))) as producer:
        for _ in range(2):
            write_to_each(producer, topic)
            found.append(opened_since(before, servers))
    assert opened_since(before, servers) == {}
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_producer_of_one_broker_has_one_connection(kafka: LocalKafka, topic: Callable[..., str], host: str) -> None:
    """The broker advertises an address: the bootstrap server with another name is left."""
    (port,) = ports(kafka.bootstrap_servers)
    assert kafka.bootstrap_servers == f"127.0.0.1:{port}"
    assert connections_of_writes(f"{host}:{port}", topic(PARTITIONS)) == [{port: 1}] * 2


@pytest.mark.long
def test_a_producer_of_three_brokers_has_one_connection_to_each() -> None:
    with LocalKafka(nodes=3) as three:
        three.create_topic("t", PARTITIONS)
        each_once = dict.fromkeys(ports(three.bootstrap_servers), 1)
        assert connections_of_writes(three.bootstrap_servers, "t") == [each_once] * 2


def test_an_admin_client_and_a_reader_of_one_broker_have_one_connection(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name, servers = topic(PARTITIONS), kafka.bootstrap_servers
    with closing(Producer(at(servers))) as producer:
        write_to_each(producer, name)
    before, once = own_connections(servers), dict.fromkeys(ports(servers), 1)
    client = AdminClient(at(servers))
    assert client.ask_brokers(ListTransactionsRequest()).keys() == {1}
    topic_id = uuid.UUID(client.topic_ids((name,))[name])
    assert opened_since(before, servers) == once
    client.close()
    assert opened_since(before, servers) == {}
    options = given_options({"kafka.bootstrap.servers": servers, "subscribe": name}, table=READING)
    reader = Reader(read_config(options).consumer)
    ranges = [FetchRange(name, topic_id, partition, first=0, end=1) for partition in range(PARTITIONS)]
    settings = FetchSettings(
        config=reader.config, fail_on_data_loss=True, reads_replacements=False, poll_timeout_ms=60_000
    )  # fmt: skip
    assert [each.next_offset for one in ranges for each in reader.fetch(one, settings)] == [1] * PARTITIONS
    assert opened_since(before, servers) == once
    reader.close()
    assert opened_since(before, servers) == {}


# Brokers let ten seconds' worth pass before they refuse (quota.window.num). Ten more producers need 10 s, in which the
# last is refused more often than a TLS client was once willing to bear.
PRODUCERS, PER_S = 30, 2


def limit(secure: SecureKafka, *change: str) -> None:
    host = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    servers = secure.kafka.bootstrap_servers
    secure.kafka.run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", servers, "--alter", *host, *change)


@pytest.fixture
def limited(secure: SecureKafka) -> Iterator[SecureKafka]:
    limit(secure, "--add-config", f"connection_creation_rate={PER_S}")
    yield secure
    limit(secure, "--delete-config", "connection_creation_rate")


@pytest.mark.long
def test_producers_that_start_at_once_wait_for_their_turn(limited: SecureKafka) -> None:
    """By a quota of connections (KIP-612)."""
    limited.kafka.create_topic("quota", 1)

    def write_one(number: int) -> None:
        with closing(Producer(sink_config(limited.tls()).producer)) as producer:
            write(producer, "quota", rows([b"%d" % number]))

    began = time.monotonic()
    with ThreadPoolExecutor(PRODUCERS) as threads:
        list(threads.map(write_one, range(PRODUCERS)))
    assert time.monotonic() - began > 5
    assert read_values(limited.kafka, "quota").keys() == {b"%d" % number for number in range(PRODUCERS)}
