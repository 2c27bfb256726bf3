"""Advice for a read whose tasks cost more than their records: how many tasks would do. Pure, but for its line of log.

A task costs 25 to 50 ms of CPU, as much as reading 50,000 records (docs/design/performance.md, "Reads in Spark").
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.options.reading import ReadConfig

log = logging.getLogger("kafka_sink")

RECORDS_WORTH_A_TASK = 50_000
# Enough to keep a small cluster busy. With fewer tasks than four times as many there is little to gain.
FEWEST, WORTHWHILE = 8, 4


Tasks = Sequence[Sequence[FetchRange]]


def enough_tasks(tasks: Tasks, config: ReadConfig) -> int | None:
    """Return the maxPartitions to advise. None: tasks are worth their cost, or an option says how many."""
    if config.max_partitions or config.min_partitions or config.max_records_per_partition:
        return None
    enough = max(FEWEST, -(-_records(tasks) // RECORDS_WORTH_A_TASK))
    return enough if len(tasks) >= WORTHWHILE * enough else None


def described(tasks: Tasks) -> str:
    """Return how many there are, and how large. Offsets are counted: a compacted topic has fewer records."""
    if not tasks:
        return "no records to read now"
    each = f"{round(_records(tasks) / len(tasks)):,} records"
    return f"1 task of {each}" if len(tasks) == 1 else f"{len(tasks)} tasks of about {each}"


def advise(tasks: Tasks, config: ReadConfig) -> bool:
    """Log a line if the tasks are too small. Return True if it did."""
    enough = enough_tasks(tasks, config)
    if enough is not None:
        topics = sorted({each.topic for ranges in tasks for each in ranges})
        log.warning(
            "a read of %s has %s. To start a task costs more than to read its records: "
            "maxPartitions=%d would make %d tasks.",
            topics[0] if len(topics) == 1 else f"{len(topics)} topics",
            described(tasks),
            enough,
            enough,
        )
    return enough is not None


def _records(tasks: Tasks) -> int:
    return sum(each.end - each.first for ranges in tasks for each in ranges)
