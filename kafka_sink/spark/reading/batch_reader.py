"""The reader of a batch, which Spark makes on the driver and sends to each task.

Spark calls `pushFilters` if it pushes filters down, and the like for limits and columns; then `partitions` on the
driver, and `read` in a worker for each partition. A task that runs again reads the same range. A later action may read
newer records (`executions.py`).

What Spark pushes down: filters, the limit of a query, and the columns that it needs.

| | Spark | Here |
|---|---|---|
| `pushFilters` | from 4.1 on, with spark.sql.python.filterPushdown.enabled | `plan.Wanted` |
| `pushLimit` | after 4.3, with spark.sql.python.limitPushdown.enabled (SPARK-58551) | a task ends with so many rows |
| `pruneColumns` | in no release (SPARK-51713) | tasks decode fewer columns |

Spark applies filters and limits again. Up to 4.3 it keeps the plan of a query for every later query of the same
DataFrame: a plan that leaves rows or columns out would leave them out of those too. The Spark that keeps a plan for one
query has `pushLimit`. Until then a task without a limit ends when Spark takes no more of its rows.

Source: pyspark/sql/worker/plan_data_source_read.py, data_source_pushdown_filters.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.options.bounds import moves
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.kept_clients import blocks_folder, lease_admin_client
from kafka_sink.spark.reading.divide import advise, divide, packed
from kafka_sink.spark.reading.executions import PlannedTask, planned_tasks, ranges_of
from kafka_sink.spark.reading.plan import Wanted, plan, tell_instants
from kafka_sink.spark.task import Task

IS_PLANNED_FOR_ONE_QUERY = hasattr(DataSourceReader, "pushLimit")
# The variable of Spark's worker that has the setting. A planner sees no other sign of it.
_LIMIT_SETTING = "enable_limit_pushdown"


class KafkaBatchReader(DataSourceReader):
    """`wanted`: what filters leave of the read. `limit`: how many rows a task reads at most; None: all.

    `pushFilters`, `pushLimit` and `pruneColumns` are attributes: Spark must not find them in the class (`Pushed`).
    """

    def __init__(self, config: ReadConfig, columns: tuple[str, ...], interceptors: Sequence[Interceptor] = ()) -> None:
        self._config = config
        self._columns = columns
        self._interceptors = tuple(interceptors)
        self.wanted = Wanted()
        self.limit: int | None = None
        pushed = (
            Pushed("pushFilters", self._push_filters),
            Pushed("pushLimit", self._push_limit),
            Pushed("pruneColumns", self._prune_columns),
        )
        vars(self).update({each.name: each for each in pushed})

    def _push_filters(self, filters: list[Any]) -> Iterable[Any]:
        if IS_PLANNED_FOR_ONE_QUERY:
            self.wanted = self.wanted.narrowed(filters)
        # Spark applies each of them again.
        return filters

    def _push_limit(self, limit: int) -> bool:
        if IS_PLANNED_FOR_ONE_QUERY:
            self.limit = limit
        return IS_PLANNED_FOR_ONE_QUERY

    def _prune_columns(self, required: Any) -> StructType:
        from kafka_sink.spark.reading.reads import whole_schema

        if IS_PLANNED_FOR_ONE_QUERY:
            self._columns = _needed(self._columns, required)
        known = whole_schema(include_headers=True)
        return StructType([known[name] for name in self._columns])

    @told_to_spark()
    def partitions(self) -> Sequence[PlannedTask]:
        """Plan the read. Raises a ReadError, ClusterError or ConfigError."""
        planned_ms = wall_clock_ms()
        config = self._config.at(planned_ms)
        tell_instants(config)
        ranges = self._plan(config, has_worked=False)
        whole = divide(ranges, config.min_partitions, config.max_records_per_partition)
        tasks = packed(whole, config.max_partitions)
        advise(tasks, config)
        # Of a start that moves, only this plan knows where partitions begin that had nothing to read.
        empty = (each for each in ranges if moves(config.starting) and each.first >= each.end)
        idle = {each.topic_partition: each for each in empty}
        return list(planned_tasks(tasks, planned_ms, blocks_folder(), idle))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task. Raises a ReadError, ClusterError, ConfigError or WorkerExhausted."""
        assert isinstance(partition, PlannedTask)
        from kafka_sink.spark.reading.range_reader import RangeReader

        reader = RangeReader(self._config, self._columns, self._interceptors, is_batch=True)
        rows = reader.rows(self._ranges(partition))
        yield from rows if self.limit is None else _first_rows(rows, self.limit)

    @told_to_spark()
    def _ranges(self, planned: PlannedTask) -> Sequence[FetchRange]:
        if self._config.reuse_offsets:
            return planned.ranges
        with of_read():
            config = self._config.again(planned.planned_ms)
            return ranges_of(planned, Task.current(), lambda: self._plan(config, has_worked=True))

    def _plan(self, config: ReadConfig, *, has_worked: bool) -> Sequence[FetchRange]:
        """Return a range for each partition. `has_worked`: there is an earlier plan, so brokers have answered."""
        with of_read(), lease_admin_client(config.consumer, has_worked=has_worked) as client:
            return plan(client, config, self.wanted, by_task=False)


# --- what Spark pushes down -------------------------------------------------------------------------------------------


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


def _needed(columns: tuple[str, ...], required: Any) -> tuple[str, ...]:
    """Return those of `columns` that a query needs, in their order; at least one, because rows are counted by it.

    `required`: a StructType, or an object of Spark's that has it beside the one of all columns.
    """
    schema = required if isinstance(required, StructType) else min(vars(required).values(), key=len)
    return tuple(name for name in columns if name in schema.names) or columns[:1]


def _first_rows(rows: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, at most so many, and ask for no more."""
    left = most
    with closing(rows):  # type: ignore[type-var]
        for batch in rows:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return
