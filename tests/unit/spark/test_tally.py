"""What a tally does with receipts; that they travel is in integration/test_jobs.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark import Accumulator

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.tally import ReceiptsParam, Tally

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OF_A_TASK = {
    P0: PartitionOffsets("t", 0, 2, 3, 4, 1, 50),
    P1: PartitionOffsets("t", 1, 1, None, None, 1, 10),
}


def test_receipts_are_summed_by_partition_into_a_new_value() -> None:
    param = ReceiptsParam()
    before = {P0: PartitionOffsets("t", 0, 5, 10, 14, 1, 100)}
    after = param.addInPlace(before, OF_A_TASK)
    assert after == {P0: PartitionOffsets("t", 0, 7, 3, 14, 2, 150), P1: OF_A_TASK[P1]}
    # Another thread may be reading it.
    assert before == {P0: PartitionOffsets("t", 0, 5, 10, 14, 1, 100)}
    assert param.addInPlace(param.zero(before), OF_A_TASK) == OF_A_TASK


def test_a_write_that_succeeds_is_added_and_one_that_fails_is_not() -> None:
    def accumulator(value: Any, param: Any) -> Accumulator[Any]:
        return Accumulator(0, value, param)

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(accumulator=accumulator))
    tally = Tally(spark)
    assert tally.value == {}
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    tally.on_acknowledgement((), ProducerClosed(reason="of a test"))
    assert tally.value == OF_A_TASK
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    assert tally.value[P0].record_count == 4
