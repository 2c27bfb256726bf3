"""The partitions that another client chooses, and those that come into being during a write, on a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_sink.broker import LocalKafka
from kafka_sink.errors import PartitionOutOfRange
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kept import lease_producer
from kafka_sink.options.config import sink_config
from read_back import read_topic

DEADLINE_S = 60
PARTITION_COUNT = 7


def config(kafka: LocalKafka) -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "10000"}).producer


def partitions_by_value(kafka: LocalKafka, topic: str) -> dict[bytes, int]:
    read = read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    return {record.value or b"": partition for partition, _, record in read}


# librdkafka sends a null key to one partition with each of these; only with `consistent` does the sink, too.
@pytest.mark.parametrize(("partitioner", "null_keys"), [("murmur2", False), ("consistent", True), ("fnv1a", False)])
def test_librdkafka_sends_every_key_to_the_same_partition(
    kafka: LocalKafka, topic: Callable[..., str], partitioner: str, null_keys: bool
) -> None:
    source = random.Random(7)
    keys: list[bytes | None] = [source.randbytes(source.randrange(101)) for _ in range(5_000)]
    # The empty key; one whose FNV-1a is -2^31, where librdkafka and Sarama take two ways to one result.
    keys += [b"", b"hp4gi_", *([None] * 10 if null_keys else [])]
    values = [b"%d" % n for n in range(len(keys))]

    theirs = topic(PARTITION_COUNT)
    librdkafka = LibrdkafkaProducer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": partitioner})
    for key, value in zip(keys, values, strict=True):
        librdkafka.produce(theirs, key=key, value=value)
    assert librdkafka.flush(DEADLINE_S) == 0

    ours = topic(PARTITION_COUNT)
    with lease_producer(config(kafka)) as producer:
        write = producer.begin(topic=ours, partitioner=partitioner)
        write.append(pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values)}))
        write.finish()

    got = partitions_by_value(kafka, ours)
    assert len(got) == len(keys)
    assert got == partitions_by_value(kafka, theirs)
    assert set(got.values()) == set(range(PARTITION_COUNT))


def test_a_partition_that_came_into_being_during_the_write(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    keyed = pa.record_batch(
        {"key": pa.array([b"%d" % n for n in range(100)]), "value": pa.array([b"k%d" % n for n in range(100)])}
    )
    explicit = pa.record_batch({"value": pa.array([b"explicit"]), "partition": pa.array([3], pa.int32())})
    with lease_producer(config(kafka)) as producer:
        write = producer.begin(topic=name)
        write.append(keyed)
        with pytest.raises(PartitionOutOfRange) as refused:
            write.append(explicit)
        assert (refused.value.partition, refused.value.partition_count) == (3, 2)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(name, 4)])[name].result(DEADLINE_S)
        write.append(explicit)
        write.append(keyed)
        write.finish()
    got = partitions_by_value(kafka, name)
    assert got.pop(b"explicit") == 3
    assert set(got.values()) == {0, 1}
