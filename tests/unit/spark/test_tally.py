"""What a tally does with receipts; that they travel is in broker/test_jobs.py."""

from __future__ import annotations

from kafka_sink.producer.receipts import PartitionReceipt, TopicPartition
from kafka_sink.spark.tally import ReceiptsParam

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_receipts_are_summed_by_partition_into_a_new_value() -> None:
    param = ReceiptsParam()
    before = {P0: PartitionReceipt("t", 0, 5, 10, 14, 1, 100)}
    of_a_task = {
        P0: PartitionReceipt("t", 0, 2, 3, 4, 1, 50),
        P1: PartitionReceipt("t", 1, 1, None, None, 1, 10),
    }
    after = param.addInPlace(before, of_a_task)
    assert after == {P0: PartitionReceipt("t", 0, 7, 3, 14, 2, 150), P1: of_a_task[P1]}
    # Another thread may be reading it.
    assert before == {P0: PartitionReceipt("t", 0, 5, 10, 14, 1, 100)}
    assert param.addInPlace(param.zero(before), of_a_task) == of_a_task
