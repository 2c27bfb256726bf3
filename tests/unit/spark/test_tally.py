"""What a tally does with receipts and reads; that they travel is in integration/test_jobs.py and test_monitoring.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import Accumulator

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.read_tally import ReadParam, ReadTally
from kafka_sink.spark.tally import ReceiptsParam, Tally

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OF_A_TASK = {P0: PartitionOffsets("t", 0, 2, 3, 4, 1, 50), P1: PartitionOffsets("t", 1, 1, None, None, 1, 10)}
READ = {P0: ReadStatistics("t", 0, 2, 50, 3), P1: ReadStatistics("t", 1, 1, 10)}
SPARK: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(accumulator=lambda value, param: Accumulator(0, value, param))
)


@pytest.mark.parametrize(
    ("param", "before", "of_a_task", "together"),
    [
        (
            ReceiptsParam(), PartitionOffsets("t", 0, 5, 10, 14, 1, 100), OF_A_TASK,
            PartitionOffsets("t", 0, 7, 3, 14, 2, 150),
        ),
        (ReadParam(), ReadStatistics("t", 0, 5, 100, 1), READ, ReadStatistics("t", 0, 7, 150, 4)),
    ],
)  # fmt: skip
def test_they_are_summed_by_partition_into_a_new_value(param: Any, before: Any, of_a_task: Any, together: Any) -> None:
    value = {P0: before}
    assert param.addInPlace(value, of_a_task) == {P0: together, P1: of_a_task[P1]}
    # Another thread may be reading it.
    assert value == {P0: before}
    assert param.addInPlace(param.zero(value), of_a_task) == of_a_task


def test_each_range_that_was_read_is_added() -> None:
    tally = ReadTally(SPARK)
    for statistics in (*[ReadStatistics("t", 0, 2, 50)] * 2, ReadStatistics("t", 1, 1, 10)):
        tally.on_read(statistics)
    assert tally.value == {P0: ReadStatistics("t", 0, 4, 100), P1: ReadStatistics("t", 1, 1, 10)}


def test_a_write_that_succeeds_is_added_and_one_that_fails_is_not() -> None:
    tally = Tally(SPARK)
    assert tally.value == {}
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    tally.on_acknowledgement((), ProducerClosed(reason="of a test"))
    assert tally.value == OF_A_TASK
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    assert tally.value[P0].record_count == 4
