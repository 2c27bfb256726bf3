"""The producer without Spark against real brokers: restarts, lost leaders, full memory, and what Java reads."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from comparison import Record
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import BufferExhausted, DeliveryTimeout, ProducerClosed, RecordTooLarge, TopicRecreated
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
from waiting import wait_until

DEADLINE_S = 60
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def config(kafka: LocalKafka, **options: object) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "10000"}).producer
    return replace(made, **options)  # type: ignore[arg-type]


@pytest.fixture
def producer(kafka: LocalKafka) -> Iterator[Producer]:
    made = Producer(config(kafka))
    yield made
    made.close()


def rows(values: list[bytes], **columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **{k: pa.array(v) for k, v in columns.items()}})


def numbered(start: int, count: int, size: int = 8) -> pa.RecordBatch:
    """Rows "00000000", "00000001", ... padded to `size` bytes, keyed by the number's last two digits."""
    numbers = range(start, start + count)
    return rows([b"%08d" % n + bytes(size - 8) for n in numbers], key=[b"%02d" % (n % 100) for n in numbers])


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


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_receipts_are_the_offsets_in_the_log(kafka: LocalKafka, topic: Callable[..., str], compression: str) -> None:
    name = topic(3)
    with lease_producer(config(kafka, compression_type=compression, batch_size=16_384)) as producer:
        for start in (0, 5_000):
            write = producer.begin(topic=name)
            write.append(numbered(start, 5_000, size=100))
            receipts = write.finish()
    assert sum(receipt.record_count for receipt in receipts) == 5_000
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "offsets"})
    for receipt in receipts:
        _, end = consumer.get_watermark_offsets(TopicPartition(name, receipt.partition), timeout=10)
        assert receipt.last_offset == end - 1
        # The second write's records follow the first's without a gap: nobody else writes there.
        assert receipt.first_offset == end - receipt.record_count
        assert receipt.batch_count > 1
    consumer.close()
    assert_each_number_once_in_order(read(kafka, name), 10_000)


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
        write = producer.begin(topic=name)
        write.append(numbered(0, first, size=100))
        assert len(write.finish()) == 3
    with lease_producer(settings) as producer:
        write = producer.begin(topic=name)
        write.append(numbered(first, count - first, size=100))
        receipts = write.finish()
        if acks == "0":
            # Nothing else says when the broker has written what it found in its socket.
            await_count(kafka, name, count)
    assert sum(receipt.record_count for receipt in receipts) == count - first
    assert all((receipt.last_offset is None) == (acks == "0") for receipt in receipts)
    assert_each_number_once_in_order(read(kafka, name), count)


