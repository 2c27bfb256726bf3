"""The reader of a batch, which Spark makes on the driver and sends to each task.

Spark calls `pushFilters` if it pushes filters down, and the like for limits and columns; then `partitions` on the
driver, and `read` in a worker for each partition. A task that runs again reads the same range. A later action may read
newer records (`executions.py`).

Source: pyspark/sql/worker/plan_data_source_read.py, data_source_pushdown_filters.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from kafka_sink.spark.kept_clients import lease_admin_client
from kafka_sink.spark.reading import pushdown
from kafka_sink.spark.reading.divide import advise, divide, packed
from kafka_sink.spark.reading.executions import PlannedTask, blocks_folder, planned_tasks, ranges_of
from kafka_sink.spark.reading.plan import Wanted, plan, tell_instants
from kafka_sink.spark.reading.pushdown import Pushed
from kafka_sink.spark.task import Task


class KafkaBatchReader(DataSourceReader):
    """`wanted`: what filters leave of the read. `limit`: how many rows a task reads at most; None: all.

    `pushFilters`, `pushLimit` and `pruneColumns` are attributes: Spark must not find them in the class (`pushdown.py`).
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
        if pushdown.IS_PLANNED_FOR_ONE_QUERY:
            self.wanted = self.wanted.narrowed(filters)
        # Spark applies each of them again.
        return filters

    def _push_limit(self, limit: int) -> bool:
        if pushdown.IS_PLANNED_FOR_ONE_QUERY:
            self.limit = limit
        return pushdown.IS_PLANNED_FOR_ONE_QUERY

    def _prune_columns(self, required: Any) -> StructType:
        from kafka_sink.spark.reading.reads import whole_schema

        if pushdown.IS_PLANNED_FOR_ONE_QUERY:
            self._columns = pushdown.needed(self._columns, required)
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
        yield from rows if self.limit is None else pushdown.first_rows(rows, self.limit)

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
