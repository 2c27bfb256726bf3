"""Reads a whole topic with confluent-kafka, a client that shares no code with this project."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from comparison import Record

MESSAGES_A_CALL = 10_000


class ReadTimeout(Exception):
    """The topic's end was not reached in time."""


def read_topic(bootstrap_servers: str, topic: str, timeout_s: float) -> Iterator[tuple[int, int, Record]]:
    """(partition, offset, record) of everything in `topic`, each partition in its order.

    Raises ReadTimeout when that takes longer than `timeout_s`, KafkaException for the client's own errors.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    deadline = time.monotonic() + timeout_s
    try:
        partitions = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        unread = set(partitions)
        while unread:
            if time.monotonic() > deadline:
                raise ReadTimeout(f"{timeout_s} s were too few to read partitions {sorted(unread)} of {topic}")
            for message in consumer.consume(MESSAGES_A_CALL, timeout=0.2):
                if at_end(message):
                    unread.discard(message.partition())
                else:
                    yield record_of(message)
    finally:
        consumer.close()


def at_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def record_of(message: Message) -> tuple[int, int, Record]:
    # The annotations cover messages yet to be sent as well. One that was read has a place, and bytes.
    read: Any = message
    kind, timestamp_ms = read.timestamp()
    record = Record(
        key=read.key(),
        value=read.value(),
        headers=tuple(read.headers() or ()),
        timestamp_ms=timestamp_ms if kind == TIMESTAMP_CREATE_TIME else -1,
    )
    return read.partition(), read.offset(), record
