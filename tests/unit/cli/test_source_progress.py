"""How far a source is in a topic: offsets of a checkpoint beside the logs of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.cli.source_progress import Log, PartitionProgress, TopicProgress, topic_progress
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("position", "planned", "log", "told"),
    [
        pytest.param(20, 25, Log(0, 100, 100), {"behind": 80, "planned": 5}, id="what the log has after its position"),
        pytest.param(100, 100, Log(0, 100, 100), {}, id="nothing"),
        pytest.param(100, None, Log(100, 100, 100), {}, id="nothing of an empty log"),
        pytest.param(20, 20, Log(0, 70, 100), {"behind": 80, "unstable": 30}, id="a part behind open transactions"),
        pytest.param(90, 90, Log(0, 70, 100), {"behind": 10, "unstable": 10}, id="all behind open transactions"),
        pytest.param(20, 20, Log(50, 100, 100), {"behind": 80, "deleted": 30}, id="retention has overtaken it"),
        pytest.param(50, 50, Log(50, 100, 100), {"behind": 50}, id="retention is at it"),
        pytest.param(20, 20, Log(100, 100, 100), {"behind": 80, "deleted": 80}, id="DeleteRecords up to the end"),
        pytest.param(50, 50, Log(0, 10, 10), {"ahead": 40}, id="the log ends before the position"),
    ],
)
def test_a_partition_is_behind_by_what_the_log_has_after_its_position(
    position: int, planned: int | None, log: Log, told: dict[str, int]
) -> None:
    logs = {TopicPartition("t", 0): log}
    found = topic_progress("t", {0: position}, {} if planned is None else {0: planned}, logs)
    nothing = PartitionProgress(0, position, behind=0, planned=0, unstable=0, deleted=0, ahead=0)
    assert found.partitions == (replace(nothing, **told),)


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
