from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.errors import ClusterChanged, CommitRefused, TopicRecreated
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.spark.commit_message import TaskCommitMessage, check_all_present

RECEIPT = TaskCommitMessage(0, 0, 3, (PartitionOffsets("t", 1, 3, 10, 12, 1, 99),))


def test_all_present_gives_them_back() -> None:
    assert check_all_present([RECEIPT, RECEIPT], micro_batch_id=4) == (RECEIPT, RECEIPT)
    assert check_all_present([], micro_batch_id=None) == ()


@pytest.mark.parametrize(("micro_batch_id", "named"), [(4, "micro-batch 4"), (None, "batch write")])
def test_a_missing_receipt_is_refused_with_the_task_that_left_none(micro_batch_id: int | None, named: str) -> None:
    with pytest.raises(CommitRefused) as failure:
        check_all_present([RECEIPT, None, RECEIPT, None], micro_batch_id=micro_batch_id)
    assert failure.value.missing == (1, 3)
    assert named in str(failure.value)
    assert "1, 3" in str(failure.value)


def test_a_topic_made_again_between_two_tasks_takes_the_rows_of_the_first_with_it() -> None:
    to_old, to_new = (replace(RECEIPT, topic_ids={"u": "same", "t": topic_id}) for topic_id in ("old", "new"))
    assert check_all_present([to_old, to_old, RECEIPT], micro_batch_id=4) == (to_old, to_old, RECEIPT)
    with pytest.raises(TopicRecreated) as failure:
        check_all_present([to_old, to_new], micro_batch_id=4)
    assert (failure.value.topic, failure.value.old_topic_id, failure.value.new_topic_id) == ("t", "old", "new")


def test_tasks_that_saw_a_topic_without_its_id_wrote_to_the_same_topic() -> None:
    """Before and while brokers are upgraded to a release that has topic ids."""
    receipts = tuple(replace(RECEIPT, topic_ids={"t": topic_id}) for topic_id in (None, "its id", None))
    assert check_all_present(receipts, micro_batch_id=4) == receipts


def test_a_cluster_replaced_between_two_tasks_takes_the_rows_of_the_first_with_it() -> None:
    first, second = replace(RECEIPT, cluster_id="one"), replace(RECEIPT, spark_partition_id=7, cluster_id="two")
    assert check_all_present([RECEIPT, first, RECEIPT, first], micro_batch_id=4) == (RECEIPT, first, RECEIPT, first)
    with pytest.raises(ClusterChanged, match="task 7") as failure:
        check_all_present([RECEIPT, first, second], micro_batch_id=4)
    assert (failure.value.expected, failure.value.found) == ("one", "two")
