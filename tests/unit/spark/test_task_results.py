"""What tasks tell the commit: that all are there, bad rows, pace, proofs and tallies. That tallies travel is in
integration/test_jobs.py and test_monitoring.py."""

import pickle
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pyspark import Accumulator

from kafka_sink import errors
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.producer.acknowledgements import PackedRuns, PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowLimits
from kafka_sink.kafka.producer.row_limits import TopicRules
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.statistics import ReadStatistics
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.records.columns import RecordColumns
from kafka_sink.spark.limits import bad_row_policy, check_bad_rows, finish, pace, rate_limit, warn_of_rate
from kafka_sink.spark.tally import ReadTally, Sums, Tally
from kafka_sink.spark.task_results import (
    Identity,
    Pace,
    TaskCommitMessage,
    TaskProof,
    check_all_present,
    row_identity,
    stream_identity,
)

RECEIPT = TaskCommitMessage(0, 3, (PartitionOffsets("t", 1, 3, 10, 12, 1, 99),))


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "h:1", "topic": "t", **options})


def all_present(*messages: TaskCommitMessage) -> bool:
    return check_all_present(messages, micro_batch_id=4) == messages


@pytest.mark.parametrize(("micro_batch_id", "named"), [(4, "micro-batch 4"), (None, "batch write")])
def test_a_missing_receipt_is_refused_with_the_task_that_left_none(micro_batch_id: int | None, named: str) -> None:
    assert check_all_present([], micro_batch_id=micro_batch_id) == ()
    assert check_all_present([RECEIPT, RECEIPT], micro_batch_id=micro_batch_id) == (RECEIPT, RECEIPT)
    with pytest.raises(errors.CommitRefused, match=rf"{named}.*1, 3") as failure:
        check_all_present([RECEIPT, None, RECEIPT, None], micro_batch_id=micro_batch_id)
    assert failure.value.missing == (1, 3)


def test_a_topic_made_again_between_two_tasks_takes_the_rows_of_the_first_with_it() -> None:
    to_old, to_new = (replace(RECEIPT, topic_ids={"u": "same", "t": topic_id}) for topic_id in ("old", "new"))
    assert all_present(to_old, to_old, RECEIPT)
    with pytest.raises(errors.TopicRecreated) as failure:
        all_present(to_old, to_new)
    assert (failure.value.topic, failure.value.old_topic_id, failure.value.new_topic_id) == ("t", "old", "new")


def test_tasks_that_saw_a_topic_without_its_id_wrote_to_the_same_topic() -> None:
    """Before and while brokers are upgraded to a release that has topic ids."""
    assert all_present(*(replace(RECEIPT, topic_ids={"t": topic_id}) for topic_id in (None, "its id", None)))


def test_a_cluster_replaced_between_two_tasks_takes_the_rows_of_the_first_with_it() -> None:
    first, second = replace(RECEIPT, cluster_id="one"), replace(RECEIPT, spark_partition_id=7, cluster_id="two")
    assert all_present(RECEIPT, first, RECEIPT, first)
    with pytest.raises(errors.ClusterChanged, match="task 7") as failure:
        all_present(RECEIPT, first, second)
    assert (failure.value.expected, failure.value.found) == ("one", "two")


LETTERS = config(badRows="deadLetter", deadLetterTopic="letters")
DROP = config(badRows="drop", maxBadRows="7", maxBadRowFraction="0.5")
DROPPED, DEAD = BadRowCounts({"TopicNull": 2}, {}), BadRowCounts({}, {"TopicNull": 2})


def ended(of: SinkConfig, count: int, acknowledged: dict[str, int], bad_rows: BadRowCounts = BadRowCounts()) -> Any:  # noqa: B008
    """What a task makes of the end of its Write."""
    receipts = tuple(PartitionOffsets(topic, 0, rows, 0, rows - 1, 1, 99) for topic, rows in acknowledged.items())
    written: Any = SimpleNamespace(record_count=count, bad_rows=bad_rows, finish=lambda: receipts)
    found, counts = finish(written, of)
    assert found == receipts
    return counts


def test_acknowledged_and_dropped_are_what_was_delivered() -> None:
    assert ended(DROP, 10, {"t": 8}, DROPPED) == DROPPED
    assert ended(LETTERS, 10, {"t": 8, "letters": 2}, DEAD) == DEAD