def await_count(kafka: LocalKafka, topic: str, count: int) -> None:
    """Until the ends of the topic's partitions add up to `count`."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "count"})
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions

        def written() -> int:
            ends = (consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in partitions)
            return sum(end for _, end in ends)

        wait_until(lambda: written() >= count, DEADLINE_S, f"{topic} has {count} records")
    finally:
        consumer.close()


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
        write = producer.begin(topic=name)
        write.append(batch)
        # A batch over 64 KB and one over 1 MB before compression.
        write.append(numbered(0, 2_000, size=100))
        write.append(numbered(2_000, 20_000, size=100))
        (receipt,) = write.finish()
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


def test_a_producer_is_kept_for_the_next_write_and_not_after_an_error(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name, settings = topic(1), config(kafka, client_id="kept")
    with lease_producer(settings) as first:
        first.begin(topic=name).append(numbered(0, 1))
    with lease_producer(settings) as second:
        assert second is first
        with lease_producer(settings) as beside:
            assert beside is not first  # a producer serves one write at a time
    with pytest.raises(RecordTooLarge), lease_producer(settings) as failing:
        failing.begin(topic=name).append(rows([bytes(settings.max_request_size)]))
    assert not failing.usable
    with lease_producer(settings) as after:
        assert after is not failing


def test_rows_under_way_when_a_producer_closes_fail_with_it(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    producer = Producer(config(kafka, linger_ms=60_000))
    write = producer.begin(topic=topic(1))
    write.append(numbered(0, 10))
    producer.close()
    with pytest.raises(ProducerClosed):
        write.finish()


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
        write = producer.begin(topic=name)
        write.append(rows(noise[:count]))
        (receipt,) = write.finish()
        # Four batches of up to 1 MiB. Six halvings of the first (five with zstd) lead to what fits; then each half that
        # was left on the way, and each other batch, is cut to that size at once.
        assert 5 <= len(split_counts) <= 6 + 6 + 4
        assert receipt.batch_count <= 4 * 64
        split_counts.clear()
        write = producer.begin(topic=name)
        write.append(rows(noise[count:]))
        (receipt,) = write.finish()
        assert split_counts == []
    got = read(kafka, name)[0]
    assert [record.value for record in got] == noise
    assert (receipt.record_count, receipt.last_offset) == (count, 2 * count - 1)
    assert cores[-1].accumulator.pool.available_bytes == producer.config.buffer_memory


def _counted(counts: list[int], parts: list[ProducerBatch]) -> list[ProducerBatch]:
    counts.append(len(parts))
    return parts


def test_a_row_over_a_topics_limit_names_the_setting(
    kafka: LocalKafka, topic: Callable[..., str], producer: Producer
) -> None:
    name = topic(1, config={"max.message.bytes": "1000"})
    write = producer.begin(topic=name)
    large = random.Random(1).randbytes(3_000)
    before_ms = time.time() * 1000
    write.append(rows([b"%064d" % n for n in range(100)] + [large] + [b"%064d" % n for n in range(100)]))
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes") as failure:
        write.finish()
    assert failure.value.topic == name
    assert 3_000 < failure.value.size_bytes < 3_100
    assert failure.value.max_bytes is None
    assert (failure.value.partition, failure.value.key_bytes) == (0, None)
    assert before_ms - 1 <= (failure.value.timestamp_ms or 0) <= time.time() * 1000


def test_the_first_batches_of_a_new_producer_to_a_new_topic_arrive_in_order(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """A leader that is not ready yet refuses the first batch, and knows too little of the producer to refuse the
    second."""
    for _ in range(12):
        name = topic(4)
        producer = Producer(config(kafka, linger_ms=0, batch_size=16_384))
        write = producer.begin(topic=name)
        write.append(numbered(0, 20_000, size=100))
        write.finish()
        producer.close()
        assert_each_number_once_in_order(read(kafka, name), 20_000)


# --- brokers that die -------------------------------------------------------------------------------------------------


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    """A broker that the test may kill."""
    with LocalKafka(nodes=1) as cluster:
        yield cluster


def test_a_broker_that_restarts_in_mid_write_costs_time_and_no_row(own_kafka: LocalKafka) -> None:
    own_kafka.create_topic("t", 3)
    count = 60_000
    with lease_producer(config(own_kafka, batch_size=16_384, linger_ms=0)) as producer:
        write = producer.begin(topic="t")
        write.append(numbered(0, count // 2, size=100))
        own_kafka.kill(1)
        restart = threading.Thread(target=own_kafka.start, args=(1,))
        restart.start()
        write.append(numbered(count // 2, count // 2, size=100))
        receipts = write.finish()
        restart.join()
    assert sum(receipt.record_count for receipt in receipts) == count
    assert_each_number_once_in_order(read(own_kafka, "t"), count)


def test_a_broker_that_stays_away_is_an_error_in_time_and_memory_stays_bounded(
    own_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = watch_cores(monkeypatch)
    own_kafka.create_topic("t", 1)
    settings = config(
        own_kafka,
        max_block_ms=1_500,
        request_timeout_ms=1_000,
        delivery_timeout_ms=4_000,
        buffer_memory=2 * 1024 * 1024,
        batch_size=65_536,
        compression_type="none",
    )
    producer, slow = Producer(settings), Producer(replace(settings, max_block_ms=60_000))
    try:
        writes = [p.begin(topic="t") for p in (producer, slow)]
        for write in writes:
            write.append(numbered(0, 10))
            write.finish()
        own_kafka.kill(1)
        started = time.monotonic()
        with pytest.raises(BufferExhausted) as full:
            writes[0].append(numbered(0, 30_000, size=100))
        assert 1.4 < time.monotonic() - started < 3.5
        assert "kafka.buffer.memory" in str(full.value)
        assert cores[0].accumulator.pool.available_bytes >= 0
        with pytest.raises(DeliveryTimeout) as late:
            writes[1].append(numbered(0, 30_000, size=100))
            writes[1].finish()
        assert "Connection refused" in str(late.value)
    finally:
        producer.close()
        slow.close()


def leader_of(kafka: LocalKafka, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "leaders"})
    try:
        return int(consumer.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)
    finally:
        consumer.close()


@pytest.mark.chaos
def test_a_leader_killed_in_mid_write_hands_over_without_loss_doubling_or_disorder() -> None:
    with LocalKafka(nodes=3) as cluster:
        for name, partitions in (("t", 3), ("idle", 1)):
            cluster.create_topic(name, partitions, replication_factor=3, config={"min.insync.replicas": "2"})
        count, appended = 200_000, 0
        settings = config(cluster, batch_size=16_384, linger_ms=0, max_block_ms=30_000)
        with lease_producer(settings) as kept:
            write = kept.begin(topic="idle")
            write.append(numbered(0, 100))
            write.finish()
        with lease_producer(settings) as producer:
            write = producer.begin(topic="t")
            killed = leader_of(cluster, "idle")
            for start in range(0, count, 10_000):
                if start == count // 2:
                    cluster.kill(killed)
                write.append(numbered(start, 10_000, size=100))
                appended += 10_000
            receipts: tuple[PartitionOffsets, ...] = write.finish()
        assert appended == count
        assert sum(receipt.record_count for receipt in receipts) == count
        assert_each_number_once_in_order(read(cluster, "t"), count)
        # A producer that was idle when a leader died has no request under way that would tell it.
        assert leader_of(cluster, "idle") != killed
        with lease_producer(settings) as again:
            assert again is kept
            write = again.begin(topic="idle")
            write.append(numbered(100, 100))
            write.finish()
        assert_each_number_once_in_order(read(cluster, "idle"), 200)


def delete_topic(kafka: LocalKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, DEADLINE_S, f"{topic} is gone")


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.9.2"])
def test_an_older_broker_is_spoken_to_in_its_versions(version: str) -> None:
    with LocalKafka(nodes=1, kafka_version=version) as cluster:
        cluster.create_topic("t", 2)
        with lease_producer(config(cluster)) as producer:
            write = producer.begin(topic="t")
            write.append(numbered(0, 10_000))
            write.finish()
        assert_each_number_once_in_order(read(cluster, "t"), 10_000)

        # It takes batches for whatever topic has the name by now, so only asking it shows that rows went with the old.
        with pytest.raises(TopicRecreated), lease_producer(config(cluster)) as producer:
            write = producer.begin(topic="t")
            write.append(numbered(0, 10))
            producer.flush(write.acknowledgements)
            delete_topic(cluster, "t")
            cluster.create_topic("t", 2)
            write.append(numbered(10, 10))
            write.finish()
