"""Bad rows in Spark's processes: the policy of a task, the counts in its receipt, and the check at the commit.

    task          `bad_row_policy` ─> rows ─> `finish`: counts agree, the limits for this task, one line in its log
    committing    `check_bad_rows`: the limits over all tasks, from their messages, before anything is decided

The limits may come from Spark's conf, which only tasks know. So a task's message brings the limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext

from kafka_sink.errors import ReceiptMismatch
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowLimits, BadRowPolicy, check_limits, total
from kafka_sink.options.config import FAIL, SinkConfig
from kafka_sink.spark.task_results import TaskCommitMessage

# A commit asks for the sum only.
if TYPE_CHECKING:
    from kafka_sink.kafka.client import Producer
    from kafka_sink.kafka.producer.row_limits import TopicRules
    from kafka_sink.kafka.write import Write

log = logging.getLogger(__name__)

# Maps topics to the settings (those of SETTINGS) that the brokers return for each topic.
Ask = Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]


def ask_over(producer: Producer) -> Ask:
    from kafka_sink.kafka.producer.row_limits import SETTINGS

    return lambda topics: producer.admin.topic_settings(topics, SETTINGS)


def bad_row_policy(
    config: SinkConfig, conf: Mapping[str, str], ask: Ask, *, query_id: str | None = None, batch_id: int | None = None
) -> BadRowPolicy | None:
    """Return the task's policy for bad rows, or None if a bad row must fail the task.

    `conf`: Spark's conf in the task, which has a stream's query and micro-batch. An exactly-once write passes
    `query_id` and `batch_id` instead.
    """
    if config.bad_rows == FAIL:
        return None
    if query_id is None and "streaming.sql.batchId" in conf:
        query_id, batch_id = conf.get("sql.streaming.queryId"), int(conf["streaming.sql.batchId"])
    from kafka_sink.records.dead_letters import Origin

    context = TaskContext.get()
    return BadRowPolicy(
        dead_letter_topic=config.dead_letter_topic,
        limits=BadRowLimits(config.max_bad_rows, config.max_bad_row_fraction),
        origin=Origin(query_id, batch_id, context.partitionId() if context else 0, config.topic),
        rules=_asking(ask, config.producer.max_request_size),
    )


def _asking(ask: Ask, max_request_size: int) -> Callable[[Collection[str]], Mapping[str, TopicRules]]:
    from kafka_sink.kafka.producer.row_limits import topic_rules

    was_told = False

    def rules(topics: Collection[str]) -> Mapping[str, TopicRules]:
        nonlocal was_told
        settings = ask(topics)
        untold = sorted(topic for topic, told in settings.items() if not told)
        if untold and not was_told:
            was_told = True
            log.warning(
                "The settings of topic %r are not known, which takes the ACL TOPIC DESCRIBE_CONFIGS: rows of up to "
                "kafka.max.request.size = %d bytes are sent, and one that is too large for the topic fails its task",
                untold[0],
                max_request_size,
            )
        return {topic: topic_rules(told) for topic, told in settings.items()}

    return rules


def finish(write: Write, config: SinkConfig) -> tuple[tuple[PartitionOffsets, ...], BadRowCounts]:
    """Wait for the acknowledgement of every row that was sent. Raises DeliveryError, TooManyBadRows."""
    receipts, bad = write.finish(), write.bad_rows
    acknowledged = sum(receipt.record_count for receipt in receipts)
    dead_letters = sum(each.record_count for each in receipts if each.topic == config.dead_letter_topic)
    if acknowledged + bad.dropped_count != write.record_count or dead_letters != bad.dead_lettered_count:
        raise ReceiptMismatch(received=write.record_count, acknowledged=acknowledged, dropped=bad.dropped_count)
    check_limits(bad, write.record_count, rows_are_written=False)
    _tell(bad, write.record_count, "this task", config.dead_letter_topic)
    return receipts, bad


def check_bad_rows(receipts: Sequence[TaskCommitMessage], *, rows_are_written: bool) -> None:
    """Raise TooManyBadRows if all tasks together exceed the limits. `rows_are_written`: the other rows are visible."""
    bad = total(receipt.bad_rows for receipt in receipts)
    rows = sum(receipt.record_count for receipt in receipts)
    check_limits(bad, rows, rows_are_written=rows_are_written)
    _tell(bad, rows, "this write", None)


def _tell(bad: BadRowCounts, rows: int, whose: str, dead_letter_topic: str | None) -> None:
    """Log one line if there were bad rows."""
    if not bad.by_reason:
        return
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(bad.by_reason.items()))
    done = "dropped" if bad.dropped else f"written to {dead_letter_topic!r}" if dead_letter_topic else "dead-lettered"
    log.warning("%d of %d rows of %s were bad and have been %s (%s)", bad.by_reason.total(), rows, whose, done, counts)
