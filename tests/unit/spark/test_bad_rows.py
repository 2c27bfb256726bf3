"""What a task makes of its write, and the commit of its tasks; the options of both."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_sink.errors import ReceiptMismatch, TooManyBadRows
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowLimits
from kafka_sink.kafka.producer.row_limits import TopicRules
from kafka_sink.options.config import sink_config
from kafka_sink.spark.bad_rows import bad_row_policy, check_bad_rows, finish
from kafka_sink.spark.commit_message import TaskCommitMessage

SERVERS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
LETTERS = sink_config({**SERVERS, "badRows": "deadLetter", "deadLetterTopic": "letters"})
DROP = sink_config({**SERVERS, "badRows": "drop", "maxBadRows": "7", "maxBadRowFraction": "0.5"})


def acknowledged(**counts: int) -> tuple[PartitionOffsets, ...]:
    return tuple(PartitionOffsets(topic, 0, count, 0, count - 1, 1, 99) for topic, count in counts.items())


@dataclass
class Written:
    """As much of a Write as its end is."""

    record_count: int
    receipts: tuple[PartitionOffsets, ...]
    bad_rows: BadRowCounts = field(default_factory=BadRowCounts)

    def finish(self) -> tuple[PartitionOffsets, ...]:
        return self.receipts


def ended(config: Any, *of: Any) -> Any:
    return finish(Written(*of), config)  # type: ignore[arg-type]


DROPPED, DEAD = BadRowCounts({"TopicNull": 2}, {}), BadRowCounts({}, {"TopicNull": 2})


def test_acknowledged_and_dropped_are_what_was_delivered() -> None:
    assert ended(DROP, 10, acknowledged(t=8), DROPPED) == (acknowledged(t=8), DROPPED)
    assert ended(LETTERS, 10, acknowledged(t=8, letters=2), DEAD) == (acknowledged(t=8, letters=2), DEAD)


@pytest.mark.parametrize(
    ("config", "receipts", "bad"),
    [
        (DROP, {"t": 9}, DROPPED),
        (DROP, {"t": 10}, DROPPED),
        (DROP, {"t": 7}, DROPPED),
        (LETTERS, {"t": 8, "letters": 1}, DEAD),
        # As many, but one row is not where it belongs.
        (LETTERS, {"t": 9, "letters": 1}, DEAD),
        (LETTERS, {"t": 7, "letters": 3}, DEAD),
        (LETTERS, {"t": 8}, DEAD),
        (LETTERS, {"t": 8}, BadRowCounts()),
    ],
)
def test_any_other_sum_is_a_defect(config: Any, receipts: dict[str, int], bad: BadRowCounts) -> None:
    with pytest.raises(ReceiptMismatch):
        ended(config, 10, acknowledged(**receipts), bad)


def test_a_task_ends_with_its_own_fraction_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    limited = replace(DEAD, limits=BadRowLimits(max_fraction=0.2))
    ended(LETTERS, 10, acknowledged(t=8, letters=2), limited)
    (line,) = caplog.messages
    assert line == "2 of 10 rows of this task were bad and have been written to 'letters' (TopicNull: 2)"
    with pytest.raises(TooManyBadRows):
        ended(LETTERS, 9, acknowledged(t=7, letters=2), limited)
    caplog.clear()
    ended(LETTERS, 9, acknowledged(t=9))
    assert caplog.messages == []


def receipt(slot: int, rows: int, bad: BadRowCounts) -> TaskCommitMessage:
    return TaskCommitMessage(slot, 0, rows, (), bad_rows=bad)


def test_the_commit_goes_by_the_limits_that_tasks_bring(caplog: pytest.LogCaptureFixture) -> None:
    bad = replace(DROPPED, limits=BadRowLimits(max_rows=3), first_rows=((0, 1),))
    check_bad_rows([receipt(0, 10, bad), receipt(1, 10, BadRowCounts())], rows_are_written=True)
    assert caplog.messages == ["2 of 20 rows of this write were bad and have been dropped (TopicNull: 2)"]
    with pytest.raises(TooManyBadRows, match="4 of 20 rows"):
        check_bad_rows([receipt(0, 10, bad), receipt(1, 10, bad)], rows_are_written=True)


def policy(config: Any, conf: Mapping[str, str] | None = None, **ids: Any) -> Any:
    return bad_row_policy(config, conf or {}, lambda topics: {topic: {} for topic in topics}, **ids)


def test_options_task_and_stream_make_a_policy() -> None:
    assert policy(sink_config(SERVERS)) is None
    made = policy(DROP)
    assert (made.dead_letter_topic, made.limits) == (None, BadRowLimits(7, 0.5))
    assert (made.origin.query_id, made.origin.batch_id, made.origin.slot, made.origin.topic) == (None, None, 0, "t")
    assert policy(LETTERS).dead_letter_topic == "letters"
    conf = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    assert (policy(DROP, conf).origin.query_id, policy(DROP, conf).origin.batch_id) == ("q", 7)
    # In foreachBatch a batch write has both.
    own = policy(DROP, conf, query_id="txnAppId:a", batch_id=3).origin
    assert (own.query_id, own.batch_id) == ("txnAppId:a", 3)


def test_limits_that_are_not_told_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def ask(topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        asked.append(sorted(topics))
        return {topic: {"max.message.bytes": "700"} if topic == "told" else {} for topic in topics}

    made = bad_row_policy(DROP, {}, ask)
    assert made is not None
    with caplog.at_level(logging.WARNING):
        assert made.rules({"told"}) == {"told": TopicRules(700)}
        assert caplog.messages == []
        assert made.rules({"told", "b", "a"}) == {"told": TopicRules(700), "a": TopicRules(), "b": TopicRules()}
        assert made.rules({"c"}) == {"c": TopicRules()}
    (warned,) = caplog.messages
    assert "The settings of topic 'a' are not known" in warned and "DESCRIBE_CONFIGS" in warned
    assert asked == [["told"], ["a", "b", "told"], ["c"]]