@pytest.mark.parametrize(("of", "acknowledged", "bad"), [
    (DROP, {"t": 9}, DROPPED), (DROP, {"t": 10}, DROPPED), (DROP, {"t": 7}, DROPPED),
    (LETTERS, {"t": 8, "letters": 1}, DEAD), (LETTERS, {"t": 8}, DEAD), (LETTERS, {"t": 8}, BadRowCounts()),
    # As many, but one row is not where it belongs.
    (LETTERS, {"t": 9, "letters": 1}, DEAD), (LETTERS, {"t": 7, "letters": 3}, DEAD),
])  # fmt: skip
def test_any_other_sum_is_a_defect(of: SinkConfig, acknowledged: dict[str, int], bad: BadRowCounts) -> None:
    with pytest.raises(errors.ReceiptMismatch):
        ended(of, 10, acknowledged, bad)


def test_a_task_ends_with_its_own_fraction_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    limited = replace(DEAD, limits=BadRowLimits(max_fraction=0.2))
    ended(LETTERS, 10, {"t": 8, "letters": 2}, limited)
    ended(LETTERS, 9, {"t": 9})
    (line,) = caplog.messages
    assert line == "2 of 10 rows of this task were bad and have been written to 'letters' (TopicNull: 2)"
    with pytest.raises(errors.TooManyBadRows):
        ended(LETTERS, 9, {"t": 7, "letters": 2}, limited)


def test_the_commit_goes_by_the_limits_that_tasks_bring(caplog: pytest.LogCaptureFixture) -> None:
    bad = replace(DROPPED, limits=BadRowLimits(max_rows=3), first_rows=((0, 1),))
    with_bad, without = (TaskCommitMessage(0, 10, (), bad_rows=each) for each in (bad, BadRowCounts()))
    check_bad_rows([with_bad, without], rows_are_written=True)
    assert caplog.messages == ["2 of 20 rows of this write were bad and have been dropped (TopicNull: 2)"]
    with pytest.raises(errors.TooManyBadRows, match="4 of 20 rows"):
        check_bad_rows([with_bad, replace(with_bad, spark_partition_id=1)], rows_are_written=True)


def test_options_task_and_stream_make_a_policy() -> None:
    def policy(of: SinkConfig, conf: Mapping[str, str], **ids: Any) -> Any:
        return bad_row_policy(of, conf, mock.Mock(), **ids)

    def ids(conf: Mapping[str, str], **ids: Any) -> tuple[Any, ...]:
        origin = policy(DROP, conf, **ids).origin
        return origin.query_id, origin.batch_id, origin.slot, origin.topic

    assert policy(config(), {}) is None
    assert (policy(DROP, {}).dead_letter_topic, policy(DROP, {}).limits) == (None, BadRowLimits(7, 0.5))
    assert policy(LETTERS, {}).dead_letter_topic == "letters"
    conf = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    assert (ids({}), ids(conf)) == ((None, None, None, "t"), ("q", 7, None, "t"))
    # In foreachBatch a batch write has both.
    assert ids(conf, query_id="txnAppId:a", batch_id=3) == ("txnAppId:a", 3, None, "t")


def test_limits_that_are_not_told_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def ask(topics: Collection[str], _: object) -> Mapping[str, Mapping[str, str]]:
        asked.append(sorted(topics))
        return {topic: {"max.message.bytes": "700"} if topic == "told" else {} for topic in topics}

    made = bad_row_policy(DROP, {}, mock.Mock(admin=mock.Mock(AdminClient, topic_settings=ask)))
    assert made is not None
    assert made.rules({"told"}) == {"told": TopicRules(700)}
    assert caplog.messages == []
    assert made.rules({"told", "b", "a"}) == {"told": TopicRules(700), "a": TopicRules(), "b": TopicRules()}
    assert made.rules({"c"}) == {"c": TopicRules()}
    (warned,) = caplog.messages
    assert "The settings of topic 'a' are not known" in warned and "DESCRIBE_CONFIGS" in warned
    assert asked == [["told"], ["a", "b", "told"], ["c"]]


def test_a_task_takes_its_part_of_a_rate_if_there_is_one() -> None:
    before_ms = monotonic_ms()
    limit = rate_limit(config(maxRowsPerSecond="1000", maxBytesPerSecond="1000000", rateTasks="16"))
    after_ms = monotonic_ms()
    assert limit is not None
    assert before_ms + 500 <= limit.take(1, 62_500, after_ms) <= after_ms + 1_000
    assert limit.rows_at_once(1_000_000, 0) == 6
    assert rate_limit(config()) is rate_limit(config(rateTasks="4")) is None
    for option in ("maxRowsPerSecond", "maxBytesPerSecond"):
        with pytest.raises(errors.InvalidOption, match="rateTasks with it"):
            config(**{option: "10"})


