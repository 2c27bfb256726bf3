"""Every codec's batches, small, over 64 KB and over 1 MB, read back and CRC-checked by Java, librdkafka and
kafka-python.

One topic, a partition a codec. Written once; each reader then reads all of it.
"""

from __future__ import annotations

import base64
import itertools
import random
import re
from collections import Counter

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition

from kafka_sink.broker import LocalKafka
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import sink_config
from read_back import read_topic

DEADLINE_S = 60
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
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
def written(kafka: LocalKafka) -> str:
    """The topic: partition p holds all of BATCHES as CODECS[p] made them."""
    topic = "every-codec"
    kafka.create_topic(topic, len(CODECS), config={"max.message.bytes": 8 * MIB})
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.batch.size": str(4 * MIB),
        "kafka.max.request.size": str(8 * MIB),
        "kafka.linger.ms": "60000",
    }
    for partition, codec in enumerate(CODECS):
        with lease_producer(sink_config({**options, "kafka.compression.type": codec}).producer) as producer:
            for values in BATCHES:
                write = producer.begin(topic=topic)
                column = pa.array([partition] * len(values), pa.int32())
                write.append(pa.record_batch({"value": pa.array(values), "partition": column}))
                (receipt,) = write.finish()
                assert (receipt.partition, receipt.batch_count, receipt.record_count) == (partition, 1, len(values))
    return topic


def test_javas_log_dump_decompresses_every_batch(kafka: LocalKafka, written: str) -> None:
    for partition, codec in enumerate(CODECS):
        (segment,) = kafka.dir.glob(f"node-*/data/{written}-{partition}/*.log")
        dumped = kafka.run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", str(segment))
        batches = re.findall(
            r"baseOffset: \d+ .* count: (\d+) .* size: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)", dumped
        )
        assert [int(count) for count, _, _, _ in batches] == [len(values) for values in BATCHES]
        assert {valid for _, _, _, valid in batches} == {"true"}
        assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == VALUES.total()
        # One row, and for these two noise, only grow.
        grows = {0, 4} if codec in ("snappy", "lz4") else {0}
        assert [used for _, _, used, _ in batches] == [
            "none" if index in grows else codec for index in range(len(BATCHES))
        ]
        if codec != "none":
            assert all(int(batches[index][1]) < sum(map(len, BATCHES[index])) for index in (1, 2, 3))


def test_javas_consumer_reads_every_value(kafka: LocalKafka, written: str) -> None:
    printed = kafka.run_tool(
        CONSOLE_CONSUMER,
        *["--bootstrap-server", kafka.bootstrap_servers, "--topic", written, "--from-beginning"],
        *["--max-messages", str(VALUES.total() * len(CODECS)), "--timeout-ms", "30000"],
    )
    times = len(CODECS)
    assert Counter(printed.encode().splitlines()) == Counter({value: n * times for value, n in VALUES.items()})


def test_librdkafka_reads_every_value(kafka: LocalKafka, written: str) -> None:
    got = {partition: Counter[bytes | None]() for partition in range(len(CODECS))}
    for partition, _, record in read_topic(kafka.bootstrap_servers, written, DEADLINE_S):
        got[partition][record.value] += 1
    assert got == dict.fromkeys(range(len(CODECS)), VALUES)


@pytest.mark.parametrize("partition", range(len(CODECS)), ids=CODECS)
def test_kafka_python_reads_every_value(kafka: LocalKafka, written: str, partition: int) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        check_crcs=True,
        max_partition_fetch_bytes=8 * MIB,
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    try:
        consumer.assign([TopicPartition(written, partition)])
        got = Counter(message.value for message in itertools.islice(consumer, VALUES.total()))
    finally:
        consumer.close()
    assert got == VALUES
