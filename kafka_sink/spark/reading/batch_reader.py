"""The reader of a batch, which Spark makes on the driver and sends to each task.

Spark calls `pushFilters` if it pushes filters down, then `partitions` on the driver, and `read` in a worker for each
partition. A task that runs again reads the same range. A later action may read newer records (`executions.py`).

Source: pyspark/sql/worker/plan_data_source_read.py, data_source_pushdown_filters.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.bounds import moves
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.reading.divide import advise, divide, packed
from kafka_sink.spark.reading.executions import PlannedTask, blocks_folder, planned_tasks, ranges_of
from kafka_sink.spark.reading.plan import Wanted, plan, tell_instants
from kafka_sink.spark.task import Task

# Spark up to 4.3 keeps the plan of a filtered read for every later query of the same DataFrame: a plan that leaves rows
# out would leave them out of those too. The Spark that keeps a plan for one query has `pushLimit` (SPARK-58551).
_IS_PLANNED_FOR_ONE_QUERY = hasattr(DataSourceReader, "pushLimit")


class _PushFilters:
    """The reader's `pushFilters`.

    Spark refuses to read with a reader that has its own `pushFilters` unless the session sets
    spark.sql.python.filterPushdown.enabled. It looks at `__func__`, and calls the method only with that setting. So
    this is a callable that has the `__func__` of the method that does nothing.
    """

    def __init__(self, reader: KafkaBatchReader) -> None:
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        if _IS_PLANNED_FOR_ONE_QUERY:
            self._reader.wanted = self._reader.wanted.narrowed(filters)
        # Spark applies each of them again.
        return filters


class KafkaBatchReader(DataSourceReader):
    """`wanted`: what filters leave of the read."""

    def __init__(self, config: ReadConfig, columns: tuple[str, ...], interceptors: Sequence[Interceptor] = ()) -> None:
        self._config = config
        self._columns = columns
        self._interceptors = tuple(interceptors)
        self.wanted = Wanted()

    @property
    def pushFilters(self) -> _PushFilters:
        return _PushFilters(self)

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
        idle = {each.topic_partition: each.first for each in empty}
        return list(planned_tasks(tasks, planned_ms, blocks_folder(), idle))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task. Raises a ReadError, ClusterError, ConfigError or WorkerExhausted."""
        assert isinstance(partition, PlannedTask)
        from kafka_sink.spark.reading.range_reader import RangeReader

        reader = RangeReader(self._config, self._columns, self._interceptors, reads_replacements=True)
        yield from reader.rows(self._ranges(partition))

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
