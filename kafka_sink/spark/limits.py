"""The limits of a write, for bad rows and for its rate: a task's part of them, and the check of all tasks together.

    task          `bad_row_policy`, `rate_limit` ─> rows ─> `finish`: counts agree, and one line in the log
    committing    `check_bad_rows`, `warn_of_rate`: the limits over all tasks, from their messages

The limits may come from Spark's conf, which only tasks know. So a task's message brings the limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark import TaskContext

from kafka_sink.errors import ReceiptMismatch
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowLimits, BadRowPolicy, check_limits, total
from kafka_sink.kafka.producer.throttling import OpenTransaction, Rate, RateLimit
from kafka_sink.options.config import FAIL, SinkConfig
from kafka_sink.spark.task_results import Pace, TaskCommitMessage

if TYPE_CHECKING:
    from kafka_sink.kafka.client import Producer
    from kafka_sink.kafka.producer.row_limits import TopicRules
    from kafka_sink.kafka.write import Write

log = logging.getLogger(__name__)


def bad_row_policy(
    config: SinkConfig,
    conf: Mapping[str, str],
    producer: Producer,
    *,
    query_id: str | None = None,
    batch_id: int | None = None,
) -> BadRowPolicy | None:
    """Return the task's policy for bad rows, or None if a bad row must fail the task.

    `conf`: Spark's conf in the task, which has a stream's query and micro-batch. An exactly-once write passes
    `query_id` and `batch_id` instead. `producer`: its admin client, which most writes never make, asks for the limits
    of topics.
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
        origin=Origin(query_id, batch_id, context.partitionId() if context else None, config.topic),
        rules=_topic_rules(producer, config.producer.max_request_size),
    )


def _topic_rules(producer: Producer, max_request_size: int) -> Callable[[Collection[str]], Mapping[str, TopicRules]]:
    from kafka_sink.kafka.producer.row_limits import SETTINGS, topic_rules

    is_logged = False

    def rules(topics: Collection[str]) -> Mapping[str, TopicRules]:
        nonlocal is_logged
        settings = producer.admin.topic_settings(topics, SETTINGS)
        unknown = sorted(topic for topic, known in settings.items() if not known)
        if unknown and not is_logged:
            is_logged = True
            log.warning(
                "The settings of topic %r are not known, which takes the ACL TOPIC DESCRIBE_CONFIGS: rows of up to "
                "kafka.max.request.size = %d bytes are sent, and one that is too large for the topic fails its task",
                unknown[0],
                max_request_size,
            )
        return {topic: topic_rules(known) for topic, known in settings.items()}

    return rules


def finish(write: Write, config: SinkConfig) -> tuple[tuple[PartitionOffsets, ...], BadRowCounts]:
    """Wait for the acknowledgement of every row that was sent. Raises DeliveryError, TooManyBadRows."""
    receipts, bad = write.finish(), write.bad_rows
    acknowledged = sum(receipt.record_count for receipt in receipts)
    dead_letters = sum(each.record_count for each in receipts if each.topic == config.dead_letter_topic)
    if acknowledged + bad.dropped_count != write.record_count or dead_letters != bad.dead_lettered_count:
        raise ReceiptMismatch(received=write.record_count, acknowledged=acknowledged, dropped=bad.dropped_count)
    check_limits(bad, write.record_count, rows_are_written=False)
    _warn(bad, write.record_count, "this task", config.dead_letter_topic)
    return receipts, bad


def check_bad_rows(receipts: Sequence[TaskCommitMessage], *, rows_are_written: bool) -> None:
    """Raise TooManyBadRows if all tasks together exceed the limits. `rows_are_written`: the other rows are visible."""
    bad = total(receipt.bad_rows for receipt in receipts)
    rows = sum(receipt.record_count for receipt in receipts)
    check_limits(bad, rows, rows_are_written=rows_are_written)
    _warn(bad, rows, "this write", None)


def _warn(bad: BadRowCounts, rows: int, whose: str, dead_letter_topic: str | None) -> None:
    """Log one line if there were bad rows."""
    if not bad.by_reason:
        return
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(bad.by_reason.items()))
    done = "dropped" if bad.dropped else f"written to {dead_letter_topic!r}" if dead_letter_topic else "dead-lettered"
    log.warning("%d of %d rows of %s were bad and have been %s (%s)", bad.by_reason.total(), rows, whose, done, counts)


# --- the rate ---------------------------------------------------------------------------------------------------------


def rate_limit(config: SinkConfig, *, transactional_id: str | None = None) -> RateLimit | None:
    """Return the rate limit of a task that begins now, which is its part of the write's; None if there is no limit.

    `transactional_id`: the id of the rows' transaction, which also begins now. Spark does not tell a Python task how
    many tasks its write has (PythonRunner.scala, worker_message.py). So the option `rateTasks` has the number.
    """
    wholes, tasks = (config.max_rows_per_second, config.max_bytes_per_second), config.rate_tasks
    if wholes == (None, None):
        return None
    assert tasks is not None, "a rule of the configuration"
    transaction = None
    if transactional_id is not None:
        transaction = OpenTransaction(transactional_id, config.transaction_timeout_ms)
    rate = Rate(*(None if whole is None else whole / tasks for whole in wholes))
    return RateLimit(rate, now_ms=monotonic_ms(), transaction=transaction)


def pace(config: SinkConfig, began_ms: int) -> Pace | None:
    """Return the pace of a task that ends now, or None if it had no rate limit."""
    if config.rate_tasks is None or (config.max_rows_per_second, config.max_bytes_per_second) == (None, None):
        return None
    return Pace(config.rate_tasks, began_ms, wall_clock_ms())


def warn_of_rate(receipts: Sequence[TaskCommitMessage]) -> None:
    """Log one line if more tasks of a write ran at once than `rateTasks`."""
    paces = [receipt.pace for receipt in receipts if receipt.pace is not None]
    if paces and (most := _most_at_once(paces)) > paces[0].rate_tasks:
        log.warning(
            "%d tasks of this write wrote at once, and rateTasks is %d: together they may have been %.1f times as fast "
            "as maxRowsPerSecond and maxBytesPerSecond allow. Set rateTasks to as many as run at once.",
            most,
            paces[0].rate_tasks,
            most / paces[0].rate_tasks,
        )


def _most_at_once(paces: Sequence[Pace]) -> int:
    # Within one millisecond ends (-1) sort before begins (+1), so these tasks do not overlap.
    steps = sorted([(each.began_ms, 1) for each in paces] + [(each.ended_ms, -1) for each in paces])
    return max(accumulate(step for _, step in steps))


def warn_of_throttling(write: Write, config: SinkConfig) -> None:
    """Log one line if brokers throttled the task."""
    found = write.acknowledgements
    if found.longest_throttle_ms > 0:
        log.warning(
            "brokers throttled this task by a quota of its user or of client id %r: a Produce request by %.0f ms on "
            "average, by %.0f ms at the longest (KIP-219). It waited as long as it was told to; rows are not lost.",
            config.producer.client_id,
            found.throttle_ms / found.answers,
            found.longest_throttle_ms,
        )
