from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


def batch(partition: int, records: int) -> Any:
    return SimpleNamespace(topic_partition=TopicPartition("t", partition), record_count=records, size_bytes=100)


def test_offsets_span_what_was_acknowledged_in_whatever_order_and_counts_add_up() -> None:
    acknowledgements = Acknowledgements()
    for _ in range(4):
        acknowledgements.opened()
    acknowledgements.acknowledged(batch(1, 5), 30)
    acknowledgements.acknowledged(batch(1, 10), 10)
    acknowledgements.acknowledged(batch(1, 2), None)
    assert not acknowledgements.settled
    acknowledgements.acknowledged(batch(0, 1), 0)
    assert acknowledgements.settled
    assert acknowledgements.partitions() == (
        PartitionOffsets("t", 0, 1, 0, 0, 1, 100),
        PartitionOffsets("t", 1, 17, 10, 34, 3, 300),
    )


def test_the_first_failure_is_the_one_that_is_told_and_settles_the_write() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.opened()
    acknowledgements.opened()
    first = ProducerClosed(reason="first")
    acknowledgements.failed(first)
    assert acknowledgements.settled
    acknowledgements.failed(ProducerClosed(reason="second"))
    assert acknowledgements.failure is first


def test_a_batch_that_was_split_is_settled_when_its_last_part_is() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.opened()
    acknowledgements.split(3)
    for part in range(3):
        assert not acknowledgements.settled
        acknowledgements.acknowledged(batch(0, 10), 10 * part)
    assert acknowledgements.settled
    assert acknowledgements.partitions() == (PartitionOffsets("t", 0, 30, 0, 29, 3, 300),)
