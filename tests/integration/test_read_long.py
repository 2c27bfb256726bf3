"""Reads over brokers of other releases."""

from __future__ import annotations

import pytest

from broker_admin import produce
from kafka_reads import offsets_read, reader_of
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import BrokerUnsupported, MessageFormatTooOld
from zookeeper_kafka import kafka_of

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("version", ["2.8.2", "3.0.2", "4.4.0"])
def test_each_release_from_2_3_on_is_read(version: str) -> None:
    with kafka_of(version) as kafka:
        kafka.create_topic("numbers", 1)
        for codec in CODECS:
            produce(kafka, "numbers", 100, **{"compression.type": codec})
        for isolation in ("read_uncommitted", "read_committed"):
            options = {"subscribe": "numbers", "kafka.isolation.level": isolation}
            assert offsets_read(reader_of(kafka, "offset", **options)) == list(range(100 * len(CODECS)))
        if version == "2.8.2":
            a_topic_in_an_old_format_is_refused(kafka)


def a_topic_in_an_old_format_is_refused(kafka: LocalKafka) -> None:
    """0.10.2 has message format 1, 0.9.0 has 0. The broker converts what is written; compressed batches too."""
    for message_format, magic in (("0.10.2", 1), ("0.9.0", 0)):
        for codec in ("none", "gzip"):
            topic = f"old-{message_format}-{codec}"
            kafka.create_topic(topic, 1, config={"message.format.version": message_format})
            produce(kafka, topic, 10, **{"compression.type": codec})
            for lenient in ("true", "false"):
                with pytest.raises(MessageFormatTooOld, match=r"format") as failure:
                    offsets_read(reader_of(kafka, "offset", subscribe=topic, failOnDataLoss=lenient))
                assert (failure.value.topic, failure.value.magic) == (topic, magic)


def test_a_release_before_2_3_is_refused_before_the_read() -> None:
    with kafka_of("2.1.1") as kafka:
        kafka.create_topic("numbers", 1)
        with pytest.raises(BrokerUnsupported, match="Fetch"):
            reader_of(kafka, "offset", subscribe="numbers").partitions()
