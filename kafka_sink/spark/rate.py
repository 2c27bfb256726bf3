"""How fast one of Spark's tasks may write: its part of the rate that was asked for, and what the brokers' quotas left.

Nothing tells a Python task how many tasks its write has. It is sent the partition's own number, stage, attempt, and
Spark's conf as local properties (PythonRunner.scala, worker_message.py of pyspark 4.1 to 4.3); the JVM's numPartitions
stays there, and the worker that plans gets options and schema only. So the option `rateTasks` says it, and the commit,
which has a message of each task, tells when it was too small.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import accumulate

from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.producer.rate_limit import OpenTransaction, Rate, RateLimit
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import SinkConfig
from kafka_sink.spark.commit_message import Pace, TaskCommitMessage

log = logging.getLogger(__name__)


def rate_limit(config: SinkConfig, *, transactional_id: str | None = None) -> RateLimit | None:
    """For one task that begins now; None: as fast as it goes. `transactional_id`: of the transaction that its rows are
    in, which begins now, too."""
    if not _is_limited(config):
        return None
    assert config.rate_tasks is not None, "a rule of the configuration"
    transaction = None
    if transactional_id is not None:
        transaction = OpenTransaction(transactional_id, config.transaction_timeout_ms)
    rows_per_s = _part(config.max_rows_per_second, config.rate_tasks)
    bytes_per_s = _part(config.max_bytes_per_second, config.rate_tasks)
    return RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=monotonic_ms(), transaction=transaction)


def _is_limited(config: SinkConfig) -> bool:
    return config.max_rows_per_second is not None or config.max_bytes_per_second is not None


def _part(whole: int | None, tasks: int) -> float | None:
    return None if whole is None else whole / tasks


def pace(config: SinkConfig, began_ms: int) -> Pace | None:
    """Of a task that ends now; None where it was not to be slow."""
    if config.rate_tasks is None or not _is_limited(config):
        return None
    return Pace(config.rate_tasks, began_ms, wall_clock_ms())


def tell_too_fast(receipts: Sequence[TaskCommitMessage]) -> None:
    """One line, where more of a write's tasks wrote at once than were told."""
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
    # In the same millisecond one ends before another begins.
    steps = sorted([(each.began_ms, 1) for each in paces] + [(each.ended_ms, -1) for each in paces])
    return max(accumulate(step for _, step in steps))


def tell_throttled(write: Write, config: SinkConfig) -> None:
    """One line, where brokers held the task back."""
    figures = write.figures().producer
    longest_ms = figures["produce-throttle-time-max"]
    if longest_ms > 0:
        log.warning(
            "brokers throttled this task by a quota of its user or of client id %r: a Produce request by %.0f ms on "
            "average, by %.0f ms at the longest (KIP-219). It waited as long as it was told to; rows are not lost.",
            config.producer.client_id,
            figures["produce-throttle-time-avg"],
            longest_ms,
        )
