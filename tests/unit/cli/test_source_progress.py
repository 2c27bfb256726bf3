"""How far a source is in a topic: offsets of a checkpoint beside the logs of a cluster."""

from __future__ import annotations

from kafka_sink.cli.source_progress import Log, PartitionProgress, TopicProgress, topic_progress
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


def of_one(position: int, planned: int | None, log: Log) -> PartitionProgress:
    """The progress of partition 0."""
    found = topic_progress("t", {0: position}, {} if planned is None else {0: planned}, {TopicPartition("t", 0): log})
    (partition,) = found.partitions
    return partition


def test_a_partition_is_behind_by_what_the_log_has_after_its_position() -> None:
    assert of_one(20, 25, Log(0, 100, 100)) == PartitionProgress(
        0, 20, behind=80, planned=5, unstable=0, deleted=0, ahead=0
    )


def test_a_partition_that_has_all_is_not_behind() -> None:
    assert of_one(100, 100, Log(0, 100, 100)) == PartitionProgress(0, 100, 0, 0, 0, 0, 0)
    assert of_one(100, None, Log(100, 100, 100)) == PartitionProgress(0, 100, 0, 0, 0, 0, 0)


def test_what_open_transactions_hide_is_a_part_of_it() -> None:
    assert of_one(20, 20, Log(0, 70, 100)).unstable == 30
    assert of_one(90, 90, Log(0, 70, 100)).unstable == 10
    assert of_one(90, 90, Log(0, 100, 100)).unstable == 0


def test_what_retention_has_overtaken_is_told() -> None:
    assert of_one(20, 20, Log(50, 100, 100)).deleted == 30
    assert of_one(50, 50, Log(50, 100, 100)).deleted == 0
    # DeleteRecords up to the end.
    assert of_one(20, 20, Log(100, 100, 100)).deleted == 80


def test_a_log_that_ends_before_the_position_is_told() -> None:
    found = of_one(50, 50, Log(0, 10, 10))
    assert (found.behind, found.deleted, found.ahead) == (0, 0, 40)


def test_a_new_partition_is_read_from_its_earliest_offset() -> None:
    logs = {TopicPartition("t", number): Log(3, 10, 10) for number in range(2)} | {TopicPartition("u", 0): Log(0, 9, 9)}
    found = topic_progress("t", {0: 10}, {0: 10, 1: 5}, logs)
    assert [(each.position, each.behind, each.planned) for each in found.partitions] == [(10, 0, 0), (3, 7, 2)]
    assert (found.behind, found.planned, found.slowest) == (7, 2, found.partitions[1])


def test_what_the_cluster_does_not_tell_is_named() -> None:
    logs = {TopicPartition("t", 0): Log(0, 10, 10), TopicPartition("t", 1): None}
    found = topic_progress("t", {0: 10, 1: 5, 2: 7}, {}, logs)
    assert (len(found.partitions), found.not_looked_at, found.gone, found.slowest) == (1, (1,), (2,), None)
    assert topic_progress("u", {0: 10}, {}, logs) == TopicProgress("u", (), gone=(0,))
