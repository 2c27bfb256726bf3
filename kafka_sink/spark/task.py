"""The Spark task that this process runs, and Spark's conf in that task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of one Spark partition. `conf`: Spark's conf, with the local properties that Spark adds. The jobs of
    an RDD have these alone. `is_retry`: Spark has begun this task before, in this attempt of its stage."""

    slot: int
    conf: Mapping[str, str]
    stage: int = 0
    is_retry: bool = False

    @property
    def is_of_later_micro_batch(self) -> bool:
        """Whether the query has committed a micro-batch before this one."""
        return int(self.conf.get("streaming.sql.batchId", 0)) > 0

    @classmethod
    def current(cls) -> Task:
        """Return the current task. Outside a task: partition 0, with an empty conf."""
        context = TaskContext.get()
        if context is None:
            return cls(0, {})
        # `getLocalProperty` needs exact names, and so it cannot find misspelled options.
        is_retry = bool(context.attemptNumber())
        return cls(context.partitionId(), context._localProperties or {}, context.stageId(), is_retry)
