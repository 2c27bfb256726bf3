"""What a tally does with reads; that they travel is in integration/test_monitoring.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark import Accumulator

from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.read_tally import ReadParam, ReadTally

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_reads_are_summed_by_partition_into_a_new_value() -> None:
    param = ReadParam()
    before = {P0: ReadStatistics("t", 0, 5, 100, 1)}
    of_a_task = {P0: ReadStatistics("t", 0, 2, 50, 3), P1: ReadStatistics("t", 1, 1, 10)}
    after = param.addInPlace(before, of_a_task)
    assert after == {P0: ReadStatistics("t", 0, 7, 150, 4), P1: of_a_task[P1]}
    # Another thread may be reading it.
    assert before == {P0: ReadStatistics("t", 0, 5, 100, 1)}
    assert param.addInPlace(param.zero(before), of_a_task) == of_a_task


def test_each_range_is_added() -> None:
    def accumulator(value: Any, param: Any) -> Accumulator[Any]:
        return Accumulator(0, value, param)

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(accumulator=accumulator))
    tally = ReadTally(spark)
    assert tally.value == {}
    for _ in range(2):
        tally.on_read(ReadStatistics("t", 0, 2, 50))
    tally.on_read(ReadStatistics("t", 1, 1, 10))
    assert tally.value == {P0: ReadStatistics("t", 0, 4, 100), P1: ReadStatistics("t", 1, 1, 10)}
