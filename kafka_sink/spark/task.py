"""Which of Spark's tasks this process runs, and what Spark's conf says there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of one Spark partition. `conf`: Spark's, with the local properties that Spark adds."""

    slot: int
    attempt_number: int
    conf: Mapping[str, str]

    @classmethod
    def current(cls) -> Task:
        """Outside of a task: the first attempt of partition 0, without a conf."""
        context = TaskContext.get()
        if context is None:
            return cls(0, 0, {})
        # Not by `getLocalProperty`, which must be asked by name and so finds no name that is misspelled.
        return cls(context.partitionId(), context.attemptNumber(), context._localProperties or {})