@pytest.mark.parametrize(("times", "most"), [
    ([(0, 10), (10, 20), (10, 30)], 2), ([(0, 10), (9, 20), (5, 12)], 3), ([(0, 100), (10, 20), (30, 40)], 2)
])  # fmt: skip
def test_a_commit_says_that_more_tasks_wrote_at_once_than_were_told(
    times: list[tuple[int, int]], most: int, caplog: pytest.LogCaptureFixture
) -> None:
    for told in (most, most - 1):
        warn_of_rate([TaskCommitMessage(slot, 1, (), pace=Pace(told, *at)) for slot, at in enumerate(times)])
    (said,) = caplog.messages
    assert said.startswith(f"{most} tasks of this write wrote at once, and rateTasks is {most - 1}")


def test_only_a_write_that_was_to_be_slow_has_a_pace(caplog: pytest.LogCaptureFixture) -> None:
    assert pace(config(rateTasks="1"), 5) is None
    slow = pace(config(maxBytesPerSecond="9", rateTasks="3"), 5)
    assert slow is not None and (slow.rate_tasks, slow.began_ms) == (3, 5)
    warn_of_rate([TaskCommitMessage(slot, 1, ()) for slot in range(9)])
    assert not caplog.messages


OF_A_STREAM = Identity("2f1c9bd0-0000-4000-8000-000000000000", 12, errors.WriteKind.STREAM)


def test_tasks_of_a_stream_know_whose_they_are_and_others_know_of_none() -> None:
    properties = {"sql.streaming.queryId": OF_A_STREAM.query_id, "streaming.sql.batchId": "12", "spark.app.id": "a"}
    assert stream_identity(properties) == OF_A_STREAM
    with pytest.raises(KeyError):
        stream_identity({"spark.app.id": "a"})


def test_two_writes_of_one_name_in_receipts_are_two_where_rows_are_told_apart() -> None:
    one, other = (Identity(query_id, 0, errors.WriteKind.BATCH, receipt_name="orders") for query_id in ("1", "2"))
    assert (one.named, OF_A_STREAM.named) == (other.named, OF_A_STREAM.query_id)
    texts = []
    for identity in (one, other):
        of_rows = row_identity(config(rowIdentity="true"), identity, 0)
        assert of_rows is not None
        columns = RecordColumns.from_arrow(pa.record_batch({"value": [b"v"]}), now_ms=0)
        headers = of_rows.added_to(columns, np.array([0])).headers
        assert headers is not None
        texts.append(headers.value.to_pylist())
    assert texts == [[b"t", query_id, b"0", b"0", b"0"] for query_id in (b"1", b"2")]


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_message_grows_by_the_runs_and_little_more() -> None:
    runs = (PackedRuns((P0,), bytes(36 * count)) for count in (0, 1_000))
    none, many = (len(pickle.dumps(TaskProof("/r", OF_A_STREAM, "at-least-once", 1, 2, each))) for each in runs)
    assert none < 700 and many - none < 36_000 + 20


OF_A_TASK = {P0: PartitionOffsets("t", 0, 2, 3, 4, 1, 50), P1: PartitionOffsets("t", 1, 1, None, None, 1, 10)}
READ = {P0: ReadStatistics("t", 0, 2, 50, 3), P1: ReadStatistics("t", 1, 1, 10)}
SPARK: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(accumulator=lambda value, param: Accumulator(0, value, param))
)


@pytest.mark.parametrize(("param", "before", "of_a_task", "together"), [
    (Sums(), PartitionOffsets("t", 0, 5, 10, 14, 1, 100), OF_A_TASK,
     PartitionOffsets("t", 0, 7, 3, 14, 2, 150)),
    (Sums(), ReadStatistics("t", 0, 5, 100, 1), READ, ReadStatistics("t", 0, 7, 150, 4)),
])  # fmt: skip
def test_they_are_summed_by_partition_into_a_new_value(param: Any, before: Any, of_a_task: Any, together: Any) -> None:
    value = {P0: before}
    assert param.addInPlace(value, of_a_task) == {P0: together, P1: of_a_task[P1]}
    # Another thread may be reading it.
    assert value == {P0: before}
    assert param.addInPlace(param.zero(value), of_a_task) == of_a_task


def test_a_write_that_succeeds_is_added_and_one_that_fails_is_not() -> None:
    tally, read = Tally(SPARK), ReadTally(SPARK)
    assert tally.value == {}
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    tally.on_acknowledgement((), errors.ProducerClosed(reason="of a test"))
    assert tally.value == OF_A_TASK
    tally.on_acknowledgement(tuple(OF_A_TASK.values()), None)
    assert tally.value[P0].record_count == 4
    for each in (ReadStatistics("t", 0, 2, 50), ReadStatistics("t", 0, 2, 50), READ[P1]):
        read.on_read(each)
    assert read.value == {P0: ReadStatistics("t", 0, 4, 100), P1: READ[P1]}
