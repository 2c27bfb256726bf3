"""What Spark pushes down to the reader of a batch: filters, the limit of a query, and the columns that it needs.

| | Spark | Here |
|---|---|---|
| `pushFilters` | from 4.1 on, with spark.sql.python.filterPushdown.enabled | `plan.Wanted` |
| `pushLimit` | after 4.3, with spark.sql.python.limitPushdown.enabled (SPARK-58551) | a task ends with so many rows |
| `pruneColumns` | in no release (SPARK-51713) | tasks decode fewer columns |

Spark applies filters and limits again. Up to 4.3 it keeps the plan of a query for every later query of the same
DataFrame: a plan that leaves rows or columns out would leave them out of those too. The Spark that keeps a plan for one
query has `pushLimit`. Until then a task without a limit ends when Spark takes no more of its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

IS_PLANNED_FOR_ONE_QUERY = hasattr(DataSourceReader, "pushLimit")
# The variable of Spark's worker that has the setting. A planner sees no other sign of it.
_LIMIT_SETTING = "enable_limit_pushdown"


class Pushed:
    """A method of the reader for Spark to call, instead of the one that does nothing.

    Spark refuses a reader that has a method of its own, unless the session enables it. It looks at `__func__`, so this
    has that of the method that does nothing. If `pushFilters` is enabled, Spark calls it all the same. But it calls
    `pushLimit` only if that is a method of the reader's own.
    """

    def __init__(self, name: str, call: Callable[[Any], Any]) -> None:
        self.name = name
        self._call = call

    @property
    def __func__(self) -> object:
        is_own = self.name == "pushLimit" and _limits_are_pushed(sys._getframe(1))
        return self._call if is_own else getattr(DataSourceReader, self.name, None)

    def __call__(self, pushed: Any) -> Any:
        return self._call(pushed)


def _limits_are_pushed(caller: FrameType | None) -> bool:
    while caller is not None:
        if caller.f_locals.get(_LIMIT_SETTING) is True:
            return True
        caller = caller.f_back
    return False


def needed(columns: tuple[str, ...], required: Any) -> tuple[str, ...]:
    """Return those of `columns` that a query needs, in their order; at least one, because rows are counted by it.

    `required`: a StructType, or an object of Spark's that has it beside the one of all columns.
    """
    schema = required if isinstance(required, StructType) else min(vars(required).values(), key=len)
    return tuple(name for name in columns if name in schema.names) or columns[:1]


def first_rows(rows: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, at most so many, and ask for no more."""
    left = most
    with closing(rows):  # type: ignore[type-var]
        for batch in rows:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return
