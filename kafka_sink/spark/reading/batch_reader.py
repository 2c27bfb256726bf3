"""The reader of a batch, which Spark makes on the driver and sends to each task.

Spark calls `pushFilters` if it pushes filters down, then `partitions` on the driver, and `read` in a worker for each
partition. A task that runs again reads the same range.

Source: pyspark/sql/worker/plan_data_source_read.py, data_source_pushdown_filters.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_sink.errors.failures import told_to_spark
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.reading.filters import Wanted
from kafka_sink.spark.reading.plan import plan
from kafka_sink.spark.reading.range_reader import RangePartition, RangeReader, of_read

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
    def partitions(self) -> Sequence[RangePartition]:
        """Plan the read. Raises a ReadError, ClusterError or ConfigError."""
        with of_read(), lease_admin_client(self._config.consumer) as client:
            ranges = plan(client, self._config, self.wanted)
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range. Raises a ReadError, ClusterError or WorkerExhausted."""
        return RangeReader(self._config, self._columns, self._interceptors, goes_on=True).rows(partition)
