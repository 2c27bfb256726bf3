"""How fast one of Spark's tasks may write: its part of the rate that was asked for, and what the brokers' quotas left.

Nothing tells a Python task how many tasks its write has. It is sent the partition's own number, stage, attempt, and
Spark's conf as local properties (PythonRunner.scala, worker_message.py of pyspark 4.1 to 4.3); the JVM's numPartitions
stays there, and the worker that plans gets options and schema only. So the option `rateTasks` says it.
"""

from __future__ import annotations

import logging

from kafka_sink.clock import monotonic_ms
from kafka_sink.config import SinkConfig
from kafka_sink.producer.rate_limit import OpenTransaction, Rate, RateLimit
from kafka_sink.write import Write

log = logging.getLogger(__name__)


def rate_limit(config: SinkConfig, *, transactional_id: str | None = None) -> RateLimit | None:
    """For one task that begins now; None: as fast as it goes. `transactional_id`: of the transaction that its rows are
    in, which begins now, too."""
    if config.max_rows_per_second is None and config.max_bytes_per_second is None:
        return None
    assert config.rate_tasks is not None, "a rule of the configuration"
    transaction = None
    if transactional_id is not None:
        transaction = OpenTransaction(transactional_id, config.transaction_timeout_ms)
    rows_per_s = _part(config.max_rows_per_second, config.rate_tasks)
    bytes_per_s = _part(config.max_bytes_per_second, config.rate_tasks)
    return RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=monotonic_ms(), transaction=transaction)


def _part(whole: int | None, tasks: int) -> float | None:
    return None if whole is None else whole / tasks


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
