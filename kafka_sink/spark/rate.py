"""The rate limit of one Spark task, which is its part of the write's rate, and warnings about rate and quotas.

A Python task cannot find out how many tasks its write has. Spark sends it the partition number, the stage, the attempt,
and Spark's conf as local properties (PythonRunner.scala, worker_message.py of pyspark 4.1 to 4.3). The JVM does not
send numPartitions, and the planning worker gets only options and schema. So the option `rateTasks` has the number. The
commit has a message of each task, and warns if `rateTasks` was too small.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.producer.throttling import OpenTransaction, Rate, RateLimit
from kafka_sink.options.config import SinkConfig
from kafka_sink.spark.task_results import Pace, TaskCommitMessage

if TYPE_CHECKING:
    from kafka_sink.kafka.write import Write

log = logging.getLogger(__name__)


def rate_limit(config: SinkConfig, *, transactional_id: str | None = None) -> RateLimit | None:
    """Return the rate limit of a task that begins now, or None if there is no limit.

    `transactional_id`: the id of the rows' transaction, which also begins now.
    """
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
    """Return the pace of a task that ends now, or None if it had no rate limit."""
    if config.rate_tasks is None or not _is_limited(config):
        return None
    return Pace(config.rate_tasks, began_ms, wall_clock_ms())


def tell_too_fast(receipts: Sequence[TaskCommitMessage]) -> None:
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


def tell_throttled(write: Write, config: SinkConfig) -> None:
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
