"""The producer without Spark against real brokers: restarts, lost leaders, full memory, and what Java reads."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from committed_rows import leader
from comparison import Record
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import BufferExhausted, DeliveryTimeout
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.producer import sender
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.batch_split import split
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import sink_config
from live_producers import watch_cores
from read_back import read_topic
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
    rows = producer.begin(topic=topic)
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


def test_java_reads_what_was_written(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "i", "value": None}]] * 3,
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.record_batch(
        {"key": pa.array([b"a", None, b"c"]), "value": pa.array([b"x", b"", None]), "headers": headers}
    )
    with lease_producer(config(kafka)) as producer:
        # A batch over 64 KB and one over 1 MB before compression.
        (receipt,) = write(producer, name, batch, numbered(0, 2_000, size=100), numbered(2_000, 20_000, size=100))
    assert receipt.record_count == 22_003
    printed = kafka.run_tool(
        CONSOLE_CONSUMER,
        *["--bootstrap-server", kafka.bootstrap_servers, "--topic", name, "--from-beginning"],
        *["--max-messages", "3", "--timeout-ms", "30000"],
        *["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"],
    )
    assert printed.splitlines()[:3] == ["h:1,i:null\ta\tx", "h:1,i:null\tnull\t", "h:1,i:null\tc\tnull"]
    (segment,) = kafka.dir.glob(f"node-*/data/{name}-0/*.log")
    dumped = kafka.run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", str(segment))
    batches = re.findall(r"baseOffset: \d+ lastOffset: \d+ count: (\d+) .* isvalid: (\w+)", dumped)
    assert sum(int(count) for count, _ in batches) == 22_003
    assert {valid for _, valid in batches} == {"true"}
    assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == 22_003
    assert {"compresscodec: zstd"} == set(re.findall(r"compresscodec: \w+", dumped))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_batches_over_a_topics_limit_are_split_until_they_fit_and_then_made_to_fit(
    kafka: LocalKafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    name, count, cores = topic(1, config={"max.message.bytes": "20000"}), 30_000, watch_cores(monkeypatch)
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
    assert cores[-1].accumulator.pool.available_bytes == producer.config.buffer_memory


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
        rows = producer.begin(topic="t")
        rows.append(numbered(0, count // 2, size=100))
        own_kafka.kill(1)
        restart = threading.Thread(target=own_kafka.start, args=(1,))
        restart.start()
        rows.append(numbered(count // 2, count // 2, size=100))
        receipts = rows.finish()
        restart.join()
    assert sum(receipt.record_count for receipt in receipts) == count
    assert_each_number_once_in_order(read(own_kafka, "t"), count)


@pytest.mark.long
def test_a_broker_that_stays_away_is_an_error_in_time_and_memory_stays_bounded(
    own_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = watch_cores(monkeypatch)
    own_kafka.create_topic("t", 1)
    memory = {"buffer_memory": 2 * 1024 * 1024, "batch_size": 65_536, "compression_type": "none"}
    settings = config(own_kafka, max_block_ms=1_500, request_timeout_ms=1_000, delivery_timeout_ms=4_000, **memory)
    producer, slow = Producer(settings), Producer(replace(settings, max_block_ms=60_000))
    try:
        writes = [p.begin(topic="t") for p in (producer, slow)]
        for each in writes:
            each.append(numbered(0, 10))
            each.finish()
        own_kafka.kill(1)
        started = time.monotonic()
        with pytest.raises(BufferExhausted) as full:
            writes[0].append(numbered(0, 30_000, size=100))
        assert 1.4 < time.monotonic() - started < DEADLINE_S / 2
        assert "kafka.buffer.memory" in str(full.value)
        assert cores[0].accumulator.pool.available_bytes >= 0
        with pytest.raises(DeliveryTimeout) as late:
            writes[1].append(numbered(0, 30_000, size=100))
            writes[1].finish()
        assert "Connection refused" in str(late.value)
    finally:
        producer.close()
        slow.close()


@pytest.mark.chaos
def test_a_leader_killed_in_mid_write_hands_over_without_loss_doubling_or_disorder() -> None:
    with LocalKafka(nodes=3) as cluster:
        for name, partitions in (("t", 3), ("idle", 1)):
            cluster.create_topic(name, partitions, replication_factor=3, config={"min.insync.replicas": "2"})
        count, appended = 200_000, 0
        settings = config(cluster, batch_size=16_384, linger_ms=0, max_block_ms=30_000)
        with lease_producer(settings) as kept:
            write(kept, "idle", numbered(0, 100))
        with lease_producer(settings) as producer:
            rows = producer.begin(topic="t")
            killed = leader(cluster, "idle", 0)
            for start in range(0, count, 10_000):
                if start == count // 2:
                    cluster.kill(killed)
                rows.append(numbered(start, 10_000, size=100))
                appended += 10_000
            receipts = rows.finish()
        assert appended == count
        assert sum(receipt.record_count for receipt in receipts) == count
        assert_each_number_once_in_order(read(cluster, "t"), count)
        # A producer that was idle when a leader died has no request under way that would tell it.
        assert leader(cluster, "idle", 0) != killed
        with lease_producer(settings) as again:
            assert again is kept
            write(again, "idle", numbered(100, 100))
        assert_each_number_once_in_order(read(cluster, "idle"), 200)
